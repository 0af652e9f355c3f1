"""Actions on one job: pause it, stop it, close its windows and servers, and count the ends of their pods.

Handlers and scheduling call these functions with the context. Each changes the state of one job and records the effects
on the context. None of them decides where a pod runs.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from math import inf

from tranche.model import AttemptRecord, PlannedServer, WindowState
from tranche.model.attempt_record import short_reason
from tranche.planner import data_staging, learning
from tranche.planner.context import PlannerContext
from tranche.planner.events import WorkerEnded
from tranche.planner.helper_end import HelperEnd
from tranche.planner.instructions import CloseParameterServer, CloseWindow, PlaceParameterServer
from tranche.state import progress_ledger, site_accounting
from tranche.state.helper import Server
from tranche.state.job import JobState
from tranche.state.node import NodeState
from tranche.state.phases import WindowPhase
from tranche.state.window import TrackedWindow

SAVED_EXIT_CODES = frozenset({0, 143})
"""Exit codes of a server that was stopped and had time to save."""
SOON_SECONDS = 60.0
"""Age in seconds below which a pod that is deleted, evicted or lost counts as one that has trained almost nothing."""
NO_ROOM = "has no room for it any more"
"""End of the sentence "node n1 …", the reason to close a window whose room on the node a foreign pod has taken."""
NOT_TAKEN = "does not take its pod any more"
"""End of the sentence "node n1 …", the reason to close a window without a bound pod on a removed or cordoned node."""


# ---- windows


def close_window(context: PlannerContext, state: JobState, run: TrackedWindow, why: str, preempted_by: str = "") -> int:
    """Close a window, with the rest of its gang; its reservation is released immediately.

    Args:
        context: Context of the planner.
        state: State of the window's job.
        run: Window to close.
        why: Why it closes, as in `Window`.
        preempted_by: Preempting job or foreign pod, as in `Window`; empty if there is none.

    Returns:
        Number of closed windows.
    """
    closed = [one for one in (state.runs.values() if state.job.is_gang else (run,)) if not one.closing]
    for one in closed:
        _close_window(context, state, one, why, preempted_by)
    if state.job.is_gang:
        close_servers(context, state, why, preempted_by)
    return len(closed)


def preempt_window(context: PlannerContext, state: JobState, run: TrackedWindow, preemptor: JobState, why: str) -> None:
    """Close a window, with the rest of its gang, for another job, and record it with both jobs."""
    preemptor.placement.preempted_at = context.now
    closed = close_window(context, state, run, why, preempted_by=preemptor.job.key)
    progress_ledger.note_victim(preemptor, state.job.key, closed, context.now)
    context.publish(preemptor.job.key)


def _close_window(context: PlannerContext, state: JobState, run: TrackedWindow, why: str, preempted_by: str) -> None:
    node = context.cluster.close_window(state, run, context.now, short_reason(why), preempted_by)
    if node is not None:
        context.capacity_freed(node.node.name)
    context.touch(state)
    context.publish(state.job.key)
    context.instruct(CloseWindow(state.job.key, run.window, context.cause))


def end_window(context: PlannerContext, state: JobState, run: TrackedWindow, *, moves: bool = False) -> None:
    """Remove a window whose pod has ended or is on another node; other jobs may use its capacity and quota."""
    node = context.cluster.end_window(state, run, context.now, moves=moves)
    if run.overdue:
        context.cluster.nodes_changed()  # policies that distribute workers had less room while it held its GPUs
    if node is not None:
        context.capacity_freed(node.node.name)
        readmit_node(context, node.node.name, state.job.key)
    context.quota_freed(state)


def count_end(context: PlannerContext, state: JobState, run: TrackedWindow, event: WorkerEnded) -> None:
    """Count the end of a window in the job's ledger, and remove the window."""
    cost = state.restart_seconds
    learning.note_stop(state, run, event)
    if state.restart_seconds < cost:
        context.reconsider_preemption(state)
    batches = progress_ledger.count_end(state, run, event)
    site_accounting.count_window(context.cluster, state, run, event.at)
    learning.learn_pace(context, state, run, event, batches)
    end_window(context, state, run)
    if not state.runs:
        state.idle_since = context.now
        state.count_busy(context.now)
        watch_idle_servers(context, state)
        close_servers_of_halted(context, state)


def unbind_chunks(context: PlannerContext, state: JobState, chunks: Iterable[int], *, forget_site: bool = True) -> None:
    """Take chunks out of the slots' queues; they are dispatched again, to any site if `forget_site`."""
    context.work.jobs.add(state.job.key)
    if not state.entries:
        return
    entries = [state.entries[c] for c in list(chunks) if c in state.entries]
    context.work.nodes.update(entry.home.node for entry in entries if entry.home.node)
    context.cluster.unbind(entries)
    if forget_site:
        for entry in entries:
            state.data_sites.pop(entry.chunk, None)


# ---- the whole job


def finish(context: PlannerContext, state: JobState) -> None:
    """Stop the remaining pods of a job whose chunks are all done, and learn from the job."""
    site_accounting.count_completions(context.cluster, state, range(state.job.chunks))
    learning.record_completion(context, state)
    stop(context, state)
    context.touch(state)
    context.publish(state.job.key)


def stop(context: PlannerContext, state: JobState) -> None:
    """Close the job's windows, unbind its chunks, and stop its servers.

    If the job may continue later, the servers of a gang stop with it, since a pod has the same host name in every
    attempt. Those of a chunked job stop when the last worker has ended, which may still send them gradients. If the job
    will not continue, its servers are removed without waiting for their ends.
    """
    why = _why_stopped(state) if state.runs or state.servers else ""
    for run in list(state.runs.values()):
        close_window(context, state, run, why)
    if state.stagings:
        data_staging.stop_pods(state)
    unbind_chunks(context, state, list(state.entries))
    if state.finished or state.failed:
        drop_servers(context, state)
    elif state.job.is_gang:
        close_servers(context, state, why)
    else:
        close_servers_of_halted(context, state)


def _why_stopped(state: JobState) -> str:
    """Say why a job that is not active has no pods."""
    if state.finished:
        return "the job is done"
    if state.failed:
        return "the job failed"
    if state.unplannable is not None:
        return f"the job cannot be planned ({state.unplannable[0]})"
    return "suspended by spec.suspend" if state.job.suspended else "the job was removed"


def stop_gang(context: PlannerContext, state: JobState, why: str, preempted_by: str = "") -> None:
    """Stop all pods of a gang that has lost one; members that were done have to continue.

    Without a chief, the progress that finished members saved is counted when the last member has ended.

    Args:
        context: Context of the planner.
        state: State of the gang.
        why: Why they stop, as in `Window`.
        preempted_by: Foreign pod that preempted the lost pod, and thereby the gang; empty if there is none.
    """
    if state.job.chief is not None:
        state.done.clear()
        state.ledger_changed()
        state.windows_changed()
    for run in list(state.runs.values()):
        close_window(context, state, run, why, preempted_by)
    close_servers(context, state, why, preempted_by)


def why_gang_stops(pod: str, event: WorkerEnded | HelperEnd) -> str:
    """Say why the rest of a gang stops when one of its pods has ended."""
    if event.preempted_by:
        return event.stopped_by
    cause = event.stopped_by or event.reason
    return f"{pod} ended ({event.outcome}{f': {cause}' if cause else ''})"


def hold(context: PlannerContext, state: JobState, seconds: float, reason: str) -> None:
    """Start no pod of the job for `seconds`."""
    state.held_until = context.now + seconds
    state.hold_reason = reason
    context.wake(state.held_until, state.job.key)


def pause_after_failure(context: PlannerContext, state: JobState, reason: str) -> None:
    """Back off a job with a failed pod, for longer each time; the failure is counted already."""
    if not state.failed:
        hold(context, state, _failure_pause(context, state), reason)


def _failure_pause(context: PlannerContext, state: JobState) -> float:
    """Return the seconds for which a job pauses after its last failure, which is counted already."""
    settings, before = context.settings, state.failures + state.uncounted_failures - 1
    return settings.backoff_seconds(settings.failure_backoff_seconds, before)


def pause_after_disruption(context: PlannerContext, state: JobState, planned_at: float, reason: str) -> bool:
    """Back off a job whose pods are deleted, evicted or lost soon after they were planned, from the second time on.

    Something outside tranche, such as a controller that enforces a policy, may delete each pod. That is no failure of
    the job, but pods that are created and deleted each second train nothing.

    Returns:
        Whether the job is held now.
    """
    if planned_at <= state.disrupted_at:
        return False
    settings, now = context.settings, context.now
    before = state.disruptions if now - state.disrupted_at < 2 * settings.longest_backoff_seconds else 0
    soon = now - planned_at < SOON_SECONDS
    state.disruptions, state.disrupted_at = before + 1 if soon else 0, now
    if before and soon:
        hold(context, state, settings.backoff_seconds(settings.failure_backoff_seconds, before - 1), reason)
    return bool(before and soon)


NO_REASON = "no container started"
"""Why a kubelet refused a pod, if it states nothing."""


def how_failed(event: WorkerEnded | HelperEnd) -> str:
    """Say how a pod failed: by its exit code with the reason, most often of the kubelet, or by that alone."""
    return _how_failed(event.exit_code, event.reason)


def _how_failed(exit_code: int | None, reason: str) -> str:
    if exit_code is None or (exit_code == 0 and reason):
        return reason or NO_REASON
    return f"exit code {exit_code}" + (f" ({reason})" if reason else "")


