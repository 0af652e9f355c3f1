"""Moves to faster GPUs: the rest of a worker's chunks goes to an idle GPU of a faster kind, with its data.

Source: ours [I] (decision 26). A chunk takes the GPUs that are free where its data are, and where GPU kinds differ,
this may be a slow one. Once no chunk of its job waits and a faster GPU is idle, the worker saves and stops if its rest
takes more than a factor times as long as it takes on the faster GPU, with the transfer of data that are not there, the
restart included. Data that are not there are sent first, and the worker trains meanwhile: it stops only when they have
arrived and a fast GPU is still idle. Only declared and learned speeds count, not that a window takes longer than
predicted: nothing says that it would take less time elsewhere. Workers of a job whose stopped workers have lost their
work are left alone.
"""

from collections import Counter
from collections.abc import Iterator
from math import fsum, inf
from typing import NamedTuple

from tranche.planner.context import PlannerContext
from tranche.planner.data_staging import is_given_up
from tranche.planner.job_queue import JobQueue
from tranche.planner.scheduling.chunk_split import MIN_TRAINED_SECONDS, has_trained, may_split, stop_to_move
from tranche.planner.scheduling.data_replication import copy
from tranche.planner.scheduling.gpu_choice import has_kinds, nodes_to_start_on
from tranche.planner.scheduling.placement import free_hosts
from tranche.planner.unplaced_pods import preempts_any
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.node import NodeState
from tranche.state.remaining_work import rest_of
from tranche.state.window import TrackedWindow

REASON = "the rest of its chunks ends sooner on a faster GPU"
MAX_LOST_FRACTION = 0.1
"""Fraction of its trained mini-batches that a job may have lost: a move would lose what stopped workers have lost."""
PAUSE_SECONDS = 0.001
"""Least time between two reviews, per job that has windows or waits. A review takes less than a tenth of that time."""
Taken = Counter[str]
"""Number of idle GPUs that are reserved in this review, by node."""


class _Move(NamedTuple):
    """A possible move of a worker."""

    seconds: float
    """Time until its rest would be complete, with transfer and restart."""
    node: str
    site: str
    missing: list[int]
    """Chunks of the window whose data are not at the site."""


def move_to_faster(context: PlannerContext, queue: JobQueue, now: float) -> None:
    """Stop workers whose rest ends sooner on idle GPUs of a faster kind, or send their data there.

    Call it after the queue was served: a GPU is idle if no waiting job could take it. The policy's `faster_factor` is
    positive. Jobs are reviewed in order of rank, and of a job the windows with the longest rest first. A review takes
    longer with more jobs, and is then made less often.
    """
    cluster, policy, reviews = context.cluster, queue.policy, context.reviews
    if not queue.engaged:  # without the index of free nodes, which each node of a restored cluster would build again
        reviews.moves_reviewed, reviews.moves_timer_set = now, False
        return
    if not cluster.free.gpus_at(""):
        return
    due = reviews.moves_reviewed + PAUSE_SECONDS * len(queue.engaged)
    if now < due:
        if not reviews.moves_timer_set:
            reviews.moves_timer_set = True
            context.wake(due, "")
        return
    reviews.moves_reviewed, reviews.moves_timer_set = now, False
    kinds = cluster.free.kinds()
    movable = [
        state
        for state in queue.engaged.values()
        if _may_move(cluster, state, kinds, policy.faster_factor()) and preempts_any(cluster, policy, state)
    ]
    taken = Taken()
    for state in sorted(movable, key=lambda one: (policy.tiered_rank(one, cluster, now), one.arrival)):
        _review(context, queue, state, taken, now)


