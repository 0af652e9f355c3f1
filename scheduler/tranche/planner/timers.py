"""Timers: times at which the planner must reconsider a job without an event."""

from collections.abc import Container
from heapq import heappop, heappush


class Timers:
    """Times with job keys ("" for none); a job may have any number of timers, and one time of the next rank change."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str, bool]] = []
        self._changes: dict[str, float] = {}

    def wake(self, at: float, key: str) -> None:
        """Set a timer to reconsider the job at that time."""
        heappush(self._heap, (at, key, False))

    def change(self, at: float | None, key: str) -> None:
        """Set the time at which the job's rank changes by itself (None: never), instead of any earlier one."""
        if at is None:
            self._changes.pop(key, None)
        elif self._changes.get(key) != at:
            self._changes[key] = at
            heappush(self._heap, (at, key, True))

    def next(self) -> float | None:
        """Return the earliest valid time; None if there is none."""
        heap = self._heap
        while heap and self._void(heap[0]):
            heappop(heap)
        return heap[0][0] if heap else None

    def due(self, now: float) -> list[str]:
        """Remove the timers that are due, and return their keys in order."""
        found: list[str] = []
        heap = self._heap
        while heap and heap[0][0] <= now:
            entry = heappop(heap)
            if not self._void(entry):
                if entry[2]:
                    del self._changes[entry[1]]
                found.append(entry[1])
        return found

    def copied(self, keys: Container[str]) -> "Timers":
        """Return an independent copy with the timers of these jobs and of no job."""
        twin = Timers()
        twin._heap = sorted(entry for entry in self._heap if not entry[1] or entry[1] in keys)
        twin._changes = {key: at for key, at in self._changes.items() if key in keys}
        return twin

    def _void(self, entry: tuple[float, str, bool]) -> bool:
        return entry[2] and self._changes.get(entry[1]) != entry[0]
