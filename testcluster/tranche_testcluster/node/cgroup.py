"""Control groups of one real node: one group of the same name in each hierarchy of the machine."""

import contextlib
import os
import signal
import time
from pathlib import Path

_END_SECONDS = 10.0
_INHERITED = ("cpuset.cpus", "cpuset.mems")  # empty in a new group of version 1, which then takes no process


def hierarchies() -> list[Path]:
    """Return the mounts of all hierarchies; a machine with version 1 may have one of version 2 beside them."""
    lines = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [Path(line[1]) for line in lines if line[2] in ("cgroup", "cgroup2")]


def create(name: str) -> None:
    """Create the group in each hierarchy."""
    for root in hierarchies():
        group = root / name
        group.mkdir(exist_ok=True)
        for file in _INHERITED:
            if (group / file).exists() and not (group / file).read_text().strip():
                (group / file).write_text((root / file).read_text())


def remove(name: str) -> None:
    """Kill the processes of the group and remove it, with all groups inside.

    Raises:
        TimeoutError: A process does not end.
    """
    deadline = time.monotonic() + _END_SECONDS
    for root in hierarchies():
        while (root / name).exists():
            for folder, _, _ in os.walk(root / name, topdown=False):
                _kill(Path(folder) / "cgroup.procs")
                with contextlib.suppress(OSError):  # a killed process needs a moment
                    os.rmdir(folder)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{root / name} still has processes")
            time.sleep(0.02)


def _kill(file: Path) -> None:
    with contextlib.suppress(OSError):
        for pid in file.read_text().split():
            os.kill(int(pid), signal.SIGKILL)