def _review(context: PlannerContext, queue: JobQueue, state: JobState, taken: Taken, now: float) -> None:
    """Move the workers of one job."""
    cluster, factor = context.cluster, queue.policy.faster_factor()
    started = [run for run in state.runs.values() if not run.ending and run.started is not None]
    training = [run for run in started if has_trained(run, now)]
    for since in {run.started for run in started if run not in training and run.started is not None}:
        context.wake(since + MIN_TRAINED_SECONDS, state.job.key)
    batches = {run.window.index: rest_of(state, run, now).batches for run in training}
    here = {
        run.window.index: batches[run.window.index]
        * cluster.batch_seconds(state, run.home.site, node=run.home.node or None)
        for run in training
    }
    idle = [
        (node, cluster.batch_seconds(state, node.node.site, node=node.node.name))
        for node in (free_hosts(cluster, state, "", now) if training else ())
        if node.has_room(state.job.worker.requests)
    ]
    for run in sorted(training, key=lambda one: (-here[one.window.index], one.window.index)):
        index = run.window.index
        # A move to another node is not worthwhile even if the data are in place there.
        useful = [one for one in idle if here[index] > factor * (state.restart_seconds + batches[index] * one[1])]
        moves = _moves(cluster, state, run, batches[index], useful, taken, now)
        best = min(moves, key=lambda move: (move.seconds, move.node), default=None)
        if best is None or here[index] <= factor * best.seconds or not _would_start(cluster, state, run, best, now):
            continue
        taken[best.node] += state.job.gpus
        if not best.missing:
            if not stop_to_move(context, state, run, REASON):
                return
        elif unsent := [chunk for chunk in best.missing if chunk not in state.copies.get(best.site, {})]:
            copy(context, queue, state, unsent, best.site, now)


def _may_move(cluster: ClusterState, state: JobState, kinds: set[tuple[str, float]], factor: float) -> bool:
    """Return whether a worker of the job may be moved to an idle GPU that is faster by more than the factor."""
    if not (may_split(state) and _keeps_work(state) and has_kinds(cluster, state)):
        return False
    job = state.job
    nodes = {run.home.node for run in state.runs.values()}
    held = [one.node for name in nodes if name is not None and (one := cluster.nodes.get(name)) is not None]
    slowest = min((job.speed_on(node.gpu_kind, node.speed) for node in held), default=inf)
    return max(job.speed_on(*kind) for kind in kinds) > factor * slowest


def _keeps_work(state: JobState) -> bool:
    """Return whether workers of the job have kept nearly all that they trained, as far as they have ended."""
    kept = len(state.done) * state.job.batches_per_chunk_total + fsum(state.partial.values())
    return state.lost_batches <= MAX_LOST_FRACTION * (kept + state.lost_batches)


def _would_start(cluster: ClusterState, state: JobState, run: TrackedWindow, move: _Move, now: float) -> bool:
    """Return whether the chunks would start there, and not wait for a still faster GPU that another window holds."""
    node, chunks = cluster.nodes[move.node], [chunk for chunk in run.window.chunks if chunk not in state.done]
    kept, _ = nodes_to_start_on(cluster, state, [node], chunks, now, first=True)
    return bool(kept)


def _moves(
    cluster: ClusterState,
    state: JobState,
    run: TrackedWindow,
    batches: float,
    idle: list[tuple[NodeState, float]],
    taken: Taken,
    now: float,
) -> Iterator[_Move]:
    """Yield a move to each idle node with room, given with the time of a mini-batch there, in seconds."""
    job = state.job
    waits: dict[str, tuple[float, list[int]]] = {}
    for node, batch_seconds in idle:
        name, site = node.node.name, node.node.site
        if name == run.home.node or node.free_gpus - taken[name] < job.gpus:
            continue
        if site not in waits:
            waits[site] = _wait_for_data(cluster, state, run, site, now)
        seconds, missing = waits[site]
        if seconds < inf:
            yield _Move(seconds + state.restart_seconds + batches * batch_seconds, name, site, missing)


def _wait_for_data(
    cluster: ClusterState, state: JobState, run: TrackedWindow, site: str, now: float
) -> tuple[float, list[int]]:
    """Return how long it takes until the data of a window's chunks are at a site, and the chunks that are not there.

    The time is in seconds, and inf if data were to be sent to the site and that was given up.
    """
    if state.job.data_site in (None, site):
        return 0.0, []
    there = state.copies.get(site, {})
    missing = [c for c in run.window.chunks if c not in state.done and there.get(c, inf) > now]
    if not missing:
        return 0.0, []
    if is_given_up(state, site) or not state.job.chunk_bytes:
        return inf, missing
    unsent = cluster.copies_ready(state, site, sum(chunk not in there for chunk in missing), now)
    coming = [state.coming[site, c] if there[c] == inf else there[c] for c in missing if c in there]
    return max(0.0, max([*unsent, *coming]) - now), missing
