"""Handlers for worker pods that are bound to a node, start to train, or end."""

from dataclasses import replace

from tranche.planner import learning, node_exclusion
from tranche.planner.context import PlannerContext
from tranche.planner.events import WorkerBound, WorkerEnded, WorkerStarted
from tranche.planner.job_actions import (
    NO_REASON,
    count_end,
    displace,
    end_window,
    finish,
    forget_rejections,
    how_failed,
    pause_after_disruption,
    pause_after_failure,
    stop,
    stop_gang,
    unbind_chunks,
    why_gang_stops,
)
from tranche.planner.scheduling.slot_scheduler import bind_window
from tranche.planner.unplaced_pods import note_placed, note_unplaced, pause_after_refusal
from tranche.state import progress_ledger
from tranche.state.job import JobState
from tranche.state.phases import WindowPhase
from tranche.state.remaining_work import NEARLY
from tranche.state.window import TrackedWindow

LATE_SECONDS = 5.0
"""Delay in seconds up to which the end of a pod counts when it is seen, because kubelets report whole seconds."""

IN_VAIN = "exit code 0 before all was done, with nothing new saved"
"""Why a worker has failed whose program ended as if it had succeeded."""


def _find_window(
    context: PlannerContext, event: WorkerBound | WorkerStarted | WorkerEnded
) -> tuple[JobState, TrackedWindow] | None:
    """Return the job and window of an event; None if its attempt was counted as ended, so that the event is void."""
    state = context.cluster.jobs.get(event.job)
    run = state.runs.get(event.attempt) if state is not None else None
    return None if state is None or run is None else (state, run)


def bound(context: PlannerContext, event: WorkerBound) -> None:
    """Record the node of a pod, which may differ from the planned node."""
    found = _find_window(context, event)
    if found is None:
        _note_server(context, event, started=False)
        return
    state, run = found
    context.cluster.note_window(state, run, WindowPhase.BOUND)
    node = context.cluster.nodes.get(event.node)
    note_placed(context, state, run.window.site if node is None else node.node.site)
    if run.window.node != event.node:
        _move(context, state, run, event.node)


def _note_server(context: PlannerContext, event: WorkerBound | WorkerStarted, *, started: bool) -> None:
    """Record that a parameter server or chief has a node, or runs; the workers may have waited for it alone."""
    state = context.cluster.jobs.get(event.job)
    server = state.server_of(event.attempt) if state is not None else None
    if state is None or server is None:
        return
    server.placed, server.started = True, server.started or started
    runs = (run for run in state.runs.values() if not run.closing)
    as_far = (run for run in runs if (run.started is not None if started else run.phase is not WindowPhase.PENDING))
    run = next(as_far, None)
    if run is not None:
        note_placed(context, state, run.home.site, started=started)
    context.touch(state)


def _move(context: PlannerContext, state: JobState, run: TrackedWindow, name: str) -> None:
    """Move the window, its chunks and its reservation to the fallback node that kube-scheduler chose for the pod.

    Windows that were planned there afterwards and find no room any more are planned again. A node of an unlimited site
    is only recorded by name: nothing is planned or reserved on it.
    """
    if context.cluster.is_unlimited(run.window.site) and name not in context.cluster.nodes:
        run.window = replace(run.window, node=name)
        context.publish(state.job.key)
        return
    end_window(context, state, run, moves=True)
    unbind_chunks(context, state, run.window.chunks, forget_site=False)
    node = context.cluster.nodes.get(name)
    site = node.node.site if node is not None else run.window.site
    run.window = replace(run.window, node=name, site=site)
    run.home = run.home._replace(site=site, node=name if node is not None else None, slots=())
    run.declared_batch_seconds = context.cluster.declared_batch_seconds(state, site, node=name)
    context.cluster.enter_window(state, run, context.now)
    context.rank_again(state)
    if context.binding is not None:
        bind_window(context, context.binding, state, run, run.window)
    else:
        displace(context, (name,), keep_with_fallback=True)
    context.work.nodes.add(name)
    context.publish(state.job.key)


def started(context: PlannerContext, event: WorkerStarted) -> None:
    """Record that a worker trains; nothing is published, since the pod's own status shows that it runs."""
    found = _find_window(context, event)
    if found is None:
        _note_server(context, event, started=True)
        return
    state, run = found
    if run.started is not None:
        return
    end, cost, at = run.window.end, state.restart_seconds, _possible_start(run, event.at, context.now)
    run.pod_started = min(event.at, at) if run.window.renewed else at
    run.started = run.since = at = max(at, run.window.start) if run.window.renewed else at
    context.cluster.note_window(state, run, WindowPhase.TRAINING)
    state.windows_changed()
    learning.note_start(context.cluster, state, run)
    if state.first_started is None:
        state.first_started = at
    if context.policy.traits.preemptive:
        context.rank_again(state)  # its rank value decreases from now on
    rest = state.left_of(run) * run.batch_seconds
    if (run.window.start, run.window.end) != (at, at + rest):
        run.window = replace(run.window, start=at, end=at + rest)
    if run.window.end > end + NEARLY or state.restart_seconds < cost:
        context.reconsider_preemption(state)
    note_placed(context, state, run.window.site, started=True)
    if state.node_rejections or state.refusals:
        forget_rejections(state)
    if context.cluster.health.exclusions:
        node_exclusion.note_started(context, run)


def _possible_start(run: TrackedWindow, at: float, now: float) -> float:
    """Return the start of a worker between the opening of its window and now; the clock of its node may differ.

    The worker of an earlier planner may have started long ago, so a start after now says nothing about the time, and
    the start in the plan counts: the start that this planner recorded, or else the opening.
    """
    if not run.adopted:
        return min(max(at, run.opened), max(now, run.opened))
    return max(at, run.held_from) if at <= now else min(run.held_from or now, now)


