"""Handlers for pods that take more or longer than planned: admission enlarged them, or they do not stop."""

from tranche.planner.context import PlannerContext
from tranche.planner.events import PodAdmitted, PodOverdue
from tranche.planner.job_actions import close_server, close_window, close_workers, displace, enlarge_job, stop_gang
from tranche.state.job import JobState
from tranche.state.node import NodeState

NOT_STOPPING = "was deleted and does not stop"


def admitted(context: PlannerContext, event: PodAdmitted) -> None:
    """Reserve what admission has added to a pod, and plan further workers of the job with the same requests."""
    state = context.cluster.jobs.get(event.job)
    if state is None:
        return
    run = state.runs.get(event.attempt)
    server = state.server_of(event.attempt)
    if run is not None:
        _less_room(context, context.cluster.enlarge_window(state, run, event.requests, context.now))
        enlarge_job(context, state)
    elif server is not None:
        _less_room(context, context.cluster.enlarge_server(state, server, event.requests))


def overdue(context: PlannerContext, event: PodOverdue) -> None:
    """Count the room of a closing window as taken again; its pod still has it, for as long as it does not stop.

    A window or parameter server that is open closes first: somebody else has deleted its pod.
    """
    state = context.cluster.jobs.get(event.job)
    run = state.runs.get(event.attempt) if state is not None else None
    if state is not None and run is None:
        _server_overdue(context, state, event.attempt)
    if state is None or run is None or run.overdue:
        return
    if not run.closing:
        close_window(context, state, run, f"its pod {NOT_STOPPING}")
    _less_room(context, context.cluster.note_overdue(run))


def _server_overdue(context: PlannerContext, state: JobState, attempt: int) -> None:
    """Stop the workers of a job whose parameter server or chief does not stop: they cannot train. It keeps its room."""
    server = state.server_of(attempt)
    if server is None or server.closing:
        return
    if state.job.is_gang:
        stop_gang(context, state, f"{server.title} {NOT_STOPPING}")
        return
    close_workers(context, state, f"{server.title} {NOT_STOPPING}")
    close_server(context, state, server, f"its pod {NOT_STOPPING}")


def _less_room(context: PlannerContext, node: NodeState | None) -> None:
    """Close windows without a bound pod that do not fit any more on a node whose free capacity has shrunk."""
    if node is not None:
        context.work.nodes.add(node.node.name)
        displace(context, (node.node.name,))
