"""The members of a gang end one after another, and as one: what the first leave waits for what the last leave.

Ours [I]. A gang's members are done in the same moment, but their ends arrive one by one, over a tenth of a second in
the simulator and over seconds from real kubelets. A planner that gives away each GPU at once gives the first half to a
smaller gang, and takes it back when the second half could hold the job that ranks first.
"""

from collections.abc import Iterator

from tranche.planner.context import HeldEnds, PlannerContext
from tranche.planner.events import (
    Event,
    JobChanged,
    JobSubmitted,
    ProgressReported,
    WorkerBound,
    WorkerEnded,
    WorkerStarted,
)
from tranche.state.entities import JobState


def puts_off(context: PlannerContext, event: WorkerEnded) -> bool:
    """Hold the end of a member that is done, if others of its gang are about to be; returns whether it is held."""
    if event.outcome != "Succeeded":
        return False
    state = context.cluster.jobs.get(event.job)
    if state is None or not _ends_as_one(state) or event.attempt not in state.runs:
        return False
    held = context.held_ends.get(event.job)
    ended = held.ends if held is not None else {}
    if all(attempt in ended or attempt == event.attempt for attempt in state.runs):
        return False
    if held is None:
        held = context.held_ends[event.job] = HeldEnds(context.now + context.settings.farewell_seconds)
        context.wake(held.until, event.job)
    held.ends[event.attempt] = event
    return True


def due(context: PlannerContext, event: Event) -> Iterator[WorkerEnded]:
    """Take out the ends that count now, before this event does: it decides on their job, or they are held too long."""
    key = _decides_on(event)
    for job in [job for job, held in context.held_ends.items() if job == key or held.until <= context.now]:
        yield from context.held_ends.pop(job).ends.values()


def _ends_as_one(state: JobState) -> bool:
    """Whether the job is a gang whose members are all at work; with a chief, it is the chief's end that counts."""
    runs = state.runs.values()
    return state.job.is_gang and state.job.chief is None and not any(run.closing or run.started is None for run in runs)


def _decides_on(event: Event) -> str | None:
    """The job whose windows the event may change."""
    match event:
        case WorkerBound() | WorkerStarted() | ProgressReported():
            return None
        case JobSubmitted() | JobChanged():
            return event.job.key
    return getattr(event, "job", None)
