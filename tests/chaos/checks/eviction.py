"""Check that the beneficiary of each eviction starts a pod. Pure, over the history of jobs and pods.

A window that closes names the job that preempts it. That job has to start a pod afterwards, unless it ends or is
deleted before; and a job that cannot start, because of a missing claim or a policy, may cost no more than its bound.
A planner whose watches are cut learns late that a job was deleted.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chaos.checks.ledger import own_status
from tranche.kube.api.names import LABEL_ATTEMPT, LABEL_JOB
from tranche.planner.job_actions import NO_ROOM, NOT_TAKEN
from tranche_testcluster import Change

_JOBS, _PODS = "tranche.dev/trainingjobs", "pods"
LATE_REVISIONS = 300
"""Revisions within which the planner learns that a job was deleted: those of 10 s, the longest fault of a network."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Most evictions for a start of a job within a part of the history."""

    job: str
    most: int
    first: int
    last: int
    """Revisions."""

    @property
    def key(self) -> str:
        """Key of the job, ``namespace/name``."""
        return f"default/{self.job}"

    def covers(self, revision: int) -> bool:
        """Return whether the revision is in that part."""
        return self.first <= revision <= self.last


@dataclass(frozen=True, slots=True)
class _Eviction:
    revision: int
    victim: str
    attempt: int
    job: str
    """The beneficiary, ``namespace/name``."""
    for_quota: bool
    """Whether it makes room in a quota."""
    gang: bool
    """Whether the victim is a gang."""

    @property
    def decision(self) -> tuple[str, int]:
        """Identify what was stopped by one decision: a window, or a whole gang."""
        return self.victim, -self.revision if self.gang else self.attempt


def check_evictions(history: Sequence[Change]) -> Iterator[str]:
    """Yield evictions for jobs that were waiting, and of which no pod ran at that time or later."""
    ran: dict[str, int] = {}
    excused: dict[str, int] = {}
    for change in history:
        if change.resource == _PODS and change.after is not None:
            meta = change.after["metadata"]
            if LABEL_ATTEMPT in meta.get("labels", {}) and change.after["status"].get("phase") == "Running":
                ran[f"{meta['namespace']}/{meta['labels'][LABEL_JOB]}"] = change.revision
        elif change.resource == _JOBS and _needs_no_pod(change.after):
            excused[change.key] = change.revision + LATE_REVISIONS
    for one in evictions(history):
        if max(ran.get(one.job, 0), excused.get(one.job, 0)) < one.revision:
            what = f"attempt {one.attempt} of {one.victim} is evicted for {one.job}, which never started"
            yield f"revision {one.revision}: {what}"


def check_bounds(history: Sequence[Change], bounds: Sequence[Bound]) -> Iterator[str]:
    """Yield jobs for which more was evicted than a fault allows.

    The members of a gang stop together, so that they count once. A quota that was lowered below its use admits no pod
    before as many have stopped, so that evictions for a quota do not count. A job may preempt again if the room that it
    got is taken, as by a pod that does not stop or with a node that is drained.
    """
    found = list(evictions(history))
    for bound in bounds:
        counted = [e for e in found if _counts(bound, e)]
        decisions, most = len({e.decision for e in counted}), bound.most * (1 + _displacements(history, bound))
        if decisions > most:
            victims = [f"{e.victim} attempt {e.attempt}" for e in counted]
            yield f"{decisions} evictions, at most {most}, for {bound.job}, which cannot start: {victims}"


def evictions(history: Sequence[Change]) -> Iterator[_Eviction]:
    """Yield each eviction for a job once, at the first plan that has it."""
    seen: set[tuple[str, int]] = set()
    for change in history:
        if change.resource != _JOBS or change.after is None:
            continue
        uid, is_gang = change.after["metadata"]["uid"], "data" not in change.after["spec"]
        for attempt, preemptor, why in _preempted(own_status(change.after)):
            if (uid, attempt) not in seen and not preemptor.startswith("pod/"):
                seen.add((uid, attempt))
                yield _Eviction(change.revision, change.key, attempt, preemptor, "for the quota" in why, is_gang)


def _preempted(status: Mapping[str, Any]) -> Iterator[tuple[int, str, str]]:
    plan = status.get("plan", {})
    planned = [*plan.get("workers", ()), *plan.get("parameterServers", ()), *filter(None, [plan.get("chief")])]
    for entry in (*planned, *status.get("progress", {}).get("attempts", ())):
        if entry.get("preemptedBy"):
            yield entry["attempt"], entry["preemptedBy"], entry.get("why", "")


def _needs_no_pod(job: Mapping[str, Any] | None) -> bool:
    """Whether the job is gone, over, or suspended by its user."""
    if job is None:
        return True
    over = job.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return over or bool(job["spec"].get("suspend")) or "deletionTimestamp" in job["metadata"]


def _counts(bound: Bound, eviction: _Eviction) -> bool:
    return bound.covers(eviction.revision) and eviction.job == bound.key and not eviction.for_quota


def _displacements(history: Sequence[Change], bound: Bound) -> int:
    """Return the number of windows of the job that lost their room before their worker started."""
    own = (one for one in history if (one.resource, one.key) == (_JOBS, bound.key) and bound.covers(one.revision))
    states = (change.after for change in own if change.after)
    attempts = (one for state in states for one in own_status(state).get("progress", {}).get("attempts", ()))
    return len({one["attempt"] for one in attempts if one.get("why", "").endswith((NO_ROOM, NOT_TAKEN))})
