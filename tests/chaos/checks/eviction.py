"""Check that the beneficiary of each eviction starts a pod. Pure, over the history of jobs and pods.

A window that closes names the job that preempts it. That job must start a pod afterwards, unless it ends or is deleted
before. If a fault keeps a job from starting (a missing claim, a policy), the number of evictions for it has a bound.
A planner whose watches are interrupted receives the deletion of a job late.
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
"""Number of revisions after which the planner must know of a deletion: more than 10 s, the longest network fault."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Largest number of evictions for one start of a job, between two revisions of the history."""

    job: str
    most: int
    first: int
    last: int
    """Last revision to which the bound applies."""

    @property
    def key(self) -> str:
        """Key of the job, ``namespace/name``."""
        return f"default/{self.job}"

    def covers(self, revision: int) -> bool:
        """Return whether the bound applies to the revision."""
        return self.first <= revision <= self.last


@dataclass(frozen=True, slots=True)
class _Eviction:
    revision: int
    victim: str
    attempt: int
    job: str
    """Key of the job that benefits, ``namespace/name``."""
    for_quota: bool
    """Whether the eviction frees an amount of a quota."""
    gang: bool
    """Whether the victim is a gang."""

    @property
    def decision(self) -> tuple[str, int]:
        """Identity of the decision: it stops one window, or all windows of a gang."""
        return self.victim, -self.revision if self.gang else self.attempt


def check_evictions(history: Sequence[Change]) -> Iterator[str]:
    """Yield evictions for jobs of which no pod ran at that time or later."""
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
    """Yield jobs for which there were more evictions than a fault allows.

    The members of a gang stop together, so they count once. Evictions for a quota do not count: if a quota is lowered
    below its usage, pods must stop before it admits another one. A job may preempt again if it loses the resources
    that it got, for example because a node is drained.
    """
    found = list(evictions(history))
    for bound in bounds:
        counted = [e for e in found if _counts(bound, e)]
        decisions, most = len({e.decision for e in counted}), bound.most * (1 + _displacements(history, bound))
        if decisions > most:
            victims = [f"{e.victim} attempt {e.attempt}" for e in counted]
            yield f"{decisions} evictions, at most {most}, for {bound.job}, which cannot start: {victims}"


def evictions(history: Sequence[Change]) -> Iterator[_Eviction]:
    """Yield each eviction for a job once, at the first plan that contains it."""
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
    """Return whether the job was deleted, has ended, or was suspended by its user."""
    if job is None:
        return True
    over = job.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return over or bool(job["spec"].get("suspend")) or "deletionTimestamp" in job["metadata"]


def _counts(bound: Bound, eviction: _Eviction) -> bool:
    return bound.covers(eviction.revision) and eviction.job == bound.key and not eviction.for_quota


def _displacements(history: Sequence[Change], bound: Bound) -> int:
    """Return the number of windows of the job that lost their resources before their worker started."""
    own = (one for one in history if (one.resource, one.key) == (_JOBS, bound.key) and bound.covers(one.revision))
    states = (change.after for change in own if change.after)
    attempts = (one for state in states for one in own_status(state).get("progress", {}).get("attempts", ()))
    return len({one["attempt"] for one in attempts if one.get("why", "").endswith((NO_ROOM, NOT_TAKEN))})
