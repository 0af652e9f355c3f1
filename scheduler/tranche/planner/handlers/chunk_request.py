"""Chunk requests: a worker that has trained its chunks requests more, and its window is extended or its pod exits.

A slot that no other job could use stays with its job, so that the job's next chunk needs no new pod. If another job
could use the slot, the worker exits, and the slot is assigned when its pod has ended, like that of any other worker.
"""

from collections.abc import Mapping
from dataclasses import replace

from tranche.model import ChunkGrant
from tranche.planner import learning
from tranche.planner.context import PlannerContext
from tranche.planner.events import ChunksRequested, WorkerEnded
from tranche.planner.instructions import ExtendWindow
from tranche.planner.job_queue import JobQueue
from tranche.planner.node_exclusion import note_trained
from tranche.planner.scheduling import gpu_choice
from tranche.planner.scheduling.placement import count_fitting, free_hosts
from tranche.planner.scheduling.placement_trial import could_run_on_nodes
from tranche.planner.scheduling.windows import chunks_of_window
from tranche.state import progress_ledger, site_accounting
from tranche.state.job import JobState
from tranche.state.node import NodeState
from tranche.state.phases import WindowPhase
from tranche.state.window import TrackedWindow

REPEATED_SECONDS = 75.0
"""Time after which a request is no repetition of an earlier one: `tranche_worker` repeats it for a minute."""


def chunk_grant(state: JobState, attempt: int, fence: int, durable: Mapping[int, float]) -> ChunkGrant | None:
    """Return the chunks that a requesting worker trains next: none if it has to exit, None if its attempt is over.

    Args:
        state: State of its job, after `requested` has handled the request.
        attempt: Attempt number of its pod.
        fence: `Window.fence` of the chunks that it has trained; its window may already have later ones.
        durable: Number of durable mini-batches of these chunks, by chunk.
    """
    run = state.runs.get(attempt)
    if run is None:
        return None
    if run.ending:
        return ChunkGrant()
    left = run.window.chunks
    if fence == run.window.fence:
        left = tuple(chunk for chunk in left if not _is_complete(state, chunk, durable)) or left
    resume = {chunk: state.partial[chunk] for chunk in left if chunk in state.partial}
    return ChunkGrant(left, run.window.fence, resume)


def requested(context: PlannerContext, event: ChunksRequested) -> None:
    """Extend the worker's window if its chunks are done and no other job could use its slot; else let it exit.

    A repeated request changes nothing, because its fence is no longer that of the window.
    """
    request = event.request
    state = context.cluster.jobs.get(request.job)
    run = state.runs.get(request.attempt) if state is not None else None
    if state is None or run is None or run.ending or request.fence != run.window.fence:
        return
    if not request.is_of(state.job):
        return
    if not all(_is_complete(state, chunk, request.durable) for chunk in run.window.chunks):
        return
    if _may_predate_server(run, event.at) and state.left_of(run) > 0:
        return
    chunks = _next_chunks(context, state, run, context.now)
    if chunks:
        _extend_window(context, state, run, chunks, event)
    else:
        _let_exit(context, state, run)


def _may_predate_server(run: TrackedWindow, at: float) -> bool:
    """Return whether a request may say what the worker pushed to a parameter server that has failed since.

    The present server may lack that. Its next report shows what it has; until then, the worker gets its chunks again.
    """
    return run.reloaded is not None and at < run.reloaded + REPEATED_SECONDS


def _is_complete(state: JobState, chunk: int, durable: Mapping[int, float]) -> bool:
    return durable.get(chunk, 0.0) >= state.job.batches_per_chunk_total


def _next_chunks(context: PlannerContext, state: JobState, run: TrackedWindow, now: float) -> tuple[int, ...]:
    """Return the chunks that the slot would train next if its pod ended, or none if they are of another job."""
    node = context.cluster.nodes.get(run.home.node or "")
    unchanged = run.window.generation == state.job.generation and not run.obsolete
    if not (state.active and unchanged and state.held_until <= now) or state.job.is_gang:
        return ()
    if run.home.node is not None and (node is None or node.misfit(state.job.worker) is not None):
        return ()
    fits = node is None or node.keeps(run.requests)
    if not fits or context.cluster.quotas.exceeded(state.job) is not None:  # the node or a quota is overcommitted
        return ()
    if context.queue is None:
        return _queued(state, run, node, now)
    if _is_contested(context, context.queue, state, run, node, now):
        return ()
    sited = context.queue.policy.traits.needs_local_data
    here = run.home.site if node is None or (sited and state.job.data_site is not None) else ""
    waiting = state.waiting_at(here, now) if sited or node is None else state.waiting
    if not sited and node is not None:
        waiting = [chunk for chunk in waiting if chunk not in state.cloud and state.is_at(chunk, run.home.site, now)]
    if node is not None and waiting and gpu_choice.has_kinds(context.cluster, state):
        kept, _ = gpu_choice.nodes_to_start_on(context.cluster, state, [node], waiting, now, first=False)
        if not kept:  # they complete sooner on a faster GPU of the job
            return ()
    return tuple(waiting[: chunks_of_window(state, run.batch_seconds)])


