"""The event-driven engine: arrivals in, the production planner decides, workers run in virtual time."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from statistics import mean

from tranche.model import Job, Node, Site, Window
from tranche.planner import (
    CloseWindow,
    Event,
    Instruction,
    JobSubmitted,
    NodeChanged,
    OpenWindow,
    Planner,
    PlannerSettings,
    SiteChanged,
    Tick,
    WorkerEnded,
    WorkerStarted,
)
from tranche.policies import JobState, Policy

BatchSeconds = Callable[[Job, Window], float]
"""True time of one mini-batch of a window, in seconds."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """How one job fared."""

    key: str
    submitted: float
    completed: float
    preemptions: int
    chunk_completions: tuple[float, ...]

    @property
    def jct_seconds(self) -> float:
        """Job completion time."""
        return self.completed - self.submitted


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What came out: the finished jobs in order of completion, and those that never could run."""

    jobs: tuple[JobResult, ...]
    unfinished: Mapping[str, str]
    """By key: why, in the planner's words."""

    @property
    def average_jct_seconds(self) -> float:
        """Mean job completion time."""
        return mean(job.jct_seconds for job in self.jobs)


@dataclass(slots=True)
class _Worker:
    window: Window
    started: float
    per_batch: float
    begun: dict[int, float]
    total: int

    def progress(self, now: float) -> dict[int, float]:
        """Batches applied by chunk: chunks are trained in the order of the list."""
        budget = max(0.0, now - self.started) / self.per_batch
        applied: dict[int, float] = {}
        for chunk in self.window.chunks:
            before = self.begun.get(chunk, 0.0)
            done = min(budget, self.total - before)
            budget -= done
            applied[chunk] = before + done
        return applied


@dataclass(slots=True)
class Simulation:
    """Drives one planner through virtual time; `run` to the end, or feed events and `advance`."""

    planner: Planner
    restart_seconds: float = 0.0
    """ρ as it really is: from the opening of a window to the first batch."""
    batch_seconds: BatchSeconds | None = None
    """True speeds; the planner's own prediction if None."""
    now: float = 0.0
    history: list[tuple[float, Instruction]] = field(default_factory=list)
    _heap: list[tuple[float, int, Event]] = field(default_factory=list)
    _order: "count[int]" = field(default_factory=count)
    _workers: dict[tuple[str, int], _Worker] = field(default_factory=dict)
    _chunk_ends: dict[str, dict[int, float]] = field(default_factory=dict)
    _ended: dict[str, float] = field(default_factory=dict)

    def at(self, time: float, event: Event) -> None:
        """Have the planner told of an event at that time."""
        heappush(self._heap, (time, next(self._order), event))

    def run(self) -> None:
        """Until nothing is left to happen."""
        while self._heap or self.planner.next_wakeup() is not None:
            self.step()

    def step(self) -> None:
        """The next event, or the planner's own timer if that is earlier."""
        wakeup = self.planner.next_wakeup()
        if wakeup is not None and (not self._heap or wakeup < self._heap[0][0]):
            self.now = max(self.now, wakeup)
            self._tell(Tick())
            return
        self.now, _, event = heappop(self._heap)
        if isinstance(event, WorkerStarted | WorkerEnded):
            worker = self._workers.get((event.job, event.attempt))
            if worker is None:
                return  # preempted before
            if isinstance(event, WorkerEnded):
                self._finish(event.job, worker)
        self._tell(event)

    def _tell(self, event: Event) -> None:
        for instruction in self.planner.handle(event, self.now):
            self.history.append((self.now, instruction))
            match instruction:
                case OpenWindow(job=key, window=window):
                    self._start(self.planner.cluster.jobs[key], window)
                case CloseWindow(job=key, window=window):
                    self._stop(key, window)
                case _:
                    pass
        if isinstance(event, WorkerEnded):
            state = self.planner.cluster.jobs.get(event.job)
            if state is not None and state.finished:
                self._ended.setdefault(event.job, self.now)

    def _start(self, state: JobState, window: Window) -> None:
        run = state.runs[window.attempt]
        per_batch = self.batch_seconds(state.job, window) if self.batch_seconds else run.batch_seconds
        begun = {c: state.partial.get(c, 0.0) for c in window.chunks}
        start = self.now + self.restart_seconds
        worker = _Worker(window, start, per_batch, begun, state.job.batches_per_chunk_total)
        self._workers[(state.job.key, window.attempt)] = worker
        seconds = sum(state.remaining_batches(c) for c in window.chunks) * per_batch
        self.at(start, WorkerStarted(state.job.key, window.attempt, start))
        self.at(start + seconds, WorkerEnded(state.job.key, window.attempt, "Succeeded", start + seconds))

    def _stop(self, key: str, window: Window) -> None:
        worker = self._workers.pop((key, window.attempt), None)
        if worker is not None:
            self._tell(WorkerEnded(key, window.attempt, "Preempted", self.now, worker.progress(self.now), 143))

    def _finish(self, key: str, worker: _Worker) -> None:
        self._workers.pop((key, worker.window.attempt))
        ends = self._chunk_ends.setdefault(key, {})
        end = worker.started
        for chunk in worker.window.chunks:
            end += (worker.total - worker.begun.get(chunk, 0.0)) * worker.per_batch
            ends[chunk] = end

    def result(self) -> SimulationResult:
        """What has finished so far, and why the rest has not."""
        done: list[JobResult] = []
        unfinished: dict[str, str] = {}
        for key, state in self.planner.cluster.jobs.items():
            if key in self._ended:
                ends = self._chunk_ends.get(key, {})
                chunks = tuple(ends.get(c, self._ended[key]) for c in range(state.job.chunks))
                done.append(JobResult(key, state.job.submitted, self._ended[key], state.preemptions, chunks))
            else:
                unfinished[key] = self.planner.plan_of(key, self.now).explanation
        return SimulationResult(tuple(sorted(done, key=lambda job: job.completed)), unfinished)


def simulate(
    jobs: Iterable[Job],
    nodes: Sequence[Node],
    sites: Sequence[Site],
    policy: Policy,
    *,
    restart_seconds: float = 0.0,
    settings: PlannerSettings | None = None,
) -> SimulationResult:
    """Run the jobs to their ends.

    Args:
        jobs: Each arrives at its `submitted`.
        nodes: The cluster.
        sites: With their links.
        policy: Any of the registry.
        restart_seconds: ρ as it really is, charged at every pod start.
        settings: Of the planner.
    """
    simulation = Simulation(Planner(policy, settings), restart_seconds)
    for site in sites:
        simulation.planner.handle(SiteChanged(site), 0.0)
    for node in nodes:
        simulation.planner.handle(NodeChanged(node), 0.0)
    for job in jobs:
        simulation.at(job.submitted, JobSubmitted(job))
    simulation.run()
    return simulation.result()
