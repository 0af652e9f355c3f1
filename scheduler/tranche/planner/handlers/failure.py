"""Handlers for pods that cannot be scheduled, that the API server rejects, or whose eviction a budget blocks."""

from collections.abc import Collection

from tranche.model import PodShape
from tranche.planner import node_exclusion
from tranche.planner.context import PlannerContext
from tranche.planner.events import EvictionRefused, PlanRejected, PodStartFailed, WorkerRejected, WorkerUnschedulable
from tranche.planner.job_actions import (
    close_server,
    close_window,
    close_workers,
    displace,
    exclude_node,
    hold,
    pause_after_failure,
    reopen_servers,
    stop,
    stop_gang,
    unbind_chunks,
)
from tranche.planner.scheduling.placement_trial import usable_clouds
from tranche.planner.unplaced_pods import abandon_preemption, hold_unplaced, note_refusing_cloud, note_unplaced
from tranche.state import progress_ledger
from tranche.state.helper import Server
from tranche.state.job import JobState
from tranche.state.window import TrackedWindow


def expire_eviction_holds(context: PlannerContext) -> None:
    """Allow preemption of jobs again whose eviction hold has expired (`PlannerSettings.eviction_hold_seconds`)."""
    blocked = context.cluster.eviction_blocked_until
    for key in [key for key, until in blocked.items() if until <= context.now]:
        del blocked[key]
        state = context.cluster.jobs.get(key)
        if state is not None:
            state.eviction_blocked = False
            context.touch(state)
            context.rank_fell(state)


def unschedulable(context: PlannerContext, event: WorkerUnschedulable) -> None:
    """Release the capacity reserved for a pod that has waited too long to be scheduled."""
    state = context.cluster.jobs.get(event.job)
    if state is None:
        return
    run = state.runs.get(event.attempt)
    if run is not None:
        _worker_unschedulable(context, state, run, event.message)
        unbind_chunks(context, state, run.window.chunks)
        return
    server = state.server_of(event.attempt)
    if server is not None and not server.closing:
        _server_unschedulable(context, state, server, event.message)


def _worker_unschedulable(context: PlannerContext, state: JobState, run: TrackedWindow, message: str) -> None:
    """Close the window of a worker pod that has waited too long to be scheduled, and exclude its node for the job.

    A gang releases all of its reservations and backs off, longer each time, so that another gang can start. Several
    unschedulable pods of one gang count as one rejection. A chunked job tries another free node at once, and backs off
    after the second pod in a row, unless other workers of it train. A node that takes no pods any more says nothing
    about the job.
    """
    exclude_node(context, state, run.window.node)
    if run.closing:
        return
    if _takes_no_more(context, run.window.node, state.job.worker):
        close_window(context, state, run, f"its pod found no place: {message}")
        return
    reason = f"worker {run.window.index} found no place: {message}"
    if run.window.node is None:
        _refused_by_cloud(context, state, run.window.site, reason, run.opened_at)
    else:
        before = note_unplaced(context, state, run.window.node, reason, run.opened_at)
        if state.job.min_available > 1 or (state.job.is_gang and state.job.helper_count):
            _back_off(context, state, before, reason)
        elif not state.training_workers:
            _back_off(context, state, before - 1, reason)
    close_window(context, state, run, f"its pod found no place: {message}")


def _refused_by_cloud(context: PlannerContext, state: JobState, site: str, reason: str, opened: float) -> None:
    """Let the job leave an unlimited site where its pod found no place; back off if there is no other place for it."""
    before = note_refusing_cloud(context, state, site, reason, opened)
    homes = {chunk: entry.home for chunk, entry in state.entries.items() if chunk not in state.chunk_runs}
    unbind_chunks(context, state, [chunk for chunk, home in homes.items() if home.node is None and home.site == site])
    state.colocated = state.colocated and bool(state.training_workers)
    pause = _pause_after(context, before if state.job.is_gang else before - 1)
    if pause and site in usable_clouds(context.cluster, state, context.now) and not state.training_workers:
        hold(context, state, pause, reason)


