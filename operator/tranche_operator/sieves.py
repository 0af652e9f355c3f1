"""Which events of the watches are news: those that change something that reconcile looks at.

A worker pod sends half a dozen events in its life, and a job one for each write of its status, our own among them; each
costs a read of the job and of all its pods. What slips through is found by the next look at everything.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from tranche_operator.views import OwnedPod, view

_MOMENTS = ("phase", "startTime", "completionTime")
"""Fields of the status that are the operator's own and that its timers go by."""


class Sieve:
    """Remembers of each object what reconcile would see of it."""

    def __init__(self) -> None:
        self._seen: dict[str, object] = {}

    def clear(self) -> None:
        """A watch begins anew: objects may have gone in between."""
        self._seen.clear()

    def is_news_of_job(self, job: Mapping[str, Any], *, gone: bool) -> bool:
        """Whether a TrainingJob has another spec or plan, is another one or is going, or has entered another phase."""
        meta, status = job["metadata"], job.get("status", {})
        plan = status.get("plan", {})
        stamp = (plan.get("term"), plan.get("revision"))
        moments = tuple(status.get(field) for field in _MOMENTS)
        return self._is_new(meta["uid"], gone, (meta.get("generation"), meta.get("deletionTimestamp"), stamp, moments))

    def is_news_of_pod(self, pod: Mapping[str, Any], *, gone: bool) -> bool:
        """Whether a pod looks different to reconcile."""
        return self._is_new(pod["metadata"]["uid"], gone, view(msgspec.convert(pod, OwnedPod)))

    def _is_new(self, uid: str, gone: bool, looks: object) -> bool:
        if gone:
            self._seen.pop(uid, None)
            return True
        before = self._seen.get(uid)
        self._seen[uid] = looks
        return before != looks
