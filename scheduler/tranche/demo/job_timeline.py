"""Timeline of each job by window, from the journal of a live or simulated planner."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tranche.planner.journal import Fact


@dataclass(slots=True, eq=False)
class WorkerTimeline:
    """Timeline of one worker pod; times in seconds of the planner's clock, None if it has not happened."""

    node: str
    chunks: tuple[int, ...]
    opened: float
    handover: bool = False
    """Whether another worker had to free its slots first."""
    concurrent: int = 0
    """Number of other starts and stops in progress at the opening."""
    started: float | None = None
    closing: float | None = None
    concurrent_at_closing: int = 0
    """Number of other starts and stops in progress at the closing."""
    ended: float | None = None
    outcome: str = ""


@dataclass(slots=True, eq=False)
class JobTimeline:
    """Timeline of one job."""

    submitted: float
    stays: dict[int, WorkerTimeline] = field(default_factory=dict)
    """Workers by attempt."""

    @property
    def ended(self) -> float:
        """End of the last worker that completed its chunks."""
        return max(
            (s.ended for s in self.stays.values() if s.ended is not None and s.outcome == "Succeeded"), default=0
        )

    @property
    def preemptions(self) -> int:
        """Number of workers that were stopped after they had started to train."""
        return sum(s.started is not None and s.outcome in ("Preempted", "Lost") for s in self.stays.values())

    @property
    def last_nodes(self) -> dict[int, str]:
        """Node on which each chunk was completed."""
        return {c: stay.node for stay in self.stays.values() if stay.outcome == "Succeeded" for c in stay.chunks}


@dataclass(frozen=True, slots=True)
class Phases:
    """The four parts of a job completion time, in seconds; their sum is the total."""

    waiting: float
    """No window of the job was open."""
    starting: float
    """Windows were open, and no worker trained."""
    training: float
    """At least one worker trained."""
    reporting: float
    """All work was done, but the job status did not show it yet."""

    @property
    def total(self) -> float:
        """The job completion time."""
        return self.waiting + self.starting + self.training + self.reporting


def read_courses(facts: Iterable[Fact], clouds: Collection[str] = ()) -> dict[str, JobTimeline]:
    """Read the timelines of all jobs of a journal, by key.

    Args:
        facts: Entries of the journal.
        clouds: Unlimited sites. A window there mostly waits for a node, so it does not count as concurrent.
    """
    courses: dict[str, JobTimeline] = {}
    under_way: set[tuple[str, int]] = set()
    for fact in facts:
        course = courses.setdefault(fact.job, JobTimeline(fact.at))
        if fact.kind == "opened":
            stay = WorkerTimeline(fact.node, fact.chunks, fact.at, fact.handover, len(under_way))
            course.stays[fact.attempt] = stay
            if fact.node not in clouds:
                under_way.add((fact.job, fact.attempt))
        elif fact.attempt in course.stays:
            under_way.discard((fact.job, fact.attempt))
            if _note(course.stays[fact.attempt], fact, len(under_way)):
                under_way.add((fact.job, fact.attempt))
    return courses


def _note(stay: WorkerTimeline, fact: Fact, concurrent: int) -> bool:
    """Record an entry. Returns whether the worker is stopping from now on."""
    if fact.kind == "started" and stay.started is None:
        stay.started = fact.at
    elif fact.kind == "ended" and stay.ended is None:
        stay.ended, stay.outcome = fact.at, fact.outcome
    elif fact.kind == "closing" and stay.closing is None:
        stay.closing, stay.concurrent_at_closing = fact.at, concurrent
        return stay.started is not None and stay.ended is None
    return False


def split(course: JobTimeline, completed: float) -> Phases:
    """Split the time from submission to `completed` (seconds of the same clock) into its parts."""
    ended = min(course.ended, completed)
    training = _covered(_spans(course, ended, trained=True))
    open_seconds = _covered(_spans(course, ended, trained=False))
    waiting = max(0.0, ended - course.submitted) - open_seconds
    return Phases(waiting, open_seconds - training, training, completed - ended)


def _spans(course: JobTimeline, until: float, *, trained: bool) -> Iterator[tuple[float, float]]:
    for stay in course.stays.values():
        begin = stay.started if trained else stay.opened
        if begin is not None and begin < until:
            yield max(begin, course.submitted), min(stay.ended if stay.ended is not None else until, until)


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """Length of the union of the spans."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def stays_of(courses: Mapping[str, JobTimeline]) -> Sequence[WorkerTimeline]:
    """Return all workers of all jobs."""
    return [stay for course in courses.values() for stay in course.stays.values()]
