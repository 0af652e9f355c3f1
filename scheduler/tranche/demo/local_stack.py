"""tranche on a test cluster: manifests applied, scheduler, kube-scheduler and operator as real processes.

Each of our processes has the token of its own ServiceAccount, so a verb that manifests/rbac.yaml lacks is refused here
as it would be in production.
"""

import contextlib
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

import tranche
from tranche_testcluster import Cluster, ClusterError, spawn

SYSTEM_NAMESPACE = "tranche-system"
READY_SECONDS = 120.0
API = "/apis/tranche.dev/v1alpha1"
RESOURCES = ("trainingjobs", "sites")
STOP_SECONDS = 5.0
FIRST_PORT, PORTS, TRIES = 10_300, 9_000, 100
KUBE_SCHEDULER = "tranche-kube-scheduler"
"""Name of our kube-scheduler as a component of the cluster."""


def manifests() -> Path:
    """The folder of manifests: inside an installed package, or at the root of a checkout."""
    package = Path(tranche.__file__).parent
    inside = package / "manifests"
    return inside if inside.is_dir() else package.parents[1] / "manifests"


def apply_manifests(cluster: Cluster) -> None:
    """Install CRDs, priority classes and RBAC, and wait until clients can use the CRDs.

    Raises:
        ClusterError: if something is refused, or the CRDs are not served in time.
    """
    folder = manifests()
    cluster.kubectl("apply", "-f", str(folder / "crds"), "-f", str(folder / "priorityclasses.yaml"))
    cluster.kubectl("apply", "-f", str(folder / "rbac.yaml"))
    await_kinds(cluster)


def await_kinds(cluster: Cluster) -> None:
    """Wait until the API server serves our CRDs and publishes them to clients.

    It does so in steps, each with a controller of its own: it serves the resources, lists them in its discovery
    document, where kubectl and helm look for kinds, and adds their schemas to its OpenAPI documents.

    Raises:
        ClusterError: if that takes too long.
    """
    paths = [f"{API}/{name}" for name in RESOURCES] + [f"/openapi/v3{API}"]
    deadline = time.monotonic() + READY_SECONDS
    while not (all(cluster.request("GET", path)[0] == 200 for path in paths) and _is_discovered(cluster)):
        if time.monotonic() > deadline:
            raise ClusterError(f"the CRDs are not served after {READY_SECONDS:g} s")
        time.sleep(0.05)


def _is_discovered(cluster: Cluster) -> bool:
    """Whether kubectl, asked without its cache, finds all our kinds."""
    words = ("api-resources", "--api-group=tranche.dev", "--cached=false", "--output=name")
    return {f"{name}.tranche.dev" for name in RESOURCES} <= set(cluster.kubectl(*words, check=False).split())


