"""Time until capacity at a topology level exists, by class of jobs: the tuner of delay timers.

Source: design ours [I] after the abstract of Dally, arXiv 2401.16492 (an auto-tuner of the delay timers). An
observation begins when a job begins to wait and ends when there is capacity for it at the level, whether or not the job
has started at a wider level by then; otherwise timers of 0 would always stay 0, because every accepted wait is 0.
Worked numbers: docs/reference/systems/dally-like.md.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import fsum, inf

KEPT_OBSERVATIONS = 20
"""Number of observations of a class and level that the timer is the mean of."""
MIN_OBSERVATIONS = 5
"""Number of observations below which the timer is 0."""


@dataclass(slots=True)
class CapacityWaits:
    """Observed times until capacity existed, by class of jobs and topology level."""

    _observations: dict[tuple[int, int], deque[float]] = field(default_factory=dict)

    def add(self, size_class: int, level: int, seconds: float) -> None:
        """Record that a job of the class waited this long for capacity at the level."""
        self._observations.setdefault((size_class, level), deque(maxlen=KEPT_OBSERVATIONS)).append(seconds)

    def samples(self) -> Iterator[tuple[int, int, tuple[float, ...]]]:
        """Return class, level and last observations, oldest first, of all classes and levels with observations."""
        return (
            (size_class, level, tuple(seconds)) for (size_class, level), seconds in sorted(self._observations.items())
        )

    def recall(self, size_class: int, level: int, seconds: Iterable[float]) -> None:
        """Restore the observations of an earlier planner; values that no observation has are ignored."""
        for value in seconds:
            if 0 <= value < inf:
                self.add(size_class, level, value)

    def timer(self, size_class: int, level: int) -> float:
        """Return the mean of the last observations in seconds; 0 while there are few."""
        observations = self._observations.get((size_class, level), ())
        return fsum(observations) / len(observations) if len(observations) >= MIN_OBSERVATIONS else 0.0
