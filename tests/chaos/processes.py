"""A process of tranche that faults kill or stop, and that is started again after its end, as by a kubelet."""

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
LEADERSHIP_LOST = "this planner is not the leader any more"
"""Message of a planner that ends because it does not lead any more, the only expected reason."""
LEASE_TAKEN = f"{LEADERSHIP_LOST}: Lease tranche-scheduler is held by"
"""The same message if another planner leads; otherwise the renewals of the Lease have failed."""
CHILD = re.compile(r"the (?:extender|planner|api) ended with status -?\d+")


class Process:
    """Process that `keep_running` starts again after its end, between `start` and `kill`."""

    def __init__(self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.name, self.log = name, log
        self.ends: list[str] = []
        """Exit code and last output of each end that no fault has caused."""
        self.starts = 0
        self._command, self._env = list(command), env
        self._process: subprocess.Popen[bytes] | None = None
        self._held = True
        self._again_at = 0.0

    def start(self) -> None:
        """Start the process, and let `keep_running` start it again."""
        self._held = False
        self.keep_running()

    def kill(self) -> None:
        """Send SIGKILL; the process stays down until `start`."""
        self._held = True
        if self._process is not None:
            self._send(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Stop the process with SIGSTOP."""
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue the process with SIGCONT."""
        self._send(signal.SIGCONT)

    def keep_running(self) -> None:
        """Start the process again if it has ended; call this periodically."""
        if self._process is not None and self._process.poll() is not None:
            tail = self.log.read_text(errors="replace").splitlines()[-1:]
            self.ends.append(f"{self.name} ended with code {self._process.returncode}: {' '.join(tail)}")
            self._process, self._again_at = None, time.monotonic() + RESTART_SECONDS
        if self._process is None and not self._held and time.monotonic() >= self._again_at:
            self.starts += 1
            self._process = spawn(self._command, log=self.log, env=self._env)

    def unexpected(self, *, rival: bool) -> list[str]:
        """Return the unexpected ends of the process and of its children, which it starts again by itself.

        Args:
            rival: Whether another process could become the leader.
        """
        output = self.log.read_text(errors="replace") if self.log.exists() else ""
        ends, lost = CHILD.findall(output), output.count(f"{LEADERSHIP_LOST}:")
        found = list(self.ends)
        if len(ends) > lost:
            found.append(f"{len(ends) - lost} children of {self.name} ended: {ends}")
        if LEASE_TAKEN in output and not rival:
            found.append(f"{self.name} ended as if another scheduler had the Lease, and there was none")
        return found

    def _send(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, number)  # the process and its children
