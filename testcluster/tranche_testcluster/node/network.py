"""Network of the real nodes of one cluster: a router, and a link from it to the machine and to each node.

The router and each node are network namespaces of their own. Only one interface and one route are in the machine's
namespace, and the kernel removes both when the process that holds the router's namespace ends.

    machine -- 10.222.X.1 ---- 10.222.X.2 router ---- 10.222.X+1.254 node 1 -- 10.222.X+1.1 bridge -- pods
                                            ------- 10.222.X+2.254 node 2 -- …
"""

import fcntl
import signal as signals
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from ..errors import ClusterError
from ..workspace import base_folder
from .namespace import Child

NODES = 7
"""Largest number of nodes in one network."""
_NUMBERS = 32
_FIRST = "10.222"
_UNSHARE = ("unshare", "--net", "--fork", "--kill-child")
_SHAPING = ("burst", "64kb", "latency", "100ms")


@dataclass(frozen=True)
class Link:
    """Addresses of one node in the network."""

    subnet: str
    """Addresses of the node's pods, and of the node."""
    address: str
    """Address of the node."""
    gateway: str
    """Address of the node in the subnet of its pods."""
    last_pod: str
    """Last address that a pod may have."""


class Network:
    """Network of the nodes of one cluster; a context manager, outside that of the cluster.

    `connect` is for any thread.
    """

    def __init__(self) -> None:
        """Describe a network; entering the context creates it."""
        self._lock: TextIO | None = None
        self._router: Child | None = None
        self._used: set[int] = set()
        self._choice = threading.Lock()

    def __enter__(self) -> Self:
        """Create the router and its link to the machine.

        Raises:
            ClusterError: A command failed, or all networks are in use.
        """
        try:
            self._open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def address(self) -> str:
        """Address of the machine in the network, where pods reach its servers."""
        return f"{_FIRST}.{self._base}.1"

    def connect(self, namespace: int) -> Link:
        """Connect the network namespace of a process, which becomes a node.

        Raises:
            ClusterError: The network has its largest number of nodes, or a command failed.
        """
        with self._choice:  # nodes may start in several threads
            free = [number for number in range(1, NODES + 1) if number not in self._used]
            if not free:
                raise ClusterError(f"a network has at most {NODES} nodes")
            number = free[0]
            self._used.add(number)
        link = _link(self._base + number)
        name, peer = _interface(number), "eth0"
        self._run_at_router("ip", "link", "add", name, "type", "veth", "peer", "name", peer, "netns", str(namespace))
        self._run_at_router("ip", "link", "set", name, "up")
        for words in (
            ("ip", "link", "set", "lo", "up"),
            ("ip", "address", "add", f"{link.address}/32", "dev", peer),
            ("ip", "link", "set", peer, "up"),
            ("ip", "route", "add", "default", "via", self._gateway, "dev", peer, "onlink"),
            ("sysctl", "--quiet", "--write", "net.ipv4.ip_forward=1"),
        ):
            _run_in(namespace, *words)
        self._run_at_router("ip", "route", "add", f"{link.address}/32", "dev", name)
        self._run_at_router("ip", "route", "add", link.subnet, "via", link.address, "dev", name, "onlink")
        return link

    def disconnect(self, link: Link) -> None:
        """Release the addresses of a node whose namespace has ended; a second call has no effect."""
        self._used.discard(self._number(link))

    def limit(self, link: Link, megabits: float) -> None:
        """Limit what the router sends to a node, in megabits per second."""
        name, rate = _interface(self._number(link)), f"{megabits}mbit"
        self._run_at_router("tc", "qdisc", "replace", "dev", name, "root", "tbf", "rate", rate, *_SHAPING)

    def close(self) -> None:
        """Remove the network; a second call has no effect."""
        if self._router is not None:
            self._remove_link()
            self._router.stop(signals.SIGKILL)
            self._router = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # ---- internal

    def _open(self) -> None:
        self._base, self._lock = _reserve()
        folder = Path(self._lock.name).parent
        ready = folder / "ready"
        ready.unlink(missing_ok=True)
        script = f"ip link set lo up && sysctl -qw net.ipv4.ip_forward=1 && touch {ready} && exec sleep infinity"
        self._router = Child("router", [*_UNSHARE, "sh", "-ec", script], folder / "log", ready.exists)
        self._router.spawn()
        self._router.wait()
        self._remove_link()  # of a process that was killed a moment ago
        name = self._machine
        _run("ip", "link", "add", name, "type", "veth", "peer", "name", "machine", "netns", str(self._pid))
        _run("ip", "address", "add", f"{self.address}/30", "dev", name)
        _run("ip", "link", "set", name, "up")
        self._run_at_router("ip", "address", "add", f"{self._gateway}/30", "dev", "machine")
        self._run_at_router("ip", "link", "set", "machine", "up")
        _run("ip", "route", "add", f"{_FIRST}.{self._base}.0/21", "via", self._gateway)

    def _remove_link(self) -> None:
        """Remove the interface of the machine at once, if it exists; the kernel does so some time after its process."""
        subprocess.run(["ip", "link", "delete", self._machine], capture_output=True, check=False)  # noqa: S603, S607

    def _run_at_router(self, *words: str) -> None:
        """Run a command in the namespace of the router."""
        _run_in(self._pid, *words)

    def _number(self, link: Link) -> int:
        return int(link.subnet.split(".")[2]) - self._base

    @property
    def _gateway(self) -> str:
        return f"{_FIRST}.{self._base}.2"

    @property
    def _machine(self) -> str:
        """Name of the machine's interface."""
        return f"tranche{self._base}"

    @property
    def _pid(self) -> int:
        if self._router is None:
            raise ClusterError("the network is not there: use it as a context manager")
        return self._router.pid


def _link(third: int) -> Link:
    prefix = f"{_FIRST}.{third}"
    return Link(f"{prefix}.0/24", f"{prefix}.254", f"{prefix}.1", f"{prefix}.250")


def _interface(number: int) -> str:
    return f"node{number}"


def _reserve() -> tuple[int, TextIO]:
    """Return the third number of the first free range of addresses, and the lock that holds it."""
    for number in range(_NUMBERS):
        folder = base_folder() / "networks" / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("a")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        return number * (NODES + 1), lock
    raise ClusterError(f"{_NUMBERS} networks of real nodes are in use on this machine")


def _run_in(process: int, *words: str) -> None:
    """Run a command in the network namespace of a process."""
    _run("nsenter", f"--target={process}", "--net", "--", *words)


def _run(*words: str) -> None:
    result = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603
    if result.returncode:
        raise ClusterError(f"{' '.join(words)}: {result.stderr.strip()}")
