"""Reservation of a number for a real node, which names its folder and its control groups.

A file lock holds the number, so the kernel releases it when the process ends, however it ends. What a killed process
has left behind is removed when a number is reserved the next time. Little is left then: containers, mounts and
run directories are in namespaces that end with the process (see ``namespace``).
"""

import fcntl
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from ..errors import ClusterError
from ..workspace import base_folder
from . import cgroup

_NUMBERS = 100


@dataclass(frozen=True)
class Names:
    """Names on the machine that derive from the number of a node."""

    number: int

    @property
    def folder(self) -> Path:
        """Folder of the node's files."""
        return _shelf() / str(self.number)

    @property
    def cgroup(self) -> str:
        """Name of the control group that contains the node's pods, below the root of each hierarchy."""
        return f"tranche-{self.number}"

    def create(self) -> None:
        """Create the folder and the control groups."""
        self.folder.mkdir()
        cgroup.create(self.cgroup)

    def remove(self) -> None:
        """Remove what exists of them, and kill the processes in the control groups."""
        cgroup.remove(self.cgroup)
        if self.folder.exists():
            shutil.rmtree(self.folder)


class Reservation:
    """Number of one node, reserved until ``close``."""

    def __init__(self) -> None:
        """Remove what killed processes have left, and reserve the first free number.

        Raises:
            ClusterError: All numbers are reserved.
        """
        used = {int(path.stem) for path in _shelf().glob("*.lock")}
        self._lock: TextIO | None = None
        for number in range(_NUMBERS):
            if (number in used or self._lock is None) and (lock := _take(number)):
                Names(number).remove()
                if self._lock is None:
                    self.names, self._lock = Names(number), lock
                else:
                    lock.close()
        if self._lock is None:
            raise ClusterError(f"{_NUMBERS} real nodes run on this machine already")

    def close(self) -> None:
        """Remove what the node has created and release the number; a second call has no effect."""
        if self._lock is not None:
            self.names.remove()
            self._lock.close()
            self._lock = None


def _shelf() -> Path:
    folder = base_folder() / "nodes"
    folder.mkdir(exist_ok=True)
    return folder


def _take(number: int) -> TextIO | None:
    """Return the lock of a number, or None if a living process holds it."""
    lock = (_shelf() / f"{number}.lock").open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock
