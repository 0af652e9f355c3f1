"""What the planner does to a job as a whole: pause it, stop it, close its windows and servers, count their ends.

Handlers and scheduling call these functions with the context; each changes the state of one job and records on the
context what follows. Nothing here decides where anything runs.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from math import inf

from tranche.model import PlannedServer, WindowState
from tranche.planner import data_staging, learning
from tranche.planner.context import PlannerContext
from tranche.planner.events import ChiefEnded, Outcome, ParameterServerLost, WorkerEnded
from tranche.planner.instructions import CloseParameterServer, CloseWindow, PlaceParameterServer
from tranche.state import progress_ledger, site_accounting
from tranche.state.entities import JobState, NodeState, Server, TrackedWindow
from tranche.state.phases import WindowPhase

HelperEnd = ParameterServerLost | ChiefEnded
SAVED_EXIT_CODES = frozenset({0, 143})
"""Exit codes of a server that was asked to stop and had the time to save."""


# ---- windows


def close_window(context: PlannerContext, state: JobState, run: TrackedWindow, preempted_by: str = "") -> None:
    """Have a window's pod stopped, with the rest of its gang; the planner can use its reservation at once.

    Args:
        context: Of the planner.
        state: The window's job.
        run: The window.
        preempted_by: Job for which it makes way, or a foreign pod, as in `Window`; empty for another reason.
    """
    for one in list(state.runs.values()) if state.job.is_gang else (run,):
        if not one.closing:
            _close_window(context, state, one, preempted_by)
    if state.job.is_gang:
        close_servers(context, state, preempted_by)


def _close_window(context: PlannerContext, state: JobState, run: TrackedWindow, preempted_by: str) -> None:
    node = context.cluster.close_window(state, run, context.now, preempted_by)
    if node is not None:
        context.capacity_freed(node.node.name)
    context.touch(state)
    context.publish(state.job.key)
    context.instruct(CloseWindow(state.job.key, run.window, context.cause))


def end_window(context: PlannerContext, state: JobState, run: TrackedWindow, *, moves: bool = False) -> None:
    """Remove a window whose pod has ended, or is elsewhere; other jobs may use what it held."""
    node = context.cluster.end_window(state, run, context.now, moves=moves)
    if node is not None:
        context.capacity_freed(node.node.name)
        readmit_node(context, node.node.name, state.job.key)
    context.quota_freed(state.job.namespace)


def count_end(context: PlannerContext, state: JobState, run: TrackedWindow, event: WorkerEnded) -> None:
    """Count the end of a window in the job's ledger, and remove the window."""
    cost = state.restart_seconds
    learning.note_stop(state, run, event)
    if state.restart_seconds < cost:
        context.reconsider_preemption(state)
    batches = progress_ledger.count_end(state, run, event)
    site_accounting.ended(context.cluster, state, run, event.at)
    learning.learn(context, state, run, event, batches)
    end_window(context, state, run)
    if not state.runs:
        state.idle_since = context.now
        state.count_busy(context.now)
        watch_idle_servers(context, state)
        close_servers_of_halted(context, state)


def unbind_chunks(context: PlannerContext, state: JobState, chunks: Iterable[int], *, forget_site: bool = True) -> None:
    """Take chunks out of the slots' queues; they are dispatched again, to any site if `forget_site`."""
    entries = [state.entries[c] for c in list(chunks) if c in state.entries]
    context.work.nodes.update(entry.home.node for entry in entries if entry.home.node)
    context.cluster.unbind(entries)
    if forget_site:
        for entry in entries:
            state.data_sites.pop(entry.chunk, None)
    context.work.jobs.add(state.job.key)


# ---- the whole job


def finish(context: PlannerContext, state: JobState) -> None:
    """Stop what is left of a job whose work is all done, and learn from it."""
    site_accounting.completed(context.cluster, state, range(state.job.chunks))
    learning.conclude(context, state)
    stop(context, state)
    context.touch(state)
    context.publish(state.job.key)


def stop(context: PlannerContext, state: JobState) -> None:
    """Close the job's windows, unbind its chunks, and stop its servers.

    If the job may go on later, its servers stop with a gang, since a pod has the same host name in every attempt, and
    else when the last worker has ended, which may still send them gradients. If it may not, nothing waits for them.
    """
    for run in list(state.runs.values()):
        close_window(context, state, run)
    data_staging.halt(state)
    unbind_chunks(context, state, list(state.entries))
    if state.finished or state.failed:
        drop_servers(context, state)
    elif state.job.is_gang:
        close_servers(context, state)
    else:
        close_servers_of_halted(context, state)


