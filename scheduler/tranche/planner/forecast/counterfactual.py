"""Whether a job would start earlier without the one that it is said to wait behind: it is rehearsed without that one.

Whoever makes the room for a job need not be what keeps it waiting: without that one, the room may go to a third job
that keeps it longer. So others are tried then, and the first whose absence helps is named.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from tranche.planner.context import PlannerContext
from tranche.planner.forecast.estimates import SIMULATED_JOBS, Estimate
from tranche.planner.forecast.rollout import PlannerFactory, run_rollout
from tranche.policies import Standing
from tranche.state.cluster import ClusterState
from tranche.state.entities import Arrival, JobState

FIRST = 20
"""Waiting jobs, from the first, about which it is made sure."""
TRIED = 6
"""Jobs at most that are left out, one after the other."""
MAX_ROLLOUTS = 30
"""At most, between two forecasts."""
COPIED = 20_000
"""Nodes and jobs that are copied for them at most: a rollout takes time in proportion to the cluster."""
SOONER = 1e-6
"""Seconds by which a start must be earlier to count."""


def affordable(cluster: ClusterState) -> int:
    """Rollouts between two forecasts."""
    return min(MAX_ROLLOUTS, COPIED // max(1, len(cluster.nodes) + len(cluster.jobs)))


def verified(
    context: PlannerContext,
    new_planner: PlannerFactory,
    state: JobState,
    estimate: Estimate,
    now: float,
    budget: int,
) -> tuple[Estimate, int]:
    """The estimate, behind a job without which this one starts earlier, if any of those that are tried is such.

    Args:
        context: Of the planner, whose policy has one queue; it is left as it is.
        new_planner: Makes the planner that decides in a rollout.
        state: A job that waits behind another.
        estimate: Of the last forecast.
        now: Clock, in seconds.
        budget: rollouts at most.

    Returns:
        The estimate, and how many rollouts it took.
    """
    assert context.queue is not None
    first = [one for _, one in islice(context.queue.in_order(), FIRST)]
    before = [one for one in first if _place(context, one, now) < _place(context, state, now)]
    if len(before) == FIRST:
        return estimate, 0
    later = context.queue.waiting()[SIMULATED_JOBS:]
    key, until = state.job.key, estimate.start - SOONER
    used = 0
    for other in islice(_candidates(context, before, state, estimate, now), min(TRIED, budget)):
        used += 1
        start = run_rollout(context, new_planner, later, now, without=other, until=(key, until)).starts.get(key)
        if start is not None and start.at < until:
            return replace(estimate, behind=other), used
    return estimate, used


def _place(context: PlannerContext, state: JobState, now: float) -> tuple[Standing, Arrival]:
    """The smaller comes first."""
    assert context.queue is not None
    return (context.queue.policy.standing(state, context.cluster, now), state.arrival)


def _candidates(
    context: PlannerContext, before: list[JobState], state: JobState, estimate: Estimate, now: float
) -> Iterator[str]:
    """Who may stand in the way: whoever makes the room, who runs there, who waits before it; the largest first."""

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
