"""Check that the preemptor of each eviction starts. Pure, over the history of jobs and pods.

A window that closes names the job that preempts it. Afterwards a worker of that job must start to run, with all
parameter servers of the job; of a gang, all pods that are planned together. A gang has started with its chief, too, if
that succeeds, and a chunked job with a worker that does: simulated pods do not wait for others whose node is silent, or
whose image is missing. A start before the eviction counts if all that was planned for the job after the former plan of
the victim has started: then a fault delayed the write of the victim's plan.

The job is excused if it is suspended, deleted or Failed soon after the eviction, or if it has ended before and the
planner, whose watches a fault interrupts, learns that late. If a fault keeps a job from starting (a missing claim, a
policy), the number of evictions for it has a bound.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from chaos.checks.ledger import own_status, plan_entries, time_of_write
from tranche.kube.api.names import LABEL_ATTEMPT, LABEL_ROLE, ROLE_CHIEF, ROLE_STAGING, ROLE_WORKER
from tranche.planner.job_actions import NO_ROOM, NOT_TAKEN
from tranche_testcluster import Change

_JOBS, _PODS = "tranche.dev/trainingjobs", "pods"
LATE_SECONDS = 30.0
"""Time after which the planner must know of a deletion: longer than a network fault, and than a take-over."""
START_SECONDS = 60.0
"""Time in which a preemptor may be deleted before its pods start: longer than a grace period and the longest fault
that delays a start."""


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
    former: tuple[int, int]
    """Term and revision of the former plan of the victim."""

    @property
    def decision(self) -> tuple[str, int]:
        """Identity of the decision: it stops one window, or all windows of a gang."""
        return self.victim, -self.revision if self.gang else self.attempt


@dataclass(frozen=True, slots=True)
class _Start:
    """Last start of a job."""

    revision: int = 0
    planned: int = 0
    """Last revision at which the plan of the job had a new attempt; it may follow the start."""
    plan: tuple[int, int] = (0, 0)
    """Term and revision of that plan."""
    whole: bool = False
    """Whether pods of all attempts in the plan have run."""

    def is_for(self, eviction: _Eviction, times: Mapping[int, float]) -> bool:
        """Return whether the job has started for an eviction, possibly before the victim's plan could be written."""
        at = eviction.revision
        early = self.planned <= self.revision and times[at] - times.get(self.planned, -inf) <= LATE_SECONDS
        return self.revision >= at or (early and self.whole and eviction.former < self.plan)


@dataclass(slots=True)
class _Beneficiary:
    """Pods and plan of a job at one revision of the history."""

    key: str
    is_gang: bool
    together: dict[int, frozenset[int]] = field(default_factory=dict)
    """All attempts that were open in the first plan of a gang with an attempt, by that attempt."""
    servers: frozenset[int] = frozenset()
    """Attempts of the parameter servers and the chief that are open in the present plan."""
    workers: frozenset[int] = frozenset()
    """Attempts of the workers in the present plan."""
    attempts: set[int] = field(default_factory=set)
    """All attempts that have been planned."""
    ran: dict[int, int] = field(default_factory=dict)
    """Revision at which its pod ran first, by attempt."""
    succeeded: set[int] = field(default_factory=set)
    """Attempts of the chief of a gang, or of workers of a chunked job, that have succeeded."""

    def note_plan(self, plan: Mapping[str, Any]) -> bool:
        """Record which attempts the plan has, and which of them begin together; return whether there are new ones."""
        self.workers = frozenset(entry["attempt"] for entry in plan.get("workers", ()))
        opened = frozenset(entry["attempt"] for entry in plan_entries(plan) if entry["state"] == "Open")
        self.servers = opened - self.workers
        if self.is_gang:
            for attempt in opened:
                self.together.setdefault(attempt, opened)
        known = len(self.attempts)
        self.attempts |= self.workers | opened
        return len(self.attempts) > known

    def start(self, attempt: int, role: str, phase: str, revision: int) -> int | None:
        """Record that a pod runs or has succeeded; return the revision at which the job has started with it, if any."""
        known = attempt in self.ran
        self.ran.setdefault(attempt, revision)
        leads = role == (ROLE_CHIEF if self.is_gang else ROLE_WORKER)
        if leads and phase == "Succeeded" and attempt not in self.succeeded:
            self.succeeded.add(attempt)
            return self.ran[attempt]
        if self.is_gang:
            whole = self.together.get(attempt, frozenset([attempt])) <= self.ran.keys()
        else:
            whole = self.servers <= self.ran.keys() and (role == ROLE_WORKER or bool(self.workers & self.ran.keys()))
        return revision if whole and not known else None


