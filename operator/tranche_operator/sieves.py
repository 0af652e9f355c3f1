"""Filter of the jobs' watch events: only those that change an input of `reconcile` are relevant.

Every write to a job's status, also by the operator itself, causes an event, and each relevant event costs a read of the
job. The next resync finds what the filter misses. (`tranche_operator.stores` filters the events of pods.)
"""

from collections.abc import Mapping
from typing import Any

_MOMENTS = ("phase", "startTime", "completionTime")
"""Fields of the status that the operator writes and that its timers depend on."""


class JobEventFilter:
    """Event predicate that keeps, for each job, the fields that `reconcile` reads."""

    def __init__(self) -> None:
        self._seen: dict[str, object] = {}

    def clear(self) -> None:
        """Forget all jobs: the watch restarts, and jobs may have been deleted in between."""
        self._seen.clear()

    def is_relevant(self, job: Mapping[str, Any], *, gone: bool) -> bool:
        """Return whether a TrainingJob is new, being deleted or deleted, or has another spec, plan or phase."""
        meta, status = job["metadata"], job.get("status", {})
        plan = status.get("plan", {})
        stamp = (plan.get("term"), plan.get("revision"))
        moments = tuple(status.get(field) for field in _MOMENTS)
        looks = (meta.get("generation"), meta.get("deletionTimestamp"), stamp, moments)
        if gone:
            self._seen.pop(meta["uid"], None)
            return True
        before = self._seen.get(meta["uid"])
        self._seen[meta["uid"]] = looks
        return before != looks
