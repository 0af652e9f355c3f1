"""Joint release of a gang's GPUs: the ends of finished members are held until the last member ends or a timeout passes.

Ours [I]. A gang's members finish at the same moment, but their ends arrive one by one: over a tenth of a second in the
simulator and over seconds from real kubelets. A planner that reuses each GPU immediately gives the first half to a
smaller gang, and preempts that gang when the second half could hold the job that ranks first. The timeout is
`PlannerSettings.gang_completion_timeout_seconds`.
"""

from collections.abc import Iterator

from tranche.planner.context import PendingGangCompletion, PlannerContext
from tranche.planner.events import (
    Event,
    JobChanged,
    JobSubmitted,
    ProgressReported,
    WorkerBound,
    WorkerEnded,
    WorkerStarted,
)
from tranche.state.job import JobState


def defer_member_end(context: PlannerContext, event: WorkerEnded) -> bool:
    """Hold the end of a finished member while other members of its gang still train; returns whether it is held."""
    if event.outcome != "Succeeded":
        return False
    state = context.cluster.jobs.get(event.job)
    if state is None or not _ends_together(state) or event.attempt not in state.runs:
        return False
    held = context.pending_completions.get(event.job)
    ended = held.ends if held is not None else {}
    if all(attempt in ended or attempt == event.attempt for attempt in state.runs):
        return False
    if held is None:
        held = context.pending_completions[event.job] = PendingGangCompletion(
            context.now + context.settings.gang_completion_timeout_seconds
        )
        context.wake(held.until, event.job)
    held.ends[event.attempt] = event
    return True


def release_due(context: PlannerContext, event: Event) -> Iterator[tuple[WorkerEnded, bool]]:
    """Remove and yield the held ends to count before this event, and whether other members have not ended with them.

    These are the ends of the job whose windows the event may change, and those whose timeout has passed.
    """
    key = _affected_job(event)
    last = event.attempt if isinstance(event, WorkerEnded) else None
    for job in [job for job, held in context.pending_completions.items() if job == key or held.until <= context.now]:
        state, ends = context.cluster.jobs.get(job), context.pending_completions.pop(job).ends
        ended = {*ends, last} if job == key else set(ends)
        is_alone = state is not None and not state.runs.keys() <= ended
        for end in ends.values():
            yield end, is_alone


def _ends_together(state: JobState) -> bool:
    """Return whether the job is a gang without a chief whose members all train; a chief's end would end the job."""
    runs = state.runs.values()
    return state.job.is_gang and state.job.chief is None and not any(run.closing or run.started is None for run in runs)


def _affected_job(event: Event) -> str | None:
    """Return the job whose windows the event may change."""
    match event:
        case WorkerBound() | WorkerStarted() | ProgressReported():
            return None
        case JobSubmitted() | JobChanged():
            return event.job.key
    return getattr(event, "job", None)
