"""Chunk splitting: a lagging worker saves, and faster idle slots take over the rest of its chunks.

Source: after the abstract of a paper on straggler-aware distributed learning (arXiv 2004.04948, recalled), in which the
partial work of slow workers counts; the rule is ours [I]. A chunk is split in time: its first part is trained by the
worker that lags, and the rest by another one, because a chunk is in at most one window. So the work of a job's last
window moves to where it ends sooner, and the chunks of several are spread over all idle slots.
"""

from math import inf

from tranche.planner.context import PlannerContext
from tranche.planner.job_actions import close_window
from tranche.planner.job_queue import JobQueue
from tranche.planner.scheduling.placement import free_hosts
from tranche.planner.unplaced_pods import preempts_any
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.node import NodeState
from tranche.state.placement_record import PreemptionScope
from tranche.state.remaining_work import WindowRest, by_service, rest_of
from tranche.state.window import TrackedWindow

MIN_TRAINED_SECONDS = 30.0
"""Least time of training before a window is split. The queue gives the rest to any site with its data and a free GPU,
perhaps to the same GPU: without a least time, the window would be split again at the same instant."""
REASON = "the rest of its chunks ends sooner on another node"


def split_lagging(context: PlannerContext, queue: JobQueue, now: float) -> None:
    """Close windows that lag behind what an idle slot would need for their rest; call it after the queue was served.

    The policy's `split_factor` is positive. Jobs are served in order of rank. A slot is idle if no waiting job could
    take it, and serves one window.
    """
    cluster, factor = context.cluster, queue.policy.split_factor()
    if not cluster.free.gpus_at(""):
        return
    lagging = [
        state for state in queue.engaged.values() if may_split(state) and preempts_any(cluster, queue.policy, state)
    ]
    taken: set[str] = set()
    for state in sorted(lagging, key=lambda one: (queue.policy.tiered_rank(one, cluster, now), one.arrival)):
        training = [run for run in state.runs.values() if not run.ending and has_trained(run, now)]
        rests = [(rest_of(state, run, now), run) for run in training]
        for rest, run in sorted(rests, key=lambda item: (-item[0].seconds, item[1].window.index)):
            idle = [node for node in free_hosts(cluster, state, "", now) if node.node.name not in taken]
            elsewhere = {node.node.name: _seconds_on(cluster, state, run, rest, node, now) for node in idle}
            best = min(elsewhere, key=lambda name: (elsewhere[name], name), default="")
            if best and rest.seconds > factor * elsewhere[best]:
                taken.add(best)
                if not stop_to_move(context, state, run, REASON):
                    break


def may_split(state: JobState) -> bool:
    """Return whether the job has no chunk left to start, and its workers may be stopped at any time."""
    return state.active and state.stoppable and not (state.job.is_gang or state.unassigned or by_service(state))


def stop_to_move(context: PlannerContext, state: JobState, run: TrackedWindow, why: str) -> bool:
    """Stop a worker so that its chunks can train elsewhere; return whether the job may stop another worker now.

    It counts as a preemption that the job makes for itself, so it must succeed before the next one.
    """
    state.placement.preempted_at = context.now
    close_window(context, state, run, why)
    return context.cluster.preemption_scope(state) is PreemptionScope.ALL


def has_trained(run: TrackedWindow, now: float) -> bool:
    """Return whether the worker has trained for at least `MIN_TRAINED_SECONDS`."""
    return run.started is not None and now - run.started >= MIN_TRAINED_SECONDS


def _seconds_on(
    cluster: ClusterState, state: JobState, run: TrackedWindow, rest: WindowRest, node: NodeState, now: float
) -> float:
    """Return the time that the rest of the window would take on an idle node, with the restart; inf if it cannot."""
    place = node.node
    if place.name == run.home.node or not node.has_room(state.job.worker.requests):
        return inf
    if not all(_has_data(state, chunk, place.site, now) for chunk in run.window.chunks):
        return inf
    return state.restart_seconds + rest.batches * cluster.batch_seconds(state, place.site, node=place.name)


def _has_data(state: JobState, chunk: int, site: str, now: float) -> bool:
    """Return whether the data of a chunk are at the site."""
    job = state.job
    if job.data_site is None or job.data_site == site or not job.chunk_bytes:
        return True
    return state.copies.get(site, {}).get(chunk, inf) <= now
