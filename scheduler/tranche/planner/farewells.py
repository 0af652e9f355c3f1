"""The members of a gang end one after another, and as one: what the first leave waits for what the last leave.

Ours [I]. A gang's members are done in the same moment, but their ends are told one by one, over a tenth of a second
here and over seconds by real kubelets. Whoever gives away each GPU at once gives the first half to a smaller gang, and
takes it back when the second half could hold who comes first in the queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from tranche.planner.machines import Planner


@dataclass(slots=True)
class Farewell:
    """A gang of which some members are done."""

    until: float
    """When their ends count, whatever the others do."""
    ends: dict[int, WorkerEnded] = field(default_factory=dict)
    """By attempt, in the order in which they were told."""


def puts_off(planner: Planner, event: Event, now: float) -> bool:
    """Whether a fact is to count later: that a member is done, while others of its gang are about to be."""
    if not isinstance(event, WorkerEnded) or event.outcome != "Succeeded":
        return False
    state = planner.cluster.jobs.get(event.job)
    if state is None or not _ends_as_one(state) or event.attempt not in state.runs:
        return False
    farewell = planner.farewells.get(event.job)
    told = farewell.ends if farewell is not None else {}
    if all(attempt in told or attempt == event.attempt for attempt in state.runs):
        return False
    if farewell is None:
        farewell = planner.farewells[event.job] = Farewell(now + planner.settings.farewell_seconds)
        planner.wake(farewell.until, event.job)
    farewell.ends[event.attempt] = event
    return True


def due(planner: Planner, event: Event, now: float) -> Iterator[WorkerEnded]:
    """Ends that were put off and count now, before this fact does: it decides on the job, or they have waited."""
    key = _decides_on(event)
    for job in [job for job, farewell in planner.farewells.items() if job == key or farewell.until <= now]:
        yield from planner.farewells.pop(job).ends.values()


def _ends_as_one(state: JobState) -> bool:
    """Whether the job is a gang whose members are all at work; with a chief, it is the chief's end that counts."""
    runs = state.runs.values()
    return state.job.is_gang and state.job.chief is None and not any(run.closing or run.started is None for run in runs)


def _decides_on(event: Event) -> str | None:
    """The job of which a fact may change the windows."""
    match event:
        case WorkerBound() | WorkerStarted() | ProgressReported():
            return None
        case JobSubmitted() | JobChanged():
            return event.job.key
    return getattr(event, "job", None)
