"""Worker distribution: policies with `PolicyTraits.allocates_workers` allocate the workers of all jobs together."""

from math import floor

from tranche.planner.context import PlannerContext
from tranche.planner.job_actions import close_window
from tranche.planner.job_queue import JobQueue
from tranche.policies.allocation.draft import competitors, most_units, node_runs
from tranche.state.entities import JobState

PERIOD_TOLERANCE = 1e-9
"""Part of a period by which a timer may come early."""


def distribute(context: PlannerContext, queue: JobQueue, now: float) -> None:
    """Distribute the workers on nodes again if jobs, the workers that they can use, or nodes have changed.

    It runs before the candidates of a cycle are served, which get at most the workers that they were granted.
    """
    cluster = context.cluster
    sharing = tuple(_claim(state, now) for state in competitors(cluster, now))
    given = (cluster.epoch, _period(context, queue, now), sharing)
    if queue.distributed == given:
        return
    queue.distributed = given
    draft = queue.policy.allocate_workers(cluster, now)
    for state in cluster.jobs.values():
        state.granted, state.place, state.preferred = 0, len(draft.jobs), None
    for place, state in enumerate(draft.jobs):
        state.granted, state.place, state.preferred = draft.workers(state), place, draft.preferred(state)
    for key, plan in draft.plans.items():
        cluster.jobs[key].slot_plan = plan
    for state, run in list(draft.stopped()):
        if not run.closing:
            close_window(context, state, run, f"policy {queue.policy.name} gave its worker to other jobs")
    queue.stale.update(dict.fromkeys(cluster.jobs))
    queue.grown.add("")


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
    if queue.period_end < end and any(node_runs(state) for state in context.cluster.jobs.values()):
        queue.period_end = end
        context.wake(end, "")
    return period


def _claim(state: JobState, now: float) -> tuple[str, int, int, int]:
    """Return the inputs of a distribution: job, generation, workers that it can use, number of sites with its data.

    None of them may depend on the windows that the distribution itself opens and closes, or it would repeat forever.
    """
    copies = state.copies.values() if state.uploaded_at is not None else ()
    sites = sum(any(at <= now for at in there.values()) for there in copies)
    return (state.job.key, state.job.generation, most_units(state), sites)
