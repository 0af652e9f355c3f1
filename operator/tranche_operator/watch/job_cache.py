"""Cache of TrainingJobs, from the watch and from responses to the operator's own status writes.

It saves a read of the job for each reconcile that writes nothing but the job's status. Such a write carries the
resourceVersion of the job as it was read here, so that the API server rejects it if the job has changed since. It also
saves the read before the first pods of a job while the watch is current. Any other reconcile that acts on pods reads
the job from the API server first (decision 14).
"""

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from tranche.kube.api.resources import TrainingJob

CURRENT_SECONDS = 1.0
"""Time after an event of any job during which the watch counts as current."""

GONE_SECONDS = 600.0
"""Time during which a late response cannot restore a deleted job."""


class JobCache:
    """Last known version of each job, by key."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._jobs: dict[str, Mapping[str, Any] | TrainingJob] = {}
        """Jobs as JSON until they are needed."""
        self._last_event_at = float("-inf")
        """Time of the last event of the watch, on the monotonic clock."""
        self._gone: dict[str, float] = {}
        """Time of deletion by UID, in that order."""

    def note_watch_event(self, now: float) -> None:
        """Record that the watch has delivered an event."""
        self._last_event_at = now

    def is_current(self, now: float) -> bool:
        """Return whether the watch has just delivered an event, so that it does not hang."""
        return now - self._last_event_at <= CURRENT_SECONDS

    def note(self, key: str, raw: Mapping[str, Any]) -> None:
        """Store a job, unless a later version of it is known, or its deletion."""
        if raw["metadata"].get("uid") in self._gone:
            return
        known = self._jobs.get(key)
        if known is None or _version(known) <= _version(raw):
            self._jobs[key] = raw

    def has_newer(self, key: str, version: str) -> bool:
        """Return whether a later version of a job than this resourceVersion is known."""
        known = self._jobs.get(key)
        return known is not None and _version(known) > int(version or 0)

    def drop(self, key: str) -> None:
        """Forget a job that is gone, or that has changed since it was stored."""
        self._jobs.pop(key, None)

    def note_deletion(self, key: str, uid: str) -> None:
        """Forget a job that the watch reports as deleted. A list that was requested before may still contain it."""
        now = self._clock()
        while self._gone and next(iter(self._gone.values())) < now - GONE_SECONDS:
            self._gone.pop(next(iter(self._gone)))
        self._gone[uid] = now
        self.drop(key)

    def keep(self, keys: Collection[str]) -> None:
        """Forget all jobs but these, which a list has returned."""
        self._jobs = {key: job for key, job in self._jobs.items() if key in keys}

    def clear(self) -> None:
        """Forget all jobs: events may have been missed."""
        self._jobs.clear()
        self._last_event_at = float("-inf")

    def get(self, key: str) -> TrainingJob | None:
        """Return a job, or None if it is not known here.

        Raises:
            ValueError: if it cannot be decoded.
        """
        known = self._jobs.get(key)
        if known is None or isinstance(known, TrainingJob):
            return known
        job = self._jobs[key] = TrainingJob.model_validate(known)
        return job


def _version(job: Mapping[str, Any] | TrainingJob) -> int:
    metadata = job.metadata.resource_version if isinstance(job, TrainingJob) else job["metadata"]["resourceVersion"]
    return int(metadata or 0)