def _takes_no_more(context: PlannerContext, name: str | None, shape: PodShape) -> bool:
    """Return whether the planned node has been removed, or takes no such pod since it was planned."""
    node = context.cluster.nodes.get(name or "")
    return name is not None and (node is None or node.misfit(shape) is not None)


def _back_off(context: PlannerContext, state: JobState, before: int, reason: str) -> None:
    """Hold the job after `before` failures that count; not after the first one of a chunked job (-1)."""
    hold_unplaced(context, state, _pause_after(context, before), reason)


def _pause_after(context: PlannerContext, before: int) -> float:
    settings = context.settings
    return settings.backoff_seconds(settings.failure_backoff_seconds, before) if before >= 0 else 0.0


def _server_unschedulable(context: PlannerContext, state: JobState, server: Server, message: str) -> None:
    """Stop a parameter server or chief whose pod has waited too long to be scheduled, and the pods that depend on it.

    No worker trains without it, so the windows of a chunked job are closed; its other servers stay.
    """
    exclude_node(context, state, server.planned.node)
    server.never_scheduled = True
    what = "chief" if server.planned.is_chief else f"parameter server {server.planned.index}"
    reason = f"{what} found no place: {message}"
    if server.planned.node is None and context.cluster.is_unlimited(server.planned.site):
        abandon_preemption(context, state, reason)  # its workers on nodes do not train without it
        _refused_by_cloud(context, state, server.planned.site, reason, server.since)
    elif context.cluster.has_place(state, server.planned):
        before = note_unplaced(context, state, server.planned.node, reason, server.since)
        _back_off(context, state, before if state.job.is_gang else before - 1, reason)
    if state.job.is_gang:
        stop_gang(context, state, reason)
        return
    close_workers(context, state, reason)
    close_server(context, state, server, reason)


def start_failed(context: PlannerContext, event: PodStartFailed) -> None:
    """Stop a pod whose containers do not start, so that it releases its GPUs, and let its job pause.

    A gang stops as a whole. Without a parameter server, no worker of a chunked job trains, so its windows close too.
    The pod counts as a failure of its job if none of the job has ever started: its template is most likely wrong.
    """
    state = context.cluster.jobs.get(event.job)
    if state is None:
        return
    run = state.runs.get(event.attempt)
    server = state.server_of(event.attempt)
    text = f"{event.reason}: {event.message}" if event.message else event.reason
    why = f"its containers did not start: {text}"
    if run is not None and not run.closing and run.started is None:
        run.start_failure = event.reason
        node, what, opened = run.window.node, f"worker {run.window.index}", run.opened_at
        close_window(context, state, run, why)
        unbind_chunks(context, state, run.window.chunks)
    elif server is not None and not server.closing:
        server.never_scheduled = True
        node, what, opened = server.planned.node, server.title, server.since
        if state.job.is_gang:
            stop_gang(context, state, f"{what} did not start: {text}")
        else:
            close_workers(context, state, f"{what} did not start: {text}")
            close_server(context, state, server, why)
    else:
        return
    counted, reason = not state.has_trained, f"{what} did not start on {node or 'its node'}: {text}"
    before = note_unplaced(context, state, node, text, opened, unstarted=True)
    state.failures += counted
    node_exclusion.avoid_after_failure(context, state, node)
    node_exclusion.note_problem(context, state, node, text, counted=counted)
    if counted:
        pause_after_failure(context, state, reason)
    else:
        settings = context.settings
        pause = settings.pause_seconds(settings.failure_backoff_seconds, before)
        hold(context, state, min(pause, settings.unplaced_hold_seconds), reason)
    if state.failed:
        stop(context, state)
    context.touch(state)
    context.publish(event.job)