@dataclass
class Stack:
    """Our two processes and the second kube-scheduler on a running cluster."""

    cluster: Cluster
    policy: str = "chunk"
    scheduler_options: Sequence[str] = ()
    operator_options: Sequence[str] = ()
    port: int = 0
    report_port: int = 0
    page_port: int = 0
    health_port: int = 0
    api_url: str | None = None
    """Of the API server as the scheduler sees it: a proxy's; default: the API server's own."""
    page_ports: dict[str, int] = field(default_factory=dict)
    """Of the web page, by replica of the scheduler."""
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def __enter__(self) -> Self:
        """Start everything and wait until it is ready.

        Raises:
            ClusterError: if a process ends or does not become ready; its last lines are quoted.
        """
        self.port, self.health_port = self.port or free_port(), self.health_port or free_port()
        self.report_port, self.page_port = self.report_port or free_port(), self.page_port or free_port()
        try:
            self.start_scheduler()
            self.start_kube_scheduler()
            self.start_operator()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Of the extender."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def report_url(self) -> str:
        """Of the report API."""
        return f"http://127.0.0.1:{self.report_port}"

    @property
    def page_url(self) -> str:
        """Of the web page and the read API."""
        return f"http://127.0.0.1:{self.page_port}"

    def log(self, name: str) -> Path:
        """The file with what the process `scheduler` or `operator` says."""
        return self.cluster.directory / f"tranche-{name}.log"

    def start_scheduler(self, name: str = "scheduler", port: int | None = None) -> None:
        """Start (again) planner and extender, or another replica of them, and wait until the watches are in step."""
        first = (self.port, self.report_port, self.page_port)
        ports = first if port is None else (port, free_port(), free_port())
        self.page_ports[name] = ports[2]
        kubeconfig = self.cluster.service_account_kubeconfig(SYSTEM_NAMESPACE, "tranche-scheduler", url=self.api_url)
        self._start(name, self.scheduler_command(kubeconfig, *ports), f"http://127.0.0.1:{ports[0]}/readyz")

    def scheduler_command(self, kubeconfig: Path, port: int, report_port: int, page_port: int) -> list[str]:
        """Command line of planner and extender."""
        command = [sys.executable, "-m", "tranche", "scheduler", "--kubeconfig", str(kubeconfig)]
        command += ["--port", str(port), "--policy", self.policy, "--report-port", str(report_port)]
        command += ["--page-port", str(page_port)]
        return [*command, *self.scheduler_options]

    def start_kube_scheduler(self) -> None:
        """Start (again) the kube-scheduler that asks our extender."""
        self.cluster.start_scheduler(self._scheduler_config(), name=KUBE_SCHEDULER)

    def start_operator(self) -> None:
        """Start (again) the operator, and wait until it is alive."""
        kubeconfig = self.cluster.service_account_kubeconfig(SYSTEM_NAMESPACE, "tranche-operator")
        self._start("operator", self.operator_command(kubeconfig), f"http://127.0.0.1:{self.health_port}/healthz")

    def operator_command(self, kubeconfig: Path) -> list[str]:
        """Command line of the operator."""
        command = [sys.executable, "-m", "tranche_operator", "--kubeconfig", str(kubeconfig)]
        command += ["--health-port", str(self.health_port), "--report-url", self.report_url]
        return [*command, *self.operator_options]

    def kill(self, name: str) -> None:
        """SIGKILL one of our processes, as a crash would."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def stop(self) -> None:
        """Stop our processes in order; the cluster goes on."""
        for process in reversed(self.processes.values()):
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()

    def _start(self, name: str, command: list[str], probe: str) -> None:
        process = self.processes[name] = spawn(command, log=self.log(name))
        _wait(lambda: _answers(probe), process, self.log(name))

    def _scheduler_config(self) -> dict[str, Any]:
        """manifests/scheduler-config.yaml with this extender's port."""
        config: dict[str, Any] = yaml.safe_load((manifests() / "scheduler-config.yaml").read_text())
        if config.get("kind") == "ConfigMap":
            config = yaml.safe_load(next(iter(config["data"].values())))
        for extender in config["extenders"]:
            extender["urlPrefix"] = self.url
        config.pop("leaderElection", None)
        config.pop("clientConnection", None)
        return config


def _wait(ready: Callable[[], bool], process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not ready():
        ended = process.poll() is not None
        if ended or time.monotonic() > deadline:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            what = f"ended with {process.returncode}" if ended else f"is not ready after {READY_SECONDS:g} s"
            raise ClusterError(f"{log.stem} {what}:\n{tail}")
        time.sleep(0.05)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:  # noqa: S310 - always our own http address
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def free_port() -> int:
    """A port that nobody listens on now.

    It is none of those that the system gives to outgoing connections: a program that is started again finds it free.

    Raises:
        ClusterError: if none is found.
    """
    for _ in range(TRIES):
        port = FIRST_PORT + secrets.randbelow(PORTS)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise ClusterError(f"no free port from {FIRST_PORT} to {FIRST_PORT + PORTS - 1}")