def resume_pause(context: PlannerContext, state: JobState) -> None:
    """Continue the back-off of a restored job whose last worker failed, for as long as the earlier planner would have.

    Otherwise, the job would start at once after each take-over, and stop other jobs for that.
    """
    last, now = state.records[-1], context.now
    if last.reason != "Failed" or last.ended is None or not state.failures:
        return
    until = min(last.ended, now) + _failure_pause(context, state)
    if until > max(now, state.held_until):
        pod = "its chief" if last.role == "chief" else f"worker {last.index}"
        hold(context, state, until - now, f"{pod} failed with {_how_failed(last.exit_code, last.why)}")


def forget_rejections(state: JobState) -> None:
    """Forget the rejections by nodes of a job when a worker has started; for a gang, when all of its members have."""
    if not (state.job.is_gang and any(run.started is None for run in state.runs.values())):
        state.refusals = 0
        for run in state.runs.values():
            state.node_rejections.pop(run.home.node or "", None)


def enlarge_job(context: PlannerContext, state: JobState) -> None:
    """Plan further workers of the job with the requests that admission has given to its pods, if these are larger."""
    job = state.job
    requests = job.worker.requests
    for run in state.runs.values():
        if not run.obsolete:
            requests = requests.larger(run.requests)
    if requests == job.worker.requests:
        return
    worker = replace(job.worker, requests=requests)
    state.job = replace(job, worker=worker, template_requests=job.declared_requests)
    state.hosts = (-1, None)
    context.touch(state)


def roll_back_to_checkpoint(context: PlannerContext, state: JobState) -> None:
    """Set the ledger to the lost parameter server's checkpoint; without a reported checkpoint, leave it unchanged."""
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


def forget_exclusions(context: PlannerContext, state: JobState) -> None:
    """Forget the nodes that a removed job excludes."""
    for node in state.excluded_nodes:
        keys = context.jobs_excluded_by_node.get(node, set())
        keys.discard(state.job.key)
        if not keys:
            context.jobs_excluded_by_node.pop(node, None)


def readmit_node(context: PlannerContext, node: str, departed_job: str | None = None) -> None:
    """Readmit jobs to a node that rejected their pods, after a pod has left the node or the node has changed.

    The departed pod or the change may have removed the reason for the rejection, or the reason may be another one. So a
    job first waits for a back-off that begins with its last rejection and doubles with each rejection by the node.

    Args:
        context: Context of the planner, with the jobs that exclude the node.
        node: Name of the node.
        departed_job: Job whose pod left the node; it stays excluded, since its own departure frees nothing for it.
    """
    keys = context.jobs_excluded_by_node.get(node)
    if keys is None:
        return
    settings = context.settings
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


def displace(context: PlannerContext, nodes: Iterable[str], *, keep_with_fallback: bool = False) -> None:
    """Close windows with unbound pods on overbooked nodes, youngest first, until the rest fits.

    A window that requests nothing of what the node lacks stays.

    Args:
        context: Context of the planner.
        nodes: Names of the nodes; those that do not exist are ignored.
        keep_with_fallback: Keep the windows whose pods have a fallback node with room.
    """
    for name in sorted(nodes):
        node = context.cluster.nodes.get(name)
        for state, run in sorted(_unbound(node), key=lambda one: -one[1].opened) if node is not None else ():
            if node is None or run.closing or node.keeps(run.requests):
                continue
            if not (keep_with_fallback and has_fallback(context, state, run)):
                close_window(context, state, run, f"node {name} {NO_ROOM}")


def has_fallback(context: PlannerContext, state: JobState, run: TrackedWindow) -> bool:
    """Return whether a fallback node of the window takes its pod and has room for it."""
    others = (context.cluster.nodes.get(name) for name in run.window.fallbacks)
    shape = state.job.worker
    return any(
        other is not None and other.objection(shape) is None and other.has_room(run.requests) for other in others
    )


def close_without_site(context: PlannerContext, state: JobState) -> None:
    """Close the job's windows at sites that create no nodes any more, as far as their pods have no node."""
    for run in list(state.runs.values()):
        site = run.window.site
        if run.window.node is None and not run.closing and not context.cluster.is_unlimited(site):
            close_window(context, state, run, f"site {site} creates no nodes any more")


def _unbound(node: NodeState) -> list[tuple[JobState, TrackedWindow]]:
    return [(state, run) for state, run in node.runs.values() if run.phase is WindowPhase.PENDING]


# ---- parameter servers and chiefs


def start_servers(context: PlannerContext, state: JobState, placed: Iterable[Server]) -> None:
    """Start the pods of parameter servers and chief, whose capacity is reserved already."""
    watch_idle_servers(context, state)
    context.publish(state.job.key)
    for server in placed:
        context.instruct(PlaceParameterServer(state.job.key, server.planned, context.cause))