def check_evictions(history: Sequence[Change], bounds: Sequence[Bound] = ()) -> Iterator[str]:
    """Yield evictions for jobs that did not start afterwards, but those that a bound covers."""
    started, needless, times = _starts(history), _needless(history), _times(history)
    for one in evictions(history):
        bounded = any(bound.covers(one.revision) and bound.key == one.job for bound in bounds)
        if not (started.get(one.job, _Start()).is_for(one, times) or bounded or _is_excused(one, needless, times)):
            what = f"attempt {one.attempt} of {one.victim} is evicted for {one.job}, which never started"
            yield f"revision {one.revision}: {what}"


def _is_excused(
    eviction: _Eviction, needless: Mapping[str, list[tuple[int, bool]]], times: Mapping[int, float]
) -> bool:
    """Return whether the preemptor needed no pod shortly before the eviction, or soon after it."""
    revision = eviction.revision
    for at, excuses_earlier in needless.get(eviction.job, ()):
        if at <= revision and times[revision] - times[at] <= LATE_SECONDS:
            return True
        if excuses_earlier and revision < at and times[at] - times[revision] <= START_SECONDS:
            return True
    return False


def _times(history: Sequence[Change]) -> dict[int, float]:
    """Return the time of each revision, which does not decrease."""
    now, times = 0.0, {}
    for change in history:
        now = times[change.revision] = max(now, time_of_write(change.after))
    return times


def _starts(history: Sequence[Change]) -> dict[str, _Start]:
    """Return the last start of each job, by key."""
    started: dict[str, _Start] = {}
    jobs: dict[str, _Beneficiary] = {}
    for change in history:
        if change.after is None:
            continue
        meta = change.after["metadata"]
        if change.resource == _JOBS:
            known = jobs.setdefault(meta["uid"], _Beneficiary(change.key, "data" not in change.after["spec"]))
            plan = own_status(change.after).get("plan", {})
            if known.note_plan(plan):
                before = started.get(change.key, _Start())
                started[change.key] = replace(before, planned=change.revision, plan=_stamp(plan))
        elif change.resource == _PODS and LABEL_ATTEMPT in meta.get("labels", {}):
            owner, role = jobs.get(meta["ownerReferences"][0]["uid"]), meta["labels"][LABEL_ROLE]
            phase = change.after["status"].get("phase")
            if owner is None or role == ROLE_STAGING or phase not in ("Running", "Succeeded"):
                continue
            at = owner.start(int(meta["labels"][LABEL_ATTEMPT]), role, phase, change.revision)
            before = started.get(owner.key, _Start())
            if at is not None and at >= before.revision:
                whole = owner.workers | owner.servers <= owner.ran.keys()
                started[owner.key] = replace(before, revision=at, whole=whole)
    return started


def _needless(history: Sequence[Change]) -> dict[str, list[tuple[int, bool]]]:
    """Return the revisions from which each job needed no pod, and whether that excuses an earlier eviction, by key.

    A job that succeeds after an eviction without a start did not need it.
    """
    needless: dict[str, list[tuple[int, bool]]] = {}
    before: dict[str, bool] = {}
    for change in history:
        if change.resource != _JOBS:
            continue
        now = _needs_no_pod(change.after)
        if now and not before.get(change.key, False):
            has_succeeded = (change.after or {}).get("status", {}).get("phase") == "Succeeded"
            needless.setdefault(change.key, []).append((change.revision, not has_succeeded))
        before[change.key] = now
    return needless


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


def _stamp(plan: Mapping[str, Any]) -> tuple[int, int]:
    """Return term and revision of a plan, which increase with each decision on any job."""
    return plan.get("term", 0), plan.get("revision", 0)


def evictions(history: Sequence[Change]) -> Iterator[_Eviction]:
    """Yield each eviction for a job once, at the first plan that contains it."""
    seen: set[tuple[str, int]] = set()
    plans: dict[str, tuple[int, int]] = {}
    for change in history:
        if change.resource != _JOBS or change.after is None:
            continue
        uid, is_gang = change.after["metadata"]["uid"], "data" not in change.after["spec"]
        former = plans.get(uid, (0, 0))
        plans[uid] = _stamp(own_status(change.after).get("plan", {}))
        for attempt, preemptor, why in _preempted(own_status(change.after)):
            if (uid, attempt) not in seen and not preemptor.startswith("pod/"):
                seen.add((uid, attempt))
                yield _Eviction(
                    change.revision, change.key, attempt, preemptor, "for the quota" in why, is_gang, former
                )


def _preempted(status: Mapping[str, Any]) -> Iterator[tuple[int, str, str]]:
    for entry in (*plan_entries(status.get("plan", {})), *status.get("progress", {}).get("attempts", ())):
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
