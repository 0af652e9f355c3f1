"""Pods that find no node, that the API server refuses, or that a disruption budget does not let be stopped."""

from collections.abc import Collection

from tranche.planner.context import PlannerContext
from tranche.planner.events import EvictionRefused, WorkerRejected, WorkerUnschedulable
from tranche.planner.job_actions import (
    avoid,
    close_server,
    close_window,
    close_workers,
    count_rejection,
    displace,
    hold,
    keep_servers,
    pause_gang,
    stop,
    stop_gang,
    unbind_chunks,
)
from tranche.state.entities import JobState, Server, TrackedWindow


def expire(context: PlannerContext) -> None:
    """Allow preemption again of jobs that have been spared for long enough."""
    spared = context.cluster.spared
    for key in [key for key, until in spared.items() if until <= context.now]:
        del spared[key]
        state = context.cluster.jobs.get(key)
        if state is not None:
            state.spared = False
            context.touch(state)
            context.rank_fell(state)


def unschedulable(context: PlannerContext, event: WorkerUnschedulable) -> None:
    """Release the place of a pod that has waited for its node for too long."""
    state = context.cluster.jobs.get(event.job)
    if state is None:
        return
    run = state.runs.get(event.attempt)
    if run is not None:
        _worker_found_no_place(context, state, run, event.message)
        unbind_chunks(context, state, run.window.chunks)
        return
    server = next((one for one in state.servers if one.planned.attempt == event.attempt and not one.closing), None)
    if server is not None:
        _server_found_no_place(context, state, server, event.message)


def _worker_found_no_place(context: PlannerContext, state: JobState, run: TrackedWindow, message: str) -> None:
    """Close the window of a pod that has waited for its node for too long; the job avoids the node for some time.

    A gang releases everything and pauses, longer each time, so that another gang may start. If several of its pods
    found no node, that counts once.
    """
    avoid(context, state, run.window.node)
    if run.closing:
        return
    if state.job.min_available > 1 or (state.job.is_gang and state.job.helper_count):
        pause_gang(context, state, f"worker {run.window.index} found no place: {message}")
    close_window(context, state, run)


def _server_found_no_place(context: PlannerContext, state: JobState, server: Server, message: str) -> None:
    """Stop a parameter server or chief whose pod has waited for its node for too long, and what waits for it.

    No worker trains without it, so the windows of a chunked job are closed; its other servers stay.
    """
    avoid(context, state, server.planned.node)
    server.homeless = True
    if state.job.is_gang:
        what = "chief" if server.planned.is_chief else f"parameter server {server.planned.index}"
        pause_gang(context, state, f"{what} found no place: {message}")
        stop_gang(context, state)
        return
    close_workers(context, state)
    close_server(context, state, server)


def rejected(context: PlannerContext, event: WorkerRejected) -> None:
    """Stop a job whose pods the API server will always refuse; else close what has not started, and pause."""
    state = context.cluster.jobs.get(event.job)
    if state is None or state.finished:
        return
    if event.permanent:
        state.unplannable = (event.reason, event.message)
        stop(context, state)
    else:
        settings = context.settings
        before = count_rejection(context, event.job)
        pause = settings.backoff_seconds(settings.rejection_backoff_seconds, before)
        hold(context, state, pause, f"the API server refused its pods ({event.reason}): {event.message}")
        for run in list(state.runs.values()):
            if run.started is None:
                close_window(context, state, run)
    context.touch(state)
    context.publish(event.job)


def eviction_refused(context: PlannerContext, event: EvictionRefused) -> None:
    """Open the windows again; the job is not preempted for some time.

    A gang goes on only if none of its members has been stopped; else the rest has to go, however long that takes.
    """
    state = context.cluster.jobs.get(event.job)
    if state is None or not state.active:
        return
    runs = [run for attempt, run in state.runs.items() if attempt in event.attempts and run.closing]
    if any(run.obsolete for run in runs) or (state.job.is_gang and not _is_whole(state, event.attempts)):
        return
    keep_servers(context, state, event.attempts)
    if not runs:
        return
    for run in runs:
        node = context.cluster.reopen_window(state, run, context.now)
        if node is not None:
            context.work.nodes.add(node.node.name)
    state.spared = True
    context.cluster.spared[event.job] = context.now + context.settings.spare_seconds
    context.wake(context.cluster.spared[event.job], event.job)
    displace(context, {run.home.node or "" for run in runs})
    context.touch(state)
    context.publish(event.job)


def _is_whole(state: JobState, refused: Collection[int]) -> bool:
    """Whether a gang that was to stop can go on if these attempts do not stop."""
    stopped = [one for one in state.servers if one.closing and one.planned.attempt not in refused]
    covered = {c for run in state.runs.values() if run.window.attempt in refused for c in run.window.chunks}
    return (
        not stopped and len(state.servers) == state.job.helper_count and len(covered | state.done) == state.job.chunks
    )
