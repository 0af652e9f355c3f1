"""The pods of jobs as this process knows them: from the watch, from what the API server answered it, from lists.

To list a job's pods anew for each reconcile costs the API server a look at every pod of the namespace. What is known
may be older than what is: that is why a job itself is read afresh, after its pods were looked up here. A pod that was
counted, and is gone, has left its job's plan before, so that plan does not ask for it again; what exists already is
refused by its name, and what is another one meanwhile by its UID.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from tranche_operator.observations import PodView

GONE_SECONDS = 600.0
"""So long an answer from before its end cannot bring a pod back."""


@dataclass(slots=True)
class _Known:
    key: str
    pod: PodView
    at: float


@dataclass(slots=True)
class PodCache:
    """Pods by the key of their job."""

    clock: Callable[[], float] = time.monotonic
    complete: bool = False
    """Whether a list of all pods was taken in; before, what is missing here need not be missing."""
    _pods: dict[str, _Known] = field(default_factory=dict)
    """By UID."""
    _jobs: dict[str, dict[str, _Known]] = field(default_factory=dict)
    """The same by job, then UID."""
    _gone: dict[str, float] = field(default_factory=dict)
    """UIDs and since when, in that order."""

    def of(self, key: str) -> tuple[PodView, ...]:
        """The pods that carry the label of this job."""
        return tuple(known.pod for known in self._jobs.get(key, {}).values())

    def note(self, key: str, pod: PodView, *, watched: bool = False) -> bool:
        """Take in what a pod looked like; returns whether that is news: newer, and different to reconcile.

        What the watch tells of a pod that was gone is true, it has its label again; an answer may only be late.
        """
        before = self._pods.get(pod.uid)
        if watched:
            self._gone.pop(pod.uid, None)
        if pod.uid in self._gone or (before is not None and before.pod.version >= pod.version):
            return False
        self._put(key, pod)
        return before is None or before.key != key or before.pod != pod

    def expect_end(self, uid: str) -> None:
        """The API server has agreed to end a pod; the watch tells of it a moment later."""
        known = self._pods.get(uid)
        if known is not None:
            known.pod = replace(known.pod, terminating=True)

    def drop(self, uid: str) -> bool:
        """The watch says that a pod is gone, or has lost the label; returns whether that is news, as it always is."""
        self._gone.pop(uid, None)
        self._gone[uid] = self.clock()
        self._remove(uid)
        return True

    def sync(self, listed: Iterable[tuple[str, PodView]], began: float) -> None:
        """Take in a list of all pods, and forget what it lacks.

        Args:
            listed: Job keys and pods.
            began: When the list was asked for, on `clock`: what was noted since is newer.
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