def _dated(run: TrackedWindow, event: WorkerEnded) -> WorkerEnded:
    """Return the end of a worker with the time when it ended, if the planner sees it much later.

    No planner led then, or the node was cut off. The time for which the container ran does not depend on the clock of
    its node, unless that was set meanwhile: it has not ended before a report that showed progress.
    """
    if event.ran is None or run.since is None or run.pod_started is None:
        return event
    ended = max(run.since, run.pod_started + event.ran)
    return event._replace(at=ended) if ended < event.at - LATE_SECONDS else event


def _judged(state: JobState, run: TrackedWindow, event: WorkerEnded, *, is_alone: bool) -> WorkerEnded:
    """Return the end of a worker as a failure if its program has ended as if it had succeeded, and has not."""
    is_vain = progress_ledger.ends_in_vain(state, run, event, is_alone=is_alone)
    return event._replace(outcome="Failed", reason=IN_VAIN) if is_vain else event


def _precedes_others(state: JobState, run: TrackedWindow) -> bool:
    """Return whether other members of a gang without a chief go on, and not all have started: no end is held then."""
    others = [one for one in state.runs.values() if one is not run and not one.closing]
    has_started = all(one.started is not None for one in (run, *others))
    return state.job.is_gang and state.job.chief is None and bool(others) and not has_started


def ended(context: PlannerContext, event: WorkerEnded, *, is_alone: bool = False) -> None:
    """Count a worker's end, and finish, stop or pause its job if the end requires it.

    Args:
        context: Context of the planner.
        event: End of the worker.
        is_alone: Whether it is a member of a gang that the others have not followed in time. If it was not done, they
            cannot complete without it, and may wait for it for any time.
    """
    found = _find_window(context, event)
    if found is None:
        return
    state, run = found
    is_alone = is_alone or _precedes_others(state, run)
    event = _judged(state, run, _dated(run, event), is_alone=is_alone)
    job, failures, closing = state.job, state.failures, run.closing
    lasted = event.at - run.pod_started if run.pod_started is not None else 0.0
    count_end(context, state, run, event)
    preemptor = context.cluster.jobs.get(event.preempted_by)
    if preemptor is not None:  # kube-scheduler evicted the worker for a pod of that job
        progress_ledger.note_victim(preemptor, job.key, 1, context.now)
        context.publish(preemptor.job.key)
    if state.entries:
        context.cluster.unbind([state.entries[c] for c in run.window.chunks if c in state.done and c in state.entries])
        node = context.cluster.nodes.get(run.window.node or "")
        if node is not None and node.objection(job.worker) is not None:  # cordoned or not ready since it started
            unbind_chunks(context, state, run.window.chunks)
    is_left = is_alone and not state.done.issuperset(run.window.chunks)
    if job.is_gang and (event.outcome != "Succeeded" or is_left or (job.chief is not None and state.chief is None)):
        stop_gang(context, state, why_gang_stops(f"worker {run.window.index}", event), event.preempted_by)
    if job.is_gang and job.chief is None and not (state.runs or state.finished):
        progress_ledger.level_gang(state)
    failed = state.failures > failures
    ignored = closing or (event.outcome == "Failed" and not failed)
    _note_node_problem(context, state, run, event, closing=ignored, lasted=lasted)
    if failed:
        reason = f"worker {run.window.index} failed with {how_failed(event)}"
        pause_after_failure(context, state, reason)
    if event.outcome in ("Preempted", "Lost") and not closing:
        stopped = f"{event.outcome}{f': {event.stopped_by}' if event.stopped_by else ''}"
        reason = f"worker {run.window.index} ended soon ({stopped})"
        if pause_after_disruption(context, state, run.opened_at, reason) and run.started is None:
            note_unplaced(context, state, None, reason, unstarted=True)
    if state.finished:
        finish(context, state)
    elif state.failed:
        stop(context, state)
    context.touch(state)
    context.publish(job.key)


def _note_node_problem(
    context: PlannerContext, state: JobState, run: TrackedWindow, event: WorkerEnded, *, closing: bool, lasted: float
) -> None:
    """Record the result of a worker for its node, and let the job avoid a node where its pod had a problem.

    Workers that fail while they are to stop, or after others of their job, are ignored.
    """
    node = run.window.node
    if event.outcome == "Lost" and closing and run.started is not None:
        node_exclusion.excuse_gang(context, state, run)
    if event.outcome == "Refused":
        if not closing:
            reason = f"{node or run.window.site} refused worker {run.window.index}: {event.reason or NO_REASON}"
            pause_after_refusal(context, state, node, reason)
            unbind_chunks(context, state, run.window.chunks)
        node_exclusion.note_problem(context, state, node, event.reason or NO_REASON)
    elif event.outcome == "Failed" and not closing:
        node_exclusion.avoid_after_failure(context, state, node)
        result = node_exclusion.note_problem(context, state, node, how_failed(event), counted=True, lasted=lasted)
        state.gang_failure = result if state.job.is_gang else None
        if state.job.helper_count and not state.job.is_gang:
            node_exclusion.note_worker_failure(context, state, result)
    elif event.outcome == "Lost" and event.reason:
        node_exclusion.note_problem(context, state, node, f"the node lost the pod: {event.reason}")
    elif event.outcome == "Succeeded" or lasted >= context.settings.health.proof_seconds:
        state.node_failures.pop(node or "", None)
        node_exclusion.note_trained(context, state, run)
