"""Journal: the history of all windows as a list of facts, with one format for live and simulated planners."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from tranche.planner.events import Event, JobSubmitted, WorkerEnded, WorkerStarted
from tranche.planner.instructions import CloseWindow, ExtendWindow, Instruction, OpenWindow
from tranche.planner.planner import Planner
from tranche.planner.settings import PlannerSettings
from tranche.policies import Policy

Kind = Literal["submitted", "opened", "renewed", "closing", "started", "ended"]


@dataclass(frozen=True, slots=True)
class Fact:
    """One entry of a journal."""

    at: float
    """The planner's clock in seconds when it learned or decided this."""
    kind: Kind
    job: str
    attempt: int = 0
    """Attempt number of the window; 0 for a fact about a job."""
    node: str = ""
    chunks: tuple[int, ...] = ()
    handover: bool = False
    """Whether a worker that is to stop still held the slots at the opening."""
    outcome: str = ""
    """Outcome of an ended worker."""


class JournaledPlanner(Planner):
    """A planner that passes facts about its windows to a callback."""

    def __init__(self, policy: Policy, settings: PlannerSettings | None, note: Callable[[Fact], None]) -> None:
        super().__init__(policy, settings)
        self._note = note

    def handle_all(self, events: Iterable[Event], now: float) -> list[Instruction]:
        """Apply events in order, decide once, and record both."""
        return self._record_instructions(super().handle_all(self._recording(events, now), now), now)

    def restore(self, jobs: Iterable[JobSubmitted], now: float, events: Iterable[Event] = ()) -> list[Instruction]:
        """Take over the jobs of an earlier planner; windows that are open already are not recorded again."""
        return self._record_instructions(super().restore(jobs, now, self._recording(events, now)), now)

    def _recording(self, events: Iterable[Event], now: float) -> Iterator[Event]:
        for event in events:
            self._note_event(event, now)
            yield event

    def _note_event(self, event: Event, now: float) -> None:
        match event:
            case JobSubmitted(job=job) if job.key not in self.cluster.jobs:
                self._note(Fact(now, "submitted", job.key))
            case WorkerStarted(job=key, attempt=attempt) if self._has_window(key, attempt):
                self._note(Fact(event.at, "started", key, attempt))
            case WorkerEnded(job=key, attempt=attempt) if self._has_window(key, attempt):
                self._note(Fact(event.at, "ended", key, attempt, outcome=event.outcome))
            case _:
                pass

    def _has_window(self, key: str, attempt: int) -> bool:
        return key in self.cluster.jobs and attempt in self.cluster.jobs[key].runs

    def _record_instructions(self, instructions: list[Instruction], now: float) -> list[Instruction]:
        """Record instructions, closings first: those of one time have no order, and slots are freed before reuse."""
        for closed in [i for i in instructions if isinstance(i, CloseWindow)]:
            self._note(Fact(now, "closing", closed.job, closed.window.attempt))
        for opened in [i for i in instructions if isinstance(i, OpenWindow)]:
            key, window = opened.job, opened.window
            run = self.cluster.jobs[key].runs.get(window.attempt)
            handover = run is not None and run.handover
            self._note(Fact(now, "opened", key, window.attempt, window.node or window.site, window.chunks, handover))
        for one in [i for i in instructions if isinstance(i, ExtendWindow)]:
            place = one.window.node or one.window.site
            self._note(Fact(now, "renewed", one.job, one.window.attempt, place, one.window.chunks))
        return instructions
