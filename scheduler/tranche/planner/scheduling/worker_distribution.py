"""Worker distribution: policies with `PolicyTraits.allocates_workers` allocate the workers of all jobs together.

What it gave a job is in the job's `status.plan.grant`. A planner that takes over restores it, and distributes again
when its predecessor would have done so (`tranche.state.distribution`).
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import floor

from tranche.model import WorkerGrant
from tranche.planner.context import PlannerContext
from tranche.planner.job_actions import close_window
from tranche.planner.job_queue import JobQueue
from tranche.policies.allocation.draft import Draft, claimed_units, competitors, node_runs
from tranche.state.cluster import ClusterState
from tranche.state.distribution import Distribution, Inputs, mark_of
from tranche.state.job import JobState

PERIOD_TOLERANCE = 1e-9
"""Part of a period by which a timer may come early."""
MIN_GAP = 1e-6
"""Least difference of two places; where it would be smaller, all places are numbered again."""


def distribute(context: PlannerContext, queue: JobQueue, now: float) -> None:
    """Distribute the workers on nodes again if jobs, the workers that they can use, or nodes have changed.

    It runs before the candidates of a cycle are served, which get at most the workers that they were granted.
    """
    cluster, policy = context.cluster, queue.policy
    sharing = tuple(_claim(state, now) for state in competitors(cluster, now))
    inputs = Inputs(cluster.epoch - cluster.trial_changes, _period(context, queue, now), sharing)
    if cluster.distribution.inputs == inputs and not cluster.distribution.is_partial:
        return
    if cluster.distribution.inputs is None and _continues(cluster, repr(policy), inputs):
        return
    before = {key: grant_of(context, state) for key, state in cluster.jobs.items()}
    draft = policy.allocate_workers(cluster, now)
    _apply(cluster, draft)
    cluster.distribution = Distribution(inputs, repr(policy), draft.returned, draft.holders, draft.is_partial)
    if draft.is_partial:
        context.wake(now, "")
    for key, state in cluster.jobs.items():
        if before[key] != grant_of(context, state):
            context.publish(key)
    for state, run in list(draft.stopped()):
        if not run.closing:
            close_window(context, state, run, f"policy {policy.name} gave its worker to other jobs")
    queue.stale.update(dict.fromkeys(cluster.jobs))
    queue.freed_sites.add("")


def _apply(cluster: ClusterState, draft: Draft) -> None:
    """Store the result of a distribution with the jobs."""
    places = new_places([None if state.granted is None else state.place for state in draft.jobs])
    for key, state in cluster.jobs.items():
        state.granted, state.preferred, state.slot_plan = 0, None, draft.plans.get(key)
    for state, place in zip(draft.jobs, places, strict=True):
        state.granted, state.place, state.preferred = draft.workers(state), place, draft.preferred(state)


def new_places(old: Sequence[float | None]) -> list[float]:
    """Return increasing numbers for jobs in a new order, which leave as many as possible unchanged.

    A number that changes is a write of the job's status.

    Args:
        old: Number of each job in the old order, in the new order; None if it had none.
    """
    kept = _increasing(old)
    places: list[float] = []
    for left, right in pairwise((-1, *kept, len(old))):
        between = right - left - 1
        end = old[right] if right < len(old) else None
        if left >= 0:
            start, step = places[-1], 1.0 if end is None else (end - places[-1]) / (between + 1)
        else:
            start, step = -1.0 if end is None else end - between - 1, 1.0
        places += [start + step * (number + 1) for number in range(between)]
        places += [] if end is None else [end]
    if any(b - a < MIN_GAP for a, b in pairwise(places)):
        return [float(number) for number in range(len(old))]
    return places


def _increasing(numbers: Sequence[float | None]) -> list[int]:
    """Return the positions of a longest increasing subsequence."""
    ends: list[float] = []
    """Least end of an increasing subsequence, by its length less one."""
    positions: list[int] = []
    """Position of that end."""
    before: dict[int, int] = {}
    for i, number in enumerate(numbers):
        if number is not None:
            length = bisect_left(ends, number)
            before[i] = positions[length - 1] if length else -1
            ends[length : length + 1], positions[length : length + 1] = [number], [i]
    found, i = [], positions[-1] if positions else -1
    while i >= 0:
        found.append(i)
        i = before[i]
    return found[::-1]


def grant_of(context: PlannerContext, state: JobState) -> WorkerGrant | None:
    """Return what the last distribution gave the job; None without one, and for a job that is not active."""
    policy = context.queue.policy if context.queue is not None else None
    if policy is None or not policy.traits.allocates_workers or state.granted is None or not state.active:
        return None
    seconds = policy.allocation_seconds()
    return WorkerGrant(policy.name, state.granted, state.place, state.preferred, seconds, state.slot_plan)


def restore(context: PlannerContext, state: JobState, grant: WorkerGrant | None) -> None:
    """Restore what the last distribution of an earlier planner with the same policy gave the job.

    Another client may have written it. If it is not what that planner has written, or not all of it was written, the
    mark of the distribution is another one, and workers are distributed again.
    """
    policy = context.queue.policy if context.queue is not None else None
    if policy is None or grant is None or grant.policy != policy.name:
        return
    state.granted, state.place, state.preferred = grant.workers, grant.place, grant.preferred
    if grant.slot_seconds == policy.allocation_seconds():
        state.slot_plan = grant.slot_plan


def _continues(cluster: ClusterState, policy: str, inputs: Inputs) -> bool:
    """Return whether the restored distribution of an earlier planner still holds.

    If a job that held cells has gone since, it has given them back, and other jobs are offered cells again.
    """
    known, jobs = cluster.distribution.inherited, cluster.jobs
    plans = {key: state.slot_plan for key, state in jobs.items() if state.slot_plan is not None}
    holders = frozenset(key for key, plan in plans.items() if plan.last_slot >= (known.period if known else 0))
    latest = max((plan.returned for plan in plans.values()), default=0)
    returned = latest
    if known is not None and known.returned >= latest:
        returned = known.returned + max(0, known.holders - len(holders))
    cluster.distribution = Distribution(None, policy, returned, holders)
    if known is None or known.mark != mark_of(
        policy, inputs, cluster.nodes.values(), cluster.sites.values(), jobs.values()
    ):
        return False
    cluster.distribution = replace(cluster.distribution, inputs=inputs)
    return True


def _period(context: PlannerContext, queue: JobQueue, now: float) -> int:
    """Return the number of the present period, and set the timer for the next one while windows are open on nodes.

    Without open windows nothing would change at that time: room that a waiting job can use is never left to the next
    period.
    """
    seconds = queue.policy.allocation_seconds()
    if not seconds:
        return 0
    period = floor(now / seconds + PERIOD_TOLERANCE)
    end = (period + 1) * seconds
    if context.reviews.period_timer_at < end and any(node_runs(state) for state in context.cluster.jobs.values()):
        context.reviews.period_timer_at = end
        context.wake(end, "")
    return period


def _claim(state: JobState, now: float) -> tuple[str, int, int, int]:
    """Return the inputs of a distribution: job, generation, workers that it can use, number of sites with its data.

    None of them may depend on the windows that the distribution itself opens and closes, or it would repeat forever.
    """
    copies = state.copies.values() if state.uploaded_at is not None else ()
    sites = sum(any(at <= now for at in there.values()) for there in copies)
    return (state.job.key, state.job.generation, claimed_units(state), sites)