def rejected(context: PlannerContext, event: WorkerRejected) -> None:
    """Handle a pod that the API server rejected: back off, or stop the job if the rejection is permanent.

    During the back-off, windows whose worker has not started are closed. A gang that lacks a pod closes as a whole. If
    all of its pods run, the rejection is from before a change of the leader, and the operator has not withdrawn it yet.
    A permanent rejection after an edit stops no worker that trains: it concerns only pods that are created later.
    """
    state = context.cluster.jobs.get(event.job)
    if state is None or state.finished:
        return
    if state.job.is_gang and _runs_whole(state):
        return
    if event.permanent and (state.job.is_gang or not _trains(state)):
        state.unplannable = (event.reason, event.message)
        stop(context, state)
    else:
        reason = f"the API server refused its pods ({event.reason}): {event.message}"
        if state.job.is_gang:
            stop_gang(context, state, reason)
        _back_off_rejected(context, state, reason)
    context.touch(state)
    context.publish(event.job)


def _trains(state: JobState) -> bool:
    """Return whether a worker has started and is not to stop."""
    return any(run.started is not None and not run.closing for run in state.runs.values())


def _runs_whole(state: JobState) -> bool:
    """Return whether all pods of a gang have started and none is to stop."""
    runs, servers = state.runs.values(), state.servers
    if len(servers) < state.job.helper_count or not all(server.started and not server.closing for server in servers):
        return False
    members = sum(len(run.window.chunks) for run in runs if run.started is not None and not run.closing)
    return members + len(state.done) == state.job.chunks


def plan_rejected(context: PlannerContext, event: PlanRejected) -> None:
    """Back off a job whose status the API server rejected, so that it holds no capacity for pods that cannot start.

    Workers that have started continue.
    """
    state = context.cluster.jobs.get(event.job)
    if state is None or state.finished:
        return
    _back_off_rejected(context, state, f"the API server refused its status: {event.message}")
    context.touch(state)
    context.publish(event.job)


def _back_off_rejected(context: PlannerContext, state: JobState, reason: str) -> None:
    """Hold the job, longer each time, and close the windows whose worker has not started."""
    settings = context.settings
    before = note_unplaced(context, state, None, reason)
    hold(context, state, settings.backoff_seconds(settings.rejection_backoff_seconds, before), reason)
    for run in list(state.runs.values()):
        if run.started is None:
            close_window(context, state, run, reason)


def eviction_refused(context: PlannerContext, event: EvictionRefused) -> None:
    """Reopen windows whose pods a disruption budget protects, and block preemption of the job for some time.

    A gang is reopened only if none of its pods has stopped; otherwise the remaining pods have to stop too, however long
    their budget delays that.
    """
    state = context.cluster.jobs.get(event.job)
    if state is None or not state.active:
        return
    runs = [run for attempt, run in state.runs.items() if attempt in event.attempts and run.closing]
    if any(run.obsolete for run in runs) or (state.job.is_gang and not _is_whole(state, event.attempts)):
        return
    reopen_servers(context, state, event.attempts)
    if not runs:
        return
    for run in runs:
        preemptor = context.cluster.jobs.get(run.window.preempted_by)
        if preemptor is not None:
            progress_ledger.note_victim(preemptor, event.job, -1, context.now)
            context.publish(preemptor.job.key)
        node = context.cluster.reopen_window(state, run, context.now)
        if node is not None:
            context.work.nodes.add(node.node.name)
    state.eviction_blocked = True
    context.cluster.eviction_blocked_until[event.job] = context.now + context.settings.eviction_hold_seconds
    context.wake(context.cluster.eviction_blocked_until[event.job], event.job)
    displace(context, {run.home.node or "" for run in runs})
    context.touch(state)
    context.publish(event.job)


def _is_whole(state: JobState, refused: Collection[int]) -> bool:
    """Return whether a closing gang is still complete if the attempts in `refused` do not stop."""
    stopped = [one for one in state.servers if one.closing and one.planned.attempt not in refused]
    covered = {c for run in state.runs.values() if run.window.attempt in refused for c in run.window.chunks}
    return (
        not stopped and len(state.servers) == state.job.helper_count and len(covered | state.done) == state.job.chunks
    )
