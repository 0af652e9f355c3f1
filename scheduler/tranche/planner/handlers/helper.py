"""Handlers for ended parameter servers and chiefs: those of chunked jobs are replaced, those of a gang end the gang."""

from dataclasses import replace

from tranche.model.attempt_record import short_log
from tranche.planner import node_exclusion
from tranche.planner.context import PlannerContext
from tranche.planner.events import WorkerEnded
from tranche.planner.helper_end import HelperEnd
from tranche.planner.job_actions import (
    SAVED_EXIT_CODES,
    close_workers,
    count_end,
    finish,
    how_failed,
    pause_after_disruption,
    pause_after_failure,
    remove_servers,
    roll_back_to_checkpoint,
    server_record,
    stop,
    stop_gang,
    why_gang_stops,
)
from tranche.planner.scheduling.server_placement import place_servers
from tranche.planner.unplaced_pods import note_unplaced, pause_after_refusal
from tranche.state import progress_ledger
from tranche.state.helper import Server
from tranche.state.job import JobState


def ended(context: PlannerContext, event: HelperEnd) -> None:
    """Count the end of a parameter server's or chief's pod; progress that it has not saved is lost."""
    state = context.cluster.jobs.get(event.job)
    server = state.server_of(event.attempt) if state is not None else None
    if state is None or server is None:
        return
    remove_servers(context, state, [server])
    context.capacity_freed(server.planned.node)
    by, why = progress_ledger.cause_of(server.planned, event)
    record = replace(
        server_record(server.planned, event.outcome, context.now),
        exit_code=event.exit_code,
        preempted_by=by,
        why=why,
        started=event.started,
        log=short_log(event.log),
    )
    progress_ledger.note(state, record)
    _note_node_problem(context, state, server, event)
    stopped = event.outcome in ("Preempted", "Lost") or (event.outcome == "Succeeded" and not state.job.is_gang)
    if stopped and not (server.closing or state.finished):
        reason = f"{server.title} ended soon ({event.outcome})"
        if pause_after_disruption(context, state, server.since, reason) and not server.started:
            note_unplaced(context, state, None, reason, unstarted=True)
    trained = _may_have_trained(state, server, event)
    if state.job.is_gang:
        _ended_of_gang(context, state, server, event)
    elif not server.closing:
        if event.outcome != "Refused":
            node_exclusion.excuse_workers(context, state, server, counted=event.outcome == "Failed")
        if trained:
            roll_back_to_checkpoint(context, state)
        if event.outcome == "Failed":
            _count_failure(context, state, server, event)
        context.work.unserved[event.job] = server.title
    elif (event.outcome == "Lost" or event.exit_code not in SAVED_EXIT_CODES) and trained:
        roll_back_to_checkpoint(context, state)
    context.touch(state)
    context.publish(event.job)


def replace_servers(context: PlannerContext) -> None:
    """Start parameter servers in place of those that have ended, or stop the workers of a job that gets none.

    The last worker of a job may have ended in the same instant, as a planner that takes over sees it.
    """
    for key, title in context.work.unserved.items():
        state = context.cluster.jobs.get(key)
        if state is None or not (state.active and state.runs):
            continue
        if state.held_until > context.now or not place_servers(context, state):
            close_workers(context, state, f"{title} ended")
    context.work.unserved.clear()


def _may_have_trained(state: JobState, server: Server, event: HelperEnd) -> bool:
    """Return whether the pod may have held progress that is lost with it: not if its container has never started.

    Then the last pod of its role has saved all progress, even if its last report did not arrive.
    """
    if server.never_scheduled or event.outcome == "Refused":
        return False
    reported = state.checkpoint is not None and state.checkpoint.attempt == server.planned.attempt
    known = server.started or event.started is not None or event.exit_code is not None
    return known or reported or server.adopted


def _count_failure(context: PlannerContext, state: JobState, server: Server, event: HelperEnd) -> None:
    """Count a server of a chunked job that failed: replace it at once after the first failure of the job, then pause.

    Workers wait for a server that is replaced at once. During a pause they are stopped, so that others use their GPUs.
    """
    first = state.failures + state.uncounted_failures == 0
    state.failures += 1
    if state.failed:
        stop(context, state)
    elif not first:
        pause_after_failure(context, state, f"{server.title} failed with {how_failed(event)}")


def _note_node_problem(context: PlannerContext, state: JobState, server: Server, event: HelperEnd) -> None:
    """Record a problem of a server or chief for its node, and let the job avoid that node."""
    node = server.planned.node
    if event.outcome == "Refused":
        reason = event.reason or "no container started"
        if not server.closing:
            pause_after_refusal(context, state, node, f"{node or server.planned.site} refused {server.title}: {reason}")
        node_exclusion.note_problem(context, state, node, reason)
    elif event.outcome == "Failed" and not server.closing:
        node_exclusion.avoid_after_failure(context, state, node)
        node_exclusion.note_problem(
            context, state, node, how_failed(event), counted=True, lasted=context.now - server.since
        )
    elif event.outcome == "Lost" and event.reason:
        node_exclusion.note_problem(context, state, node, f"the node lost the pod: {event.reason}")


def _ended_of_gang(context: PlannerContext, state: JobState, server: Server, event: HelperEnd) -> None:
    """Count the end of a gang's parameter server or chief, which is removed already.

    A chief that succeeded ends the job. A parameter server that succeeded has no further effect. Any other end stops
    the whole gang, and counts as a failure of the job if the pod failed and was not closing.
    """
    planned = server.planned
    if event.outcome == "Succeeded":
        if planned.is_chief:
            _succeed(context, state)
        return
    if event.exit_code not in SAVED_EXIT_CODES and _may_have_trained(state, server, event):
        roll_back_to_checkpoint(context, state)
    if not server.closing and event.outcome == "Failed":
        state.failures += 1
        pause_after_failure(context, state, f"{server.title} failed with {how_failed(event)}")
    stop_gang(context, state, why_gang_stops(server.title, event), event.preempted_by)
    if state.failed:
        stop(context, state)


def _succeed(context: PlannerContext, state: JobState) -> None:
    """Finish a gang whose chief has succeeded; the progress of its members does not matter any more."""
    for run in list(state.runs.values()):
        end = WorkerEnded(state.job.key, run.window.attempt, "Succeeded", context.now)
        count_end(context, state, run, end)
    state.done = set(range(state.job.chunks))
    state.partial.clear()
    state.applied.clear()
    state.ledger_changed()
    state.windows_changed()
    finish(context, state)
