"""Incremental job counts by phase; reading them does not iterate over all jobs."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable

from tranche.kube.api.resources import TrainingJob

WAITING = "Waiting"


class JobCounts:
    """Job counts, updated from the changes of one watch. Times are in seconds since the epoch."""

    def __init__(self, jobs: Iterable[TrainingJob] = ()) -> None:
        self.phases: Counter[str] = Counter()
        self.waiting: dict[str, tuple[float | None, float | None]] = {}
        """Creation time and planned start of each waiting job, by key."""
        self._phase_of: dict[str, str] = {}
        for job in jobs:
            self.note(job.key, None, job)

    def note(self, key: str, old: TrainingJob | None, new: TrainingJob | None) -> None:
        """Update the counts for a changed job."""
        before = self._phase_of.pop(key, None)
        if before is not None:
            self.phases[before] -= 1
            self.waiting.pop(key, None)
        if new is None:
            return
        phase = self._phase_of[key] = new.status.phase or WAITING
        self.phases[phase] += 1
        if phase == WAITING:
            created = new.metadata.creation_timestamp
            start = new.status.plan.estimated_start if new.status.plan is not None else None
            self.waiting[key] = (created.timestamp() if created else None, start.timestamp() if start else None)

    def planned(self, moments: Iterable[float]) -> tuple[int, list[int]]:
        """Count the waiting jobs with a planned start, in total and until each of these times."""
        starts = sorted(start for _, start in self.waiting.values() if start is not None)
        return len(starts), [bisect_right(starts, moment) for moment in moments]

    def oldest(self) -> float | None:
        """Return the creation time of the oldest waiting job; None if no job waits."""
        return min((created for created, _ in self.waiting.values() if created is not None), default=None)
