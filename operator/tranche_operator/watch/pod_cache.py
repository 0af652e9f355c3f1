"""Cache of the pods of jobs, from the watch, from responses to the operator's own requests, and from lists.

Listing a job's pods for each reconcile would make the API server scan every pod of the namespace. A stale cache is
safe: creating an existing pod fails with 409, and deletes carry a UID precondition. A counted pod left the plan before
it was deleted; since the job is read after its pods were looked up here, its plan does not ask for that pod again.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from tranche_operator.reconcile.observed import PodView

GONE_SECONDS = 600.0
"""Time during which a late response cannot restore a deleted pod."""


@dataclass(slots=True)
class _Known:
    key: str
    pod: PodView
    at: float


@dataclass(slots=True)
class PodCache:
    """Cache of pods by the key of their job."""

    clock: Callable[[], float] = time.monotonic
    complete: bool = False
    """Whether a list of all pods has been stored; before that, a pod that is missing here may exist."""
    _pods: dict[str, _Known] = field(default_factory=dict)
    """Pods by UID."""
    _jobs: dict[str, dict[str, _Known]] = field(default_factory=dict)
    """Pods by job key, then UID."""
    _gone: dict[str, float] = field(default_factory=dict)
    """Time of deletion by UID, in that order."""

    def of(self, key: str) -> tuple[PodView, ...]:
        """Return the pods with the label of this job."""
        return tuple(known.pod for known in self._jobs.get(key, {}).values())

    def __iter__(self) -> Iterator[PodView]:
        """Yield all pods."""
        return (known.pod for known in self._pods.values())

    def note(self, key: str, pod: PodView, *, watched: bool = False) -> bool:
        """Store the state of a pod, and return whether it is newer and differs in a field that `reconcile` reads.

        A watch event about a deleted pod is valid, since the pod has its label again; a response may only be late.
        """
        before = self._pods.get(pod.uid)
        if watched:
            self._gone.pop(pod.uid, None)
        if pod.uid in self._gone or (before is not None and before.pod.version >= pod.version):
            return False
        self._put(key, pod)
        return before is None or before.key != key or before.pod != pod

    def expect_end(self, uid: str) -> None:
        """Mark a pod as terminating, because the API server accepted its deletion and the watch event comes later."""
        known = self._pods.get(uid)
        if known is not None:
            known.pod = replace(known.pod, terminating=True)

    def drop(self, uid: str) -> bool:
        """Remove a pod that is gone or has lost its label. Returns True: such an event is always relevant."""
        self._gone.pop(uid, None)
        self._gone[uid] = self.clock()
        self._remove(uid)
        return True

    def sync(self, listed: Iterable[tuple[str, PodView]], began: float) -> None:
        """Store a list of all pods, and remove pods that it does not contain.

        Args:
            listed: Job keys and pods.
            began: Time of the list request on `clock`; pods stored since then are newer.
        """
        now = self.clock()
        while self._gone and next(iter(self._gone.values())) < now - GONE_SECONDS:
            self._gone.pop(next(iter(self._gone)))
        seen = set()
        for key, pod in listed:
            seen.add(pod.uid)
            before = self._pods.get(pod.uid)
            if self._gone.get(pod.uid, float("-inf")) < began and (before is None or before.at <= began):
                self._put(key, pod)
        for uid in [uid for uid, known in self._pods.items() if known.at <= began and uid not in seen]:
            self._remove(uid)
        self.complete = True

    def _put(self, key: str, pod: PodView) -> None:
        self._remove(pod.uid)
        known = _Known(key, pod, self.clock())
        self._pods[pod.uid] = self._jobs.setdefault(key, {})[pod.uid] = known

    def _remove(self, uid: str) -> None:
        known = self._pods.pop(uid, None)
        if known is not None:
            of_job = self._jobs[known.key]
            del of_job[uid]
            if not of_job:
                del self._jobs[known.key]
