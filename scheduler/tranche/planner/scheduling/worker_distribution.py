"""Worker distribution: policies with `PolicyTraits.allocates_workers` allocate the workers of all jobs together."""

from tranche.planner.context import PlannerContext
from tranche.planner.job_actions import close_window
from tranche.planner.job_queue import JobQueue
from tranche.policies.allocation.draft import competitors, most_units
from tranche.state.entities import JobState


def distribute(context: PlannerContext, queue: JobQueue, now: float) -> None:
    """Distribute the workers on nodes again if jobs, the workers that they can use, or nodes have changed.

    It runs before the candidates of a cycle are served, which get at most the workers that they were granted.
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
            close_window(context, state, run, f"policy {queue.policy.name} gave its worker to other jobs")
    queue.stale.update(dict.fromkeys(cluster.jobs))
    queue.grown.add("")


def _claim(state: JobState, now: float) -> tuple[str, int, int, int]:
    """Return the inputs of a distribution: job, generation, workers that it can use, number of sites with its data.

    None of them may depend on the windows that the distribution itself opens and closes, or it would repeat forever.
    """
    copies = state.copies.values() if state.uploaded_at is not None else ()
    sites = sum(any(at <= now for at in there.values()) for there in copies)
    return (state.job.key, state.job.generation, most_units(state), sites)
