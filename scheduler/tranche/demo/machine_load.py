"""Load of the machine during a run: processor time of the demo's processes, and of all other programs."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

BUSY_SHARE = 0.9
"""Share of the processor time, used by all programs, from which the load counts as high."""
OTHER_SHARE = 0.1
"""Share of the processor time, used by other programs, from which the load counts as high."""
PROC = Path("/proc")
PARENT, TIMES = 1, (11, 12, 13, 14)
"""Positions after the name in /proc/PID/stat: ID of the parent, and times in user and kernel mode with those of ended
children."""


@dataclass(frozen=True, slots=True)
class MachineLoad:
    """Shares of the processor time of all cores in a period."""

    own: float
    """Share of this process and its descendants."""
    other: float
    """Share of all other programs."""

    @property
    def is_high(self) -> bool:
        """Whether processes had to wait for a processor, or shared it with other programs."""
        return self.own + self.other >= BUSY_SHARE or self.other >= OTHER_SHARE


@dataclass(frozen=True, slots=True)
class ProcessorTimes:
    """Processor times since the start of the machine, in clock ticks."""

    total: int
    """Time of all cores."""
    busy: int
    """Time of all cores in which they were not idle."""
    own: int
    """Time of this process and its living descendants, and of their children that have ended."""

    @classmethod
    def read(cls, proc: Path = PROC, process: int | None = None) -> Self:
        """Read the times.

        Args:
            proc: Mount point of the proc file system.
            process: ID of the process that counts as own with its descendants; None: this process.

        Raises:
            OSError: the proc file system is not readable.
        """
        first = (proc / "stat").read_text().split("\n", 1)[0].split()[1:9]  # guest time is part of user time
        times = [int(field) for field in first]
        idle = times[3] + times[4]
        return cls(sum(times), sum(times) - idle, _own(proc, os.getpid() if process is None else process))

    def load_since(self, before: "ProcessorTimes") -> MachineLoad:
        """Return the load between two readings."""
        total = max(1, self.total - before.total)
        own = max(0, self.own - before.own)
        other = max(0, self.busy - before.busy - own)
        return MachineLoad(own / total, other / total)


def _own(proc: Path, process: int) -> int:
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    for number, fields in _processes(proc):
        parents[number] = int(fields[PARENT])
        used[number] = sum(int(fields[at]) for at in TIMES)
    total = 0
    for number, ticks in used.items():
        ancestor = number
        while ancestor not in (process, 0):
            ancestor = parents.get(ancestor, 0)
        total += ticks if ancestor == process else 0
    return total


def _processes(proc: Path) -> Iterator[tuple[int, list[str]]]:
    for entry in proc.iterdir():
        if entry.name.isdigit():
            try:
                # The kernel cuts names after 15 bytes, also within a character.
                stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
                yield int(entry.name), stat.rpartition(")")[2].split()
            except OSError:  # it has ended meanwhile
                continue