def idle_from(state: JobState) -> float:
    """Return the time since which the parameter servers of a job without windows have been idle, in seconds."""
    return max([state.idle_since, *(server.since for server in state.servers)])


def watch_idle_servers(context: PlannerContext, state: JobState) -> None:
    """Set a timer for the time at which the job's parameter servers have been idle for long enough."""
    if not state.servers or state.runs or state.job.is_gang:
        return
    at = idle_from(state) + context.settings.server_idle_seconds
    if at < inf:
        context.wake(at, state.job.key)


def release_idle_servers(context: PlannerContext, keys: Collection[str]) -> None:
    """Stop the parameter servers of these jobs that have been idle for long enough, and whose state is not lost.

    They keep their reservations until they have ended, and the job gets no windows before, because the next servers
    read what they save.
    """
    for key in keys:
        state = context.cluster.jobs.get(key)
        if state is None or state.runs or state.job.is_gang or not (state.servers and is_saved(state)):
            continue
        if idle_from(state) + context.settings.server_idle_seconds <= context.now:
            close_servers(context, state, "no worker needed it")


def is_saved(state: JobState) -> bool:
    """Return whether later parameter servers can read the state of the present ones.

    That holds if the job declares a volume that is available wherever a pod runs. Without a declaration, it holds if
    servers have reported saved progress. Before a worker has trained, there is nothing to read.
    """
    if not (state.counted_gpu_seconds or state.done or state.partial or state.applied):
        return True
    if state.job.durable is not None:
        return state.job.durable
    return state.checkpoint is not None and any(batches > 0 for batches in state.checkpoint.batches.values())


def close_servers(context: PlannerContext, state: JobState, why: str, preempted_by: str = "") -> None:
    """Stop the job's parameter servers and chief; their ends come back as events."""
    for server in state.servers:
        if not server.closing:
            close_server(context, state, server, why, preempted_by)


def close_server(context: PlannerContext, state: JobState, server: Server, why: str, preempted_by: str = "") -> None:
    """Stop one parameter server or the chief; it keeps its reservation until it has ended."""
    server.planned = replace(
        server.planned, state=WindowState.CLOSING, preempted_by=preempted_by, why=short_reason(why)
    )
    context.touch(state)
    context.publish(state.job.key)
    context.instruct(CloseParameterServer(state.job.key, server.planned, context.cause))


def close_servers_of_halted(context: PlannerContext, state: JobState) -> None:
    """Stop the servers of a job that is suspended or cannot be planned, if its last worker has ended."""
    if state.halted and not (state.runs or state.finished or state.failed):
        close_servers(context, state, _why_stopped(state))


def close_workers(context: PlannerContext, state: JobState, why: str) -> None:
    """Close all windows of a chunked job that cannot continue without its servers."""
    for run in list(state.runs.values()):
        if not run.closing:
            close_window(context, state, run, why)


def reopen_servers(context: PlannerContext, state: JobState, attempts: Collection[int]) -> None:
    """Reopen closing parameter servers that a disruption budget protects; they may close again when idle."""
    reopened = [server for server in state.servers if server.closing and server.planned.attempt in attempts]
    for server in reopened:
        server.planned, server.since = (
            replace(server.planned, state=WindowState.OPEN, preempted_by="", why=""),
            context.now,
        )
    if reopened:
        watch_idle_servers(context, state)
        context.touch(state)
        context.publish(state.job.key)


def remove_servers(context: PlannerContext, state: JobState, servers: Iterable[Server]) -> None:
    """Remove parameter servers whose pods have ended; other jobs may use their capacity and quota."""
    gone = list(servers)
    for server in gone:
        context.cluster.remove_server(state, server)
    for server in gone:
        readmit_node(context, server.planned.node or "", state.job.key)
    context.quota_freed(state)


def drop_servers(context: PlannerContext, state: JobState) -> None:
    """Remove all parameter servers and the chief without waiting for their ends, which count as stopped."""
    gone = list(state.servers)
    if not gone:
        context.quota_freed(state)
        return
    why = _why_stopped(state)
    for server in gone:
        progress_ledger.note(state, replace(server_record(server.planned, "Stopped", context.now), why=why))
    remove_servers(context, state, gone)
    for server in gone:
        context.capacity_freed(server.planned.node)


def server_record(planned: PlannedServer, outcome: str, ended: float) -> AttemptRecord:
    """Return the record of a parameter server or chief that has ended at this time, in seconds."""
    return AttemptRecord(
        index=planned.index,
        attempt=planned.attempt,
        node=planned.node or planned.site,
        reason=outcome,
        role="chief" if planned.is_chief else "ps",
        ended=ended,
    )