def _queued(state: JobState, run: TrackedWindow, node: NodeState | None, now: float) -> tuple[int, ...]:
    """Return the chunk that is next in the queues of all slots of the window, under a binding policy."""
    slots = run.home.slots if node is not None else ()
    queues = [node.queues[slot] for slot in slots if slot < len(node.queues)] if node is not None else []
    firsts = [next((e for e in queue if e.state.chunk_runs.get(e.chunk) is not run), None) for queue in queues]
    first = firsts[0] if firsts else None
    if first is None or any(other is not first for other in firsts) or first.home != run.home:
        return ()
    mine = first.state is state and first.chunk not in state.chunk_runs and first.is_ready(now)
    return (first.chunk,) if mine else ()


def _is_contested(
    context: PlannerContext, queue: JobQueue, state: JobState, run: TrackedWindow, node: NodeState | None, now: float
) -> bool:
    """Return whether a job of higher rank waits for the capacity or quota that the job's worker holds."""
    if not queue.other_waits(state):  # the rank of a wide job is expensive
        return False
    rank = (queue.policy.tiered_rank(state, context.cluster, now), state.arrival)
    for site, head in queue.heads_before(rank, now):
        if head is state:
            continue
        if head.job.namespace == state.job.namespace and context.cluster.shortage(head) is not None:
            return True
        if node is not None and site in ("", run.home.site) and _could_use(context, queue, head, run, node, now):
            return True
    return False


def _could_use(
    context: PlannerContext, queue: JobQueue, head: JobState, run: TrackedWindow, node: NodeState, now: float
) -> bool:
    """Return whether another job could start if the worker of the window on the node ended."""
    shape, cluster = head.job.worker, context.cluster
    if queue.policy.traits.head_of_line_blocking and could_run_on_nodes(cluster, head):
        return True
    freed = node.capacity - node.reserved + run.requests
    if node.objection(shape) is not None or not shape.requests.fits(freed):
        return False
    others = (
        [one for one in free_hosts(cluster, head, "", now) if one is not node] if head.job.min_available > 1 else []
    )
    rooms = [freed, *(one.capacity - one.reserved for one in others)]
    return count_fitting(shape.requests, rooms, head.job.min_available) == head.job.min_available


def _let_exit(context: PlannerContext, state: JobState, run: TrackedWindow) -> None:
    """Let the worker exit; the progress in its request counts, whatever the outcome of its pod."""
    context.cluster.note_window(state, run, WindowPhase.EXITING)
    unfinished = [chunk for chunk in run.window.chunks if chunk not in state.done]
    state.partial.update(dict.fromkeys(unfinished, float(state.job.batches_per_chunk_total)))
    state.ledger_changed(run.window.chunks)
    context.touch(state)
    context.publish(state.job.key)


def _extend_window(
    context: PlannerContext, state: JobState, run: TrackedWindow, chunks: tuple[int, ...], event: ChunksRequested
) -> None:
    """Count the chunks that the worker has trained, as if its pod had ended, and enter its next chunks."""
    at, window = event.at, run.window
    ended = WorkerEnded(state.job.key, window.attempt, "Succeeded", at, event.request.durable, finished=at)
    learning.learn_pace(context, state, run, ended, progress_ledger.count_batches(state, run, ended)[0])
    note_trained(context, state, run)
    site_accounting.count_window(context.cluster, state, run, at)
    context.cluster.unbind([state.entries[chunk] for chunk in window.chunks if chunk in state.entries])
    state.leave(run)
    state.attempts += 1
    run.batch_seconds = context.cluster.batch_seconds(state, run.home.site, node=run.home.node)
    run.predicted_batch_seconds = None
    run.declared_batch_seconds = context.cluster.declared_batch_seconds(state, run.home.site, node=run.home.node)
    seconds = state.batches_left(chunks) * run.batch_seconds
    run.window = replace(window, chunks=chunks, start=at, end=at + seconds, renewed=state.attempts)
    context.cluster.note_window(state, run, WindowPhase.TRAINING)
    run.started, run.since, run.counted, run.left, run.reloaded = at, at, 0.0, None, None
    reports = run.first_report is not None or not state.job.servers
    run.first_report = (at, 0.0) if reports else None  # it resumes from the grant's batches
    state.enter(run)
    context.touch(state)
    context.publish(state.job.key)
    context.instruct(ExtendWindow(state.job.key, run.window, event))
