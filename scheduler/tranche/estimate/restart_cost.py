"""Cost of stopping a worker and starting it again, learned from measured starts and stops if it is not declared.

A job without measurements of its own costs what those of the others cost. No single tenant decides that for all: the
pods of a hostile one may start and stop as slowly as it likes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from statistics import median_low

from tranche.estimate.namespace_measurements import deciding, keep

LEARNING_RATE = 0.25
"""Weight of a new measurement against the earlier ones."""
MAX_SECONDS = 600.0
"""Largest measurement that counts for other jobs."""


@dataclass(slots=True)
class _NamespaceMeans:
    """Mean measurement of each namespace, and the value for jobs without measurements of their own."""

    seconds: float | None = None
    """Lower median over the namespaces with jobs, or over all while too few of these have measurements; None while all
    are too few."""
    _recalled: float | None = None
    _means: dict[str, float] = field(default_factory=dict)

    def recall(self, seconds: float | None) -> None:
        self.seconds = self._recalled = None if seconds is None else min(seconds, MAX_SECONDS)

    def add(self, namespace: str, seconds: float, present: Collection[str]) -> None:
        """Count a measurement; the value changes only with the mean of its namespace."""
        before = self._means.get(namespace)
        mean = _mean(self._recalled if before is None else before, min(seconds, MAX_SECONDS))
        keep(self._means, namespace, mean)
        if mean != before:
            self.settle(present)

    def settle(self, present: Collection[str]) -> None:
        """Compute the value while these namespaces have jobs."""
        means = deciding(self._means, present)
        self.seconds = median_low(means) if means else self._recalled


class CommonRestarts:
    """Start time of pods and save time of workers over the jobs of all namespaces."""

    def __init__(self) -> None:
        self._start, self._save = _NamespaceMeans(), _NamespaceMeans()
        self._jobs: Counter[str] = Counter()
        """Number of jobs by namespace."""

    @property
    def start_seconds(self) -> float | None:
        """Seconds between the opening of a window and the first batch; None if unknown."""
        return self._start.seconds

    @property
    def save_seconds(self) -> float | None:
        """Seconds between the signal to stop and the end; None if unknown."""
        return self._save.seconds

    def recall(self, start_seconds: float | None, save_seconds: float | None) -> None:
        """Begin with what an earlier planner has learned."""
        self._start.recall(start_seconds)
        self._save.recall(save_seconds)

    def of_job(self, namespace: str) -> Restarts:
        """Return the restart cost of a new job, which counts for its namespace."""
        self._jobs[namespace] += 1
        if self._jobs[namespace] == 1:
            self._settle()
        return Restarts(self, namespace)

    def forget_job(self, namespace: str) -> None:
        """Count one job less in a namespace."""
        self._jobs[namespace] -= 1
        if not self._jobs[namespace]:
            del self._jobs[namespace]
            self._settle()

    def _settle(self) -> None:
        for means in (self._start, self._save):
            means.settle(self._jobs)

    def started(self, namespace: str, seconds: float) -> None:
        """Record a start of a worker of the namespace."""
        self._start.add(namespace, seconds, self._jobs)

    def saved(self, namespace: str, seconds: float) -> None:
        """Record a stop of a worker of the namespace."""
        self._save.add(namespace, seconds, self._jobs)


@dataclass(slots=True)
class Restarts:
    """Learned start time of pods and save time of workers of one job."""

    others: CommonRestarts | None = None
    """Restart cost over all jobs, used while no value of this job is known."""
    namespace: str = ""
    start_seconds: float | None = None
    save_seconds: float | None = None
    fixed: bool = False
    """Whether measurements are ignored: in a rollout, pods start exactly as expected."""

    @property
    def seconds(self) -> float:
        """Seconds from the last batch before a preemption to the next one on a free slot; 0 if nothing is known."""
        start = self.start_seconds if self.start_seconds is not None else self.others and self.others.start_seconds
        save = self.save_seconds if self.save_seconds is not None else self.others and self.others.save_seconds
        return (start or 0.0) + (save or 0.0)

    def started(self, seconds: float) -> None:
        """Record that a worker began to train `seconds` after its window had opened on a free slot."""
        if not self.fixed:
            self.start_seconds = _mean(self.start_seconds, seconds)
            if self.others is not None:
                self.others.started(self.namespace, seconds)

    def saved(self, seconds: float) -> None:
        """Record that a worker ended `seconds` after the signal to stop, including the time to save."""
        if not self.fixed:
            self.save_seconds = _mean(self.save_seconds, seconds)
            if self.others is not None:
                self.others.saved(self.namespace, seconds)

    def for_rollout(self) -> Restarts:
        """Return a copy for a rollout, which keeps its values."""
        return Restarts(start_seconds=self.seconds, save_seconds=0.0, fixed=True)


def _mean(mean: float | None, seconds: float) -> float:
    return seconds if mean is None else mean + LEARNING_RATE * (seconds - mean)
