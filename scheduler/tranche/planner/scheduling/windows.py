"""Opening of windows: the chunks that each window gets, and the instructions that start its pod."""

from collections.abc import Sequence
from math import ceil

from tranche.model import Preemption, Window
from tranche.planner.context import PlannerContext
from tranche.planner.instructions import OpenWindow
from tranche.planner.scheduling.placement import fallbacks
from tranche.state import site_accounting
from tranche.state.job import JobState
from tranche.state.node import NodeState
from tranche.state.window import SlotBinding, TrackedWindow

RESTARTS_PER_WINDOW = 3
"""A window gets chunks that take about this many restart costs, so that the cost of starting pods stays small."""

MAX_CHUNKS = 200
"""Maximum number of chunks of a window. A worker writes its progress on all of them into a message of 4 KiB."""


def open_window(context: PlannerContext, state: JobState, home: SlotBinding, chunks: Sequence[int]) -> None:
    """Open a window on some of the job's waiting chunks."""
    index = state.free_index()
    if index is None:
        return
    cluster, now = context.cluster, context.now
    state.attempts += 1
    declared = cluster.declared_batch_seconds(state, home.site, node=home.node)
    per_batch = declared * cluster.speed_factor(state, home.site, home.node)
    seconds = state.batches_left(chunks) * per_batch
    window = Window(
        index=index,
        attempt=state.attempts,
        site=home.site,
        node=home.node,
        chunks=tuple(chunks),
        fallbacks=fallbacks(cluster, state, home, context.settings.fallbacks, now),
        start=now,
        end=now + state.job.restart_seconds + seconds,
        generation=state.job.generation,
    )
    run = TrackedWindow(window, home, now, per_batch, declared, handover=_occupied(context, home))
    cluster.enter_window(state, run, now)
    context.rank_again(state)
    if context.queue is not None and context.queue.policy.fetches_after_start:
        site_accounting.count_window_uploads(cluster, state, chunks, home.site)
    context.cluster.forecast_errors.started(state.job.key, now)
    context.publish(state.job.key)
    context.instruct(OpenWindow(state.job.key, window, context.cause))


def open_windows(context: PlannerContext, state: JobState, at: str, nodes: list[NodeState], now: float) -> None:
    """Open one window on each of the nodes, until no waiting chunk has its data there."""
    waiting = state.waiting_at(at, now) if at else state.waiting
    if state.cloud and not at:
        waiting = [chunk for chunk in waiting if chunk not in state.cloud]
    uploading = not at and state.uploaded_at is not None and now < state.uploaded_at
    if state.job.is_gang:
        state.topology_level = context.cluster.places.level_of([node.node for node in nodes])
    spreads = context.queue is not None and context.queue.policy.split_factor() > 0
    for number, node in enumerate(nodes):
        if not waiting:
            return
        site, name = node.node.site, node.node.name
        count = 1
        if state.job.restart_seconds:
            count = chunks_of_window(state, context.cluster.batch_seconds(state, site, node=name))
        count = min(count, ceil(len(waiting) / (len(nodes) - number))) if spreads else count
        if uploading:
            chosen = [chunk for chunk in waiting if state.is_at(chunk, site, now)][:count]
            waiting = [chunk for chunk in waiting if chunk not in chosen]
        else:
            chosen, waiting = waiting[:count], waiting[count:]
        if chosen:
            open_window(context, state, SlotBinding(site, name), tuple(chosen))


def _occupied(context: PlannerContext, home: SlotBinding) -> bool:
    """Return whether a closing worker still holds the slots (any slots of the node, if the policy binds none)."""
    node = context.cluster.nodes.get(home.node or "")
    closing = node.closing_runs.values() if node else ()
    return bool(closing) and any(not home.slots or set(home.slots) & set(run.home.slots) for run in closing)


def chunks_of_window(state: JobState, seconds_per_batch: float) -> int:
    """Return the number of chunks that a window of a queue policy gets."""
    if state.job.is_gang or not state.job.restart_seconds or state.job.preemption is Preemption.AT_CHUNK_END:
        return 1
    chunk_seconds = state.job.batches_per_chunk_total * seconds_per_batch
    return min(max(1, round(RESTARTS_PER_WINDOW * state.job.restart_seconds / chunk_seconds)), MAX_CHUNKS)
