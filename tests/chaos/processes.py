"""One of our processes under faults: killed, frozen, and started again when it ends, as a kubelet would."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tranche_testcluster import spawn

RESTART_SECONDS = 1.0
"""Pause before a process that has ended by itself is started again."""
DEPOSED = "this planner is not the leader any more"
"""The one reason for which a planner may end by itself."""
REPLACED = f"{DEPOSED}: Lease tranche-scheduler is held by"
"""The part of it that needs another planner. Without one, a Lease is lost if its renewals fail."""
CHILD = re.compile(r"the (?:extender|planner|api) ended with status -?\d+")


class Process:
    """A command that runs until it is held."""

    def __init__(self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.name, self.log = name, log
        self.ends: list[str] = []
        """Last output of each time that it ended by itself."""
        self.starts = 0
        self._command, self._env = list(command), env
        self._process: subprocess.Popen[bytes] | None = None
        self._held = True
        self._again_at = 0.0

    def start(self) -> None:
        """Let it run from now on."""
        self._held = False
        self.tend()

    def kill(self) -> None:
        """SIGKILL, and no new start before `start`."""
        self._held = True
        if self._process is not None:
            self._send(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """SIGSTOP."""
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._send(signal.SIGCONT)

    def tend(self) -> None:
        """Start it if it should run and does not."""
        if self._process is not None and self._process.poll() is not None:
            tail = self.log.read_text(errors="replace").splitlines()[-1:]
            self.ends.append(f"{self.name} ended with code {self._process.returncode}: {' '.join(tail)}")
            self._process, self._again_at = None, time.monotonic() + RESTART_SECONDS
        if self._process is None and not self._held and time.monotonic() >= self._again_at:
            self.starts += 1
            self._process = spawn(self._command, log=self.log, env=self._env)

    def unexpected(self, *, rival: bool) -> list[str]:
        """Return its own ends, and those of its children, which it starts again; a new leader is a reason to end.

        Args:
            rival: Whether another process could become the leader.
        """
        said = self.log.read_text(errors="replace") if self.log.exists() else ""
        ends, deposed = CHILD.findall(said), said.count(f"{DEPOSED}:")
        found = list(self.ends)
        if len(ends) > deposed:
            found.append(f"{len(ends) - deposed} children of {self.name} ended: {ends}")
        if REPLACED in said and not rival:
            found.append(f"{self.name} ended as if another scheduler had the Lease, and there was none")
        return found

    def _send(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, number)  # the process and its children
