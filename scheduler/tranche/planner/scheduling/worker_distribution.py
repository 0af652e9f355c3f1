"""Policies that distribute all workers at once: who may have how many, and whose workers stop for that."""

from tranche.planner.context import PlannerContext
from tranche.planner.job_actions import close_window
from tranche.planner.job_queue import JobQueue
from tranche.policies.allocation.draft import competitors, most_units
from tranche.state.entities import JobState


def distribute(context: PlannerContext, queue: JobQueue, now: float) -> None:
    """Have the policy distribute the workers on nodes anew if jobs, their rest, or nodes have changed.

    Before the turns of a decision: these give each job at most what it was granted.
    """
    cluster = context.cluster
    sharing = tuple(_claim(state, now) for state in competitors(cluster, now))
    if queue.distributed == (cluster.epoch, sharing):
        return
    queue.distributed = (cluster.epoch, sharing)
    draft = queue.policy.allocate_workers(cluster, now)
    for state in cluster.jobs.values():
        state.granted, state.place = 0, len(draft.jobs)
    for place, state in enumerate(draft.jobs):
        state.granted, state.place = draft.workers(state), place
    for state, run in list(draft.stopped()):
        if not run.closing:
            close_window(context, state, run)
    queue.stale.update(dict.fromkeys(cluster.jobs))
    queue.grown.add("")


def _claim(state: JobState, now: float) -> tuple[str, int, int, int]:
    """What a distribution depends on: the job and its version, workers that it can use, sites with its data.

    Nothing here may depend on the windows that the distribution itself opens and closes: it would never come to rest.
    """
    copies = state.copies.values() if state.uploaded_at is not None else ()
    sites = sum(any(at <= now for at in there.values()) for there in copies)
    return (state.job.key, state.job.generation, most_units(state), sites)