def stop_gang(context: PlannerContext, state: JobState, preempted_by: str = "") -> None:
    """Stop all pods of a gang that has lost one; none of them is done.

    Without a chief, what members have saved that were done is settled when the last member has ended.

    Args:
        context: Of the planner.
        state: Of the gang.
        preempted_by: Foreign pod that preempted the lost pod, and so all of them; empty if none did.
    """
    if state.job.chief is not None:
        state.done.clear()
        state.ledger_changed()
        state.windows_changed()
    for run in list(state.runs.values()):
        close_window(context, state, run, preempted_by)
    close_servers(context, state, preempted_by)


def hold(context: PlannerContext, state: JobState, seconds: float, reason: str) -> None:
    """Start nothing of the job for some time."""
    state.held_until = context.now + seconds
    state.hold_reason = reason
    context.wake(state.held_until, state.job.key)


def pause_gang(context: PlannerContext, state: JobState, reason: str) -> None:
    """Start nothing of a gang that found no place for a pod, for longer each time."""
    settings = context.settings
    before = count_rejection(context, state.job.key)
    hold(context, state, settings.backoff_seconds(settings.failure_backoff_seconds, before), reason)


def pause_after_failure(context: PlannerContext, state: JobState, reason: str) -> None:
    """Pause a job of which a pod has failed, for longer each time; the failure is counted already."""
    settings = context.settings
    if not state.failed:
        seconds = settings.backoff_seconds(settings.failure_backoff_seconds, state.failures - 1)
        hold(context, state, seconds, reason)


def count_rejection(context: PlannerContext, key: str) -> int:
    """Count that a pod of the job could not be started; returns how often before since one last was."""
    before = context.rejections.get(key, 0)
    context.rejections[key] = before + 1
    return before


def has_started(context: PlannerContext, state: JobState) -> None:
    """Forget rejections when a worker has started; of a gang, when the last of its members has."""
    if not state.job.is_gang or all(run.started is not None for run in state.runs.values()):
        context.rejections.pop(state.job.key, None)
        for run in state.runs.values():
            state.node_rejections.pop(run.home.node or "", None)


def roll_back_to_checkpoint(context: PlannerContext, state: JobState) -> None:
    """Set the ledger to what the lost parameter server had saved; if it reported nothing, that is not known."""
    if state.checkpoint is not None and not (state.finished or state.failed):
        progress_ledger.roll_back(state, range(state.job.chunks), state.checkpoint.batches, {})
        context.touch(state)


# ---- nodes that reject pods


def exclude_node(context: PlannerContext, state: JobState, node: str | None) -> None:
    """Exclude the node for the job's pods for `node_exclusion_seconds`, or until `readmit_node` ends that earlier."""
    if node is None:
        return
    if not state.excludes(node, context.now):
        state.node_rejections[node] = state.node_rejections.get(node, 0) + 1
    state.excluded_nodes[node] = context.now + context.settings.node_exclusion_seconds
    context.jobs_excluded_by_node.setdefault(node, set()).add(state.job.key)
    context.wake(state.excluded_nodes[node], state.job.key)


def readmit_node(context: PlannerContext, node: str, departed_job: str | None = None) -> None:
    """Readmit jobs to a node that rejected their pods, after a pod has left the node or the node has changed.

    The departed pod or the change may have removed the reason for the rejection, or the reason may be another one. So a
    job first waits for a back-off that begins with its last rejection and doubles with each rejection by the node.

    Args:
        context: Context of the planner, with the jobs that exclude the node.
        node: Name of the node.
        departed_job: Job whose pod left the node; it stays excluded, since its own departure frees nothing for it.
    """
    settings, keys = context.settings, context.jobs_excluded_by_node.get(node, set())
    for key in sorted(keys - {departed_job}):
        state = context.cluster.jobs.get(key)
        if state is None or not state.excludes(node, context.now):
            keys.discard(key)
            continue
        since = state.excluded_nodes[node] - settings.node_exclusion_seconds
        pause = settings.backoff_seconds(settings.failure_backoff_seconds, state.node_rejections.get(node, 1) - 1)
        again = max(context.now, since + pause)
        if again < state.excluded_nodes[node]:
            keys.discard(key)
            state.excluded_nodes[node] = again
            if again > context.now:
                context.wake(again, key)
            context.touch(state)


def displace(context: PlannerContext, nodes: Iterable[str]) -> None:
    """Close windows whose pods are not bound on nodes that are overbooked, the youngest first."""
    for name in sorted(nodes):
        node = context.cluster.nodes.get(name)
        for state, run in sorted(_unbound(node), key=lambda one: -one[1].opened) if node is not None else ():
            if node is not None and not run.closing and not node.reserved.fits(node.capacity):
                close_window(context, state, run)


def _unbound(node: NodeState) -> list[tuple[JobState, TrackedWindow]]:
    return [(state, run) for state, run in node.runs.values() if run.phase is WindowPhase.PENDING]


# ---- parameter servers and chiefs


