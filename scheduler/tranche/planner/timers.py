"""Timers: times at which the planner must reconsider a job without an event."""

from collections.abc import Container
from enum import IntEnum
from heapq import heappop, heappush


class _Kind(IntEnum):
    """Kinds of timers; a job has any number of the first kind, and at most one of each other kind."""

    WAKE = 0
    RETRY = 1
    CHANGE = 2


class Timers:
    """Times with job keys ("" for none): each job has any number of timers, one retry and one time of a rank change."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str, _Kind]] = []
        self._single: dict[tuple[str, _Kind], float] = {}
        """Times of retries and rank changes; other entries of the heap with these kinds are void."""

    def wake(self, at: float, key: str) -> None:
        """Set a timer to reconsider the job at that time."""
        heappush(self._heap, (at, key, _Kind.WAKE))

    def retry(self, at: float, key: str) -> None:
        """Reconsider the job at that time at the latest.

        Use it where each reconsideration sets the next one: the number of timers would increase with each event.
        """
        known = self._single.get((key, _Kind.RETRY))
        if known is None or at < known:
            self._set(at, key, _Kind.RETRY)

    def change(self, at: float | None, key: str) -> None:
        """Set the time at which the job's rank changes by itself (None: never), instead of any earlier one."""
        if at is None:
            self._single.pop((key, _Kind.CHANGE), None)
        elif self._single.get((key, _Kind.CHANGE)) != at:
            self._set(at, key, _Kind.CHANGE)

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
                self._single.pop(entry[1:], None)
                found.append(entry[1])
        return found

    def copied(self, keys: Container[str]) -> "Timers":
        """Return an independent copy with the timers of these jobs and of no job."""
        twin = Timers()
        twin._heap = sorted(entry for entry in self._heap if not entry[1] or entry[1] in keys)
        twin._single = {name: at for name, at in self._single.items() if name[0] in keys}
        return twin

    def _set(self, at: float, key: str, kind: _Kind) -> None:
        self._single[key, kind] = at
        heappush(self._heap, (at, key, kind))

    def _void(self, entry: tuple[float, str, _Kind]) -> bool:
        return bool(entry[2]) and self._single.get(entry[1:]) != entry[0]
