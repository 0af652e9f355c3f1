"""Counterfactual check of the job that another one waits behind: a rollout without that job must start it earlier.

The job whose end frees the capacity is not necessarily the one that delays this job: without it, the capacity may go to
a third job that keeps it longer. In that case other jobs are tried, and the first one whose absence helps is named.
A quota is verified in the same way: if the job starts no earlier without its limits, the job that it waits behind is
named.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from tranche.model import Quota
from tranche.planner.context import PlannerContext
from tranche.planner.forecast.estimates import SIMULATED_JOBS, Estimate
from tranche.planner.forecast.rollout import PlannerFactory, run_rollout
from tranche.policies import TieredRank
from tranche.state.cluster import ClusterState
from tranche.state.job import Arrival, JobState
from tranche.state.quota_usage import Shortage

MAX_VERIFIED = 20
"""Number of waiting jobs, from the head of the queue, that are verified."""
MAX_TRIED = 6
"""Maximum number of jobs that are left out, one after the other, to verify one estimate."""
MAX_ROLLOUTS = 30
"""Maximum number of rollouts between two forecasts."""
MAX_COPIED = 20_000
"""Maximum number of nodes and jobs that these rollouts copy together: each one copies the whole cluster."""
MIN_SOONER_SECONDS = 1e-6
"""Least time by which a start must be earlier to count, in seconds."""


def rollout_budget(cluster: ClusterState) -> int:
    """Return the maximum number of rollouts between two forecasts: fewer for a larger cluster."""
    return min(MAX_ROLLOUTS, MAX_COPIED // max(1, len(cluster.nodes) + len(cluster.jobs)))


def verify_estimate(
    context: PlannerContext,
    new_planner: PlannerFactory,
    state: JobState,
    estimate: Estimate,
    now: float,
    budget: int,
    short: Sequence[Shortage] = (),
) -> tuple[Estimate, int]:
    """Check with rollouts that the job that `estimate.behind` names, or a quota, delays the waiting job.

    Rollouts without one job each are made until the waiting job starts earlier in one of them; `behind` then names the
    job that was left out. If quotas hold the waiting job back, the first rollout is made without their limits; if it
    starts earlier there, the quotas delay it, and no job is left out.

    Args:
        context: Context of the planner; it is not changed.
        new_planner: Makes the planner that decides in a rollout.
        state: A job that waits behind another, or for a quota.
        estimate: Its estimate from the last forecast.
        now: Clock, in seconds.
        budget: Maximum number of rollouts.
        short: Limits of quotas that the job would exceed now.

    Returns:
        The estimate and the number of rollouts used. `behind` is unchanged if no rollout starts the job earlier;
        `quota_binds` is False if the quotas were tried and do not delay it.
    """
    before = _jobs_before(context, state, now)
    if len(before) == MAX_VERIFIED:
        return estimate, 0
    later = context.queue.waiting()[SIMULATED_JOBS:] if context.queue is not None else []
    key, until = state.job.key, estimate.start - MIN_SOONER_SECONDS
    used = 0
    if short:
        used += 1
        free = run_rollout(
            context, new_planner, later, now, quotas=without_limits(short), until=(key, until)
        ).starts.get(key)
        if free is not None and free.at < until:
            return estimate, used
        estimate = replace(estimate, quota_binds=False)
    for other in islice(_candidates(context, before, state, estimate, now), min(MAX_TRIED, budget - used)):
        used += 1
        start = run_rollout(context, new_planner, later, now, without=other, until=(key, until)).starts.get(key)
        if start is not None and start.at < until:
            return replace(estimate, behind=other), used
    return estimate, used


def without_limits(short: Sequence[Shortage]) -> list[Quota]:
    """Return the quotas without the limits that are short."""
    quotas = {one.quota.key: one.quota for one in short}
    limits = {key: {one.limit for one in short if one.quota.key == key} for key in quotas}
    return [
        replace(quota, limits=tuple(one for one in quota.limits if one not in limits[key]))
        for key, quota in quotas.items()
    ]


def _jobs_before(context: PlannerContext, state: JobState, now: float) -> list[JobState]:
    """Return the first jobs ahead of this one, at most `MAX_VERIFIED`: in the queue, or in the queues of its nodes."""
    if context.queue is not None:
        first = [one for _, one in islice(context.queue.in_order(), MAX_VERIFIED)]
        return [one for one in first if _place(context, one, now) < _place(context, state, now)]
    found: dict[str, JobState] = {}
    for entry in state.entries.values():
        node = context.cluster.nodes.get(entry.home.node or "")
        ahead = (one for one in (node.entries() if node is not None else ()) if one.key < entry.key)
        found |= {one.state.job.key: one.state for one in ahead if one.state is not state}
    return list(found.values())[: MAX_VERIFIED - 1]


def _place(context: PlannerContext, state: JobState, now: float) -> tuple[TieredRank, Arrival]:
    """Return the sort key of the job in the queue."""
    assert context.queue is not None
    return (context.queue.policy.tiered_rank(state, context.cluster, now), state.arrival)


def _candidates(
    context: PlannerContext, before: list[JobState], state: JobState, estimate: Estimate, now: float
) -> Iterator[str]:
    """Yield jobs that may delay it: the one that frees the capacity, then jobs that run there, then jobs ahead."""

    def size(other: JobState) -> tuple[float, str]:
        return (-other.worker_seconds(now) * max(1, other.job.gpus), other.job.key)

    others = [other for other in context.cluster.jobs.values() if other is not state and other.active]
    there = [o for o in others if any(run.home.site == estimate.site for run in o.runs.values() if not run.closing)]
    makes_room = context.cluster.jobs.get(estimate.behind or "")
    yield from dict.fromkeys(
        other.job.key
        for other in ([makes_room] if makes_room is not None else [])
        + sorted(there, key=size)
        + sorted(before, key=size)
    )
