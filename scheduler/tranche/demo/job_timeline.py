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
    workers: dict[int, WorkerTimeline] = field(default_factory=dict)
    """Workers by attempt."""

    @property
    def ended(self) -> float:
        """End of the last worker that completed its chunks."""
        return max(
            (
                worker.ended
                for worker in self.workers.values()
                if worker.ended is not None and worker.outcome == "Succeeded"
            ),
            default=0,
        )

    @property
    def preemptions(self) -> int:
        """Number of workers that were stopped after they had started to train."""
        return sum(
            worker.started is not None and worker.outcome in ("Preempted", "Lost") for worker in self.workers.values()
        )

    @property
    def last_nodes(self) -> dict[int, str]:
        """Node on which each chunk was completed."""
        return {
            c: worker.node for worker in self.workers.values() if worker.outcome == "Succeeded" for c in worker.chunks
        }


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


def read_timelines(facts: Iterable[Fact], clouds: Collection[str] = ()) -> dict[str, JobTimeline]:
    """Read the timelines of all jobs of a journal, by key.

    Args:
        facts: Entries of the journal.
        clouds: Unlimited sites. A window there mostly waits for a node, so it does not count as concurrent.
    """
    timelines: dict[str, JobTimeline] = {}
    in_progress: set[tuple[str, int]] = set()
    for fact in facts:
        timeline = timelines.setdefault(fact.job, JobTimeline(fact.at))
        if fact.kind == "opened":
            worker = WorkerTimeline(fact.node, fact.chunks, fact.at, fact.handover, len(in_progress))
            timeline.workers[fact.attempt] = worker
            if fact.node not in clouds:
                in_progress.add((fact.job, fact.attempt))
        elif fact.attempt in timeline.workers:
            in_progress.discard((fact.job, fact.attempt))
            if _note(timeline.workers[fact.attempt], fact, len(in_progress)):
                in_progress.add((fact.job, fact.attempt))
    return timelines


def _note(worker: WorkerTimeline, fact: Fact, concurrent: int) -> bool:
    """Record an entry of the journal; return whether the worker stops from now on."""
    if fact.kind == "started" and worker.started is None:
        worker.started = fact.at
    elif fact.kind == "ended" and worker.ended is None:
        worker.ended, worker.outcome = fact.at, fact.outcome
    elif fact.kind == "closing" and worker.closing is None:
        worker.closing, worker.concurrent_at_closing = fact.at, concurrent
        return worker.started is not None and worker.ended is None
    return False


def split(timeline: JobTimeline, completed: float) -> Phases:
    """Split the time from submission to `completed` (seconds of the same clock) into its parts."""
    ended = min(timeline.ended, completed)
    training = _covered(_spans(timeline, ended, trained=True))
    open_seconds = _covered(_spans(timeline, ended, trained=False))
    waiting = max(0.0, ended - timeline.submitted) - open_seconds
    return Phases(waiting, open_seconds - training, training, completed - ended)


def _spans(timeline: JobTimeline, until: float, *, trained: bool) -> Iterator[tuple[float, float]]:
    for worker in timeline.workers.values():
        begin = worker.started if trained else worker.opened
        if begin is not None and begin < until:
            yield max(begin, timeline.submitted), min(worker.ended if worker.ended is not None else until, until)


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of the spans."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def all_workers(timelines: Mapping[str, JobTimeline]) -> Sequence[WorkerTimeline]:
    """Return all workers of all jobs."""
    return [worker for timeline in timelines.values() for worker in timeline.workers.values()]
