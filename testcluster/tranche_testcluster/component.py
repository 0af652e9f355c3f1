"""Process of a cluster: started, watched until it is ready, stopped, restarted with the same command."""

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .child_process import spawn
from .errors import ClusterError

_READY_SECONDS = 120.0
_SPARING = {"GOGC": "400"}
"""Growth of the heap in percent at which Go collects garbage. At the default, 100, collection takes a fifth of the API
server's time, and a test cluster is small. A GOGC set in the environment takes precedence."""
_STOP_SECONDS = 10.0
_QUOTED_LINES = 15


class Component:
    """Program of the control plane and its log, which later starts continue."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        ready: Callable[[], bool],
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Describe the component; ``ready`` is polled until it returns true, ``env`` is added to the environment."""
        self.name, self.log = name, log
        self._command, self._ready, self._env = list(command), ready, dict(env or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether the process is running."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Exit code if the process has ended by itself; None if it runs, or if `stop` has ended it."""
        return self._process.poll() if self._process is not None else None

    @property
    def command_line(self) -> str:
        """Command for a shell that starts the program again."""
        return shlex.join([*(f"{name}={value}" for name, value in self._env.items()), *map(str, self._command)])

    @property
    def pid(self) -> int:
        """Process id of the program itself.

        Raises:
            ClusterError: It does not run.
        """
        if self._process is None or not self.running:
            raise ClusterError(f"{self.name} does not run")
        return self._process.pid

    def spawn(self) -> None:
        """Start the process without waiting for it.

        Raises:
            ClusterError: It runs already.
        """
        if self.running:
            raise ClusterError(f"{self.name} runs already")
        self._process = spawn(self._command, log=self.log, env={**_SPARING, **os.environ, **self._env})

    def wait(self, seconds: float = _READY_SECONDS) -> None:
        """Wait until it is ready.

        Raises:
            ClusterError: It ended, or is not ready in time; the text quotes its log.
        """
        deadline = time.monotonic() + seconds
        while not self._ready():
            code = self._process.poll() if self._process else None
            if code is not None:
                raise ClusterError(f"{self.name} ended with code {code} while starting\n{self._quote()}")
            if time.monotonic() > deadline:
                raise ClusterError(f"{self.name} is not ready after {seconds:.0f} s\n{self._quote()}")
            time.sleep(0.02)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Send a signal and wait ten seconds for the end; then kill the process."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError, ClusterError):  # it has ended
            self.send_signal(number)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError, ClusterError):
                self.send_signal(signal.SIGKILL)
            self._process.wait()
        self._process = None

    def send_signal(self, number: int) -> None:
        """Send the program a signal.

        Raises:
            ClusterError: It does not run.
        """
        os.kill(self.pid, number)

    def _quote(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-_QUOTED_LINES:]
        return f"last lines of {self.log}:\n" + "\n".join(f"  {line}" for line in lines)