def start_servers(context: PlannerContext, state: JobState, placed: Iterable[Server]) -> None:
    """Have the pods of parameter servers and chief started whose places are reserved already."""
    watch_idle_servers(context, state)
    context.publish(state.job.key)
    for server in placed:
        context.instruct(PlaceParameterServer(state.job.key, server.planned, context.cause))


def idle_from(state: JobState) -> float:
    """Since when the parameter servers of a job without windows have had nothing to do; seconds."""
    return max([state.idle_since, *(server.since for server in state.servers)])


def watch_idle_servers(context: PlannerContext, state: JobState) -> None:
    """Look at the job's parameter servers again when they have been idle for long enough."""
    at = idle_from(state) + context.settings.server_idle_seconds
    if state.servers and not state.runs and not state.job.is_gang and at < inf:
        context.wake(at, state.job.key)


def release_idle_servers(context: PlannerContext, keys: Collection[str]) -> None:
    """Stop parameter servers of these jobs, after they save, where no window has been open for long enough.

    They keep their room until they have ended, and the job gets no windows before: a successor reads what they save.
    """
    for key in keys:
        state = context.cluster.jobs.get(key)
        if state is None or state.runs or state.job.is_gang or not (state.servers and is_saved(state)):
            continue
        if idle_from(state) + context.settings.server_idle_seconds <= context.now:
            close_servers(context, state)


def is_saved(state: JobState) -> bool:
    """Whether a later parameter server finds what the job's present ones have learnt.

    Either the user has given a volume that is there wherever a pod runs, or servers have said that they have saved
    something, and nothing says that it stays behind with its node or site.
    """
    if state.job.durable is not None:
        return state.job.durable
    return state.checkpoint is not None and any(batches > 0 for batches in state.checkpoint.batches.values())


def close_servers(context: PlannerContext, state: JobState, preempted_by: str = "") -> None:
    """Have the job's parameter servers and chief stopped; each end comes back as an event."""
    for server in state.servers:
        if not server.closing:
            close_server(context, state, server, preempted_by)


def close_server(context: PlannerContext, state: JobState, server: Server, preempted_by: str = "") -> None:
    """Have one such pod stopped; it keeps its room until it has ended."""
    server.planned = replace(server.planned, state=WindowState.CLOSING, preempted_by=preempted_by)
    context.touch(state)
    context.publish(state.job.key)
    context.instruct(CloseParameterServer(state.job.key, server.planned, context.cause))


def close_servers_of_halted(context: PlannerContext, state: JobState) -> None:
    """Stop the servers of a job that is suspended, or cannot be planned, if its last worker has ended."""
    halted = state.job.suspended or state.unplannable is not None
    if halted and not (state.runs or state.finished or state.failed):
        close_servers(context, state)


def close_workers(context: PlannerContext, state: JobState) -> None:
    """Close all windows of a chunked job that cannot go on without its servers."""
    for run in list(state.runs.values()):
        if not run.closing:
            close_window(context, state, run)


def reopen_servers(context: PlannerContext, state: JobState, attempts: Collection[int]) -> None:
    """Reopen closing parameter servers that a disruption budget protects; they may close again when idle."""
    reopened = [server for server in state.servers if server.closing and server.planned.attempt in attempts]
    for server in reopened:
        server.planned, server.since = replace(server.planned, state=WindowState.OPEN, preempted_by=""), context.now
    if reopened:
        watch_idle_servers(context, state)
        context.touch(state)
        context.publish(state.job.key)


def remove_servers(context: PlannerContext, state: JobState, servers: Iterable[Server]) -> None:
    """Remove parameter servers whose pods have ended; other jobs may use what they held."""
    gone = list(servers)
    for server in gone:
        context.cluster.remove_server(state, server)
    for server in gone:
        readmit_node(context, server.planned.node or "", state.job.key)
    context.quota_freed(state.job.namespace)


def drop_servers(context: PlannerContext, state: JobState) -> None:
    """Remove all parameter servers and the chief without waiting for their ends."""
    gone = list(state.servers)
    remove_servers(context, state, gone)
    for server in gone:
        context.capacity_freed(server.planned.node)


# ---- ends that follow from others


def end_of(job: str, planned: PlannedServer, outcome: Outcome = "Lost", exit_code: int | None = None) -> HelperEnd:
    """Make the event that says that a parameter server or chief has ended."""
    if planned.is_chief:
        return ChiefEnded(job, planned.attempt, outcome, exit_code)
    return ParameterServerLost(job, planned.index, planned.attempt, outcome, exit_code)


def expected_end(key: str, state: JobState) -> ChiefEnded | None:
    """Make the end of a chief whose workers are all done; it is expected to end with the last of them."""
    chief = state.chief
    if chief is None or chief.closing or len(state.done) < state.job.chunks:
        return None
    return ChiefEnded(key, chief.planned.attempt, "Succeeded", 0)
