"""Which events of the jobs' watch are news: those that change something that reconcile looks at.

A job sends one for each write of its status, our own among them, and each costs a read of the job. What slips through
is found by the next look at everything. (Which events of pods are news: `tranche_operator.stores`.)
"""

from collections.abc import Mapping
from typing import Any

_MOMENTS = ("phase", "startTime", "completionTime")
"""Fields of the status that are the operator's own and that its timers go by."""


class JobEventFilter:
    """Remembers of each job what reconcile would see of it."""

    def __init__(self) -> None:
        self._seen: dict[str, object] = {}

    def clear(self) -> None:
        """A watch begins anew: objects may have gone in between."""
        self._seen.clear()

    def is_relevant(self, job: Mapping[str, Any], *, gone: bool) -> bool:
        """Whether a TrainingJob has another spec or plan, is another one or is going, or has entered another phase."""
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
