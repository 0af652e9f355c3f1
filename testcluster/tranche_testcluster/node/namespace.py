"""Mount, network and process namespaces of a real node, with run and state folders of its own.

All processes of the node end with the first process of the process namespace, and its mounts with the last process. So
nothing of them is left when the process that started the node is killed, and two nodes need no different paths.
"""

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..component import Component
from ..errors import ClusterError

_SYSCTLS = {  # the kubelet and the bridge plugin write them unless they have these values
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
_UNSHARE = (
    "unshare",
    "--mount",
    "--net",
    "--propagation",
    "private",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
)


class Child(Component):
    """Component whose program is the child of the process that is started: of unshare or nsenter."""

    @property
    def pid(self) -> int:
        """Process id of the program itself.

        Raises:
            ClusterError: It does not run.
        """
        parent = super().pid
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        if len(children) != 1:
            raise ClusterError(f"{self.name} does not run")
        return int(children[0])


class Namespace:
    """Namespaces of one node, and the programs in them."""

    def __init__(self, folder: Path, log: Path) -> None:
        """Describe namespaces whose /var/lib and /var/log are in a folder."""
        self._folder = folder
        self._ready = folder / "ready"
        script = folder / "namespace.sh"
        script.write_text(self._script())
        self._first = Child("namespace", [*_UNSHARE, "sh", "-e", script], log, self._ready.exists)

    def open(self) -> None:
        """Create the namespaces."""
        self._first.spawn()
        self._first.wait()

    @property
    def pid(self) -> int:
        """Process id of the first process."""
        return self._first.pid

    def close(self, number: int) -> None:
        """End all processes with the first one."""
        self._first.stop(number)

    def command(self, words: Sequence[str | Path]) -> list[str | Path]:
        """Return a command line that runs a program in the namespaces."""
        return ["nsenter", f"--target={self._first.pid}", "--mount", "--net", "--pid", "--", *words]

    def run(self, *words: str | Path) -> str:
        """Run a program to its end and return its output.

        Raises:
            ClusterError: It fails; the text is its error output.
        """
        result = subprocess.run(self.command(words), capture_output=True, text=True, check=False)  # noqa: S603
        if result.returncode:
            raise ClusterError(f"{shlex.join(map(str, words))}: {result.stderr.strip()}")
        return result.stdout

    def _script(self) -> str:
        """Return a script that mounts the node's folders, and then waits.

        It mounts files in place of the machine's sysctls, so that programs which set them leave the machine as it is.
        """
        binds: Mapping[str, Path] = {f"/proc/sys/{name}": self._sysctl(name, text) for name, text in _SYSCTLS.items()}
        binds = {**binds, **{f"/var/{name}": self._made(name) for name in ("lib", "log")}}
        lines = ["mount --no-mtab -t tmpfs tmpfs /run"]  # a record of mounts would be in the machine's /run
        lines += [f"mount --bind {shlex.quote(str(source))} {target}" for target, source in binds.items()]
        lines.append("trap '' CHLD")  # the kernel then removes orphans
        return "\n".join([*lines, f"touch {shlex.quote(str(self._ready))}", "exec sleep infinity", ""])

    def _sysctl(self, name: str, text: str) -> Path:
        file = self._made("sysctls") / name.replace("/", ".")
        file.write_text(text + "\n")
        return file

    def _made(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        return folder
