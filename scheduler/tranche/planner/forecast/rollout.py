"""Rollout: a simulation of a copy of the planner, in which every worker behaves as predicted.

The production planner decides in the copy, so ranks, preemption, gangs, data copies, parameter servers, CPU and memory
count as they do in the live planner. The rollout leaves out what is unknown: arrivals, failures and the true duration
of chunks. It serves policies with one queue; binding policies have their plan already. `shallow_copy` keeps the cost of
copying thousands of objects low, because no event is handled meanwhile.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from math import inf
from typing import Any, Protocol, TypeVar

from tranche.model import ChunkRequest, Window
from tranche.planner.context import PlannerContext
from tranche.planner.events import ChiefEnded, ChunksRequested, Event, JobChanged, Tick, WorkerEnded, WorkerStarted
from tranche.planner.forecast.steps import Steps, run_to_completion
from tranche.planner.instructions import CloseParameterServer, CloseWindow, ExtendWindow, Instruction, OpenWindow
from tranche.planner.job_actions import HelperEnd, end_of, expected_end
from tranche.planner.settings import PlannerSettings
from tranche.state.entities import JobState, TrackedWindow, expected_copies
from tranche.state.progress_ledger import applied_in_order
from tranche.state.site_usage import JobUse
from tranche.state.tenant_usage import History

T = TypeVar("T")


def shallow_copy(original: T) -> T:
    """Return a shallow copy of a dataclass with slots, several times as fast as `copy.copy`."""
    kind: Any = type(original)
    made = object.__new__(kind)
    for name in kind.__slots__:
        setattr(made, name, getattr(original, name))
    return made  # type: ignore[no-any-return]


DECISIONS = 500
"""At most so many are played."""
TIMER = 0.1
"""A decision at which nothing has happened but time counts so much: jobs age, and hardly anything comes of it."""
LOOKS = 20
"""So often the planner on paper looks ahead for copies of data; later it makes do with those it has."""


class SimulatedPlanner(Protocol):
    """What a rollout needs of the planner that decides in it; `tranche.planner.Planner` is one."""

    context: PlannerContext

    def handle_all(self, events: Sequence[Event], now: float) -> list[Instruction]:
        """Apply events, and decide once."""

    def next_wakeup(self) -> float | None:
        """When a `Tick` is due at the latest."""


PlannerFactory = Callable[[PlannerSettings], SimulatedPlanner]
"""Makes an empty planner of the same policy; the planner passes it in, so that forecasts need not import it."""


@dataclass(frozen=True, slots=True)
class Start:
    """How a job that waits comes to its first window."""

    at: float
    site: str
    node: str
    behind: str | None = None
    """Whose window ended or was stopped there in that moment."""


@dataclass(frozen=True, slots=True)
class PlannedChunk:
    """Where and when a chunk trains in windows that are not open yet, or that are stopped before its end."""

    site: str
    node: str
    start: float
    """Of the first of these windows."""
    end: float | None
    """Of the last one; None: that is later than is rehearsed."""
    attempt: int = 0
    """Of the window that is open already; 0: none is."""


@dataclass(slots=True, eq=False)
class Rollout:
    """A planner on paper and what happens to its workers."""

    planner: SimulatedPlanner
    now: float
    starts: dict[str, Start] = field(default_factory=dict)
    """Of jobs that had no window, by key."""
    completions: dict[str, float] = field(default_factory=dict)
    chunks: dict[str, dict[int, PlannedChunk]] = field(default_factory=dict)
    """Those that came into a window or were stopped, by job; with the place of the first window if it was several."""
    cut_short: bool = False
    """Not everything was played."""
    until: tuple[str, float] | None = None
    """Nothing matters but whether this job starts, which has no window, before that time."""
    _looks: int = LOOKS
    _ends: list[tuple[float, str, int]] = field(default_factory=list)
    _begins: list[tuple[float, str, int]] = field(default_factory=list)
    _freed: dict[str, str] = field(default_factory=dict)
    """Nodes where somebody has made room in this moment, and who."""

    def play(self, decisions: float, *first: Event) -> Iterator[None]:
        """Let things happen, these first, until all jobs are done, nothing more happens, or so much is decided.

        Yields after each decision; the planner that was copied may go on meanwhile.
        """
        self._adopt()
        unfinished = {key for key, state in self.planner.context.cluster.jobs.items() if state.active}
        told: list[Event] = [*first, *self._leaving(), *self._due()]
        while len(self.completions) < len(unfinished) and not self._is_known():
            self.cut_short = decisions <= 0
            if self.cut_short:
                return
            if not told:
                times = [heap[0][0] for heap in (self._ends, self._begins) if heap]
                wakeup = self.planner.next_wakeup()
                times += [] if wakeup is None else [wakeup]
                if not times:
                    return
                self.now = max(self.now, min(times))
                self._freed = {}
                told = self._due()
            decisions -= 1 if told else TIMER
            told = self._tell(told)
            yield

    def _leaving(self) -> list[HelperEnd]:
        """Parameter servers that are to stop have done so, and so have chiefs whose workers are done."""
        jobs = self.planner.context.cluster.jobs
        stopped = [
            end_of(key, server.planned, "Preempted", 143)
            for key, state in jobs.items()
            for server in state.servers
            if server.closing
        ]
        return stopped + [end for key, state in jobs.items() if (end := expected_end(key, state)) is not None]

    def _is_known(self) -> bool:
        """Whether the one thing that matters is known."""
        return self.until is not None and (self.until[0] in self.starts or self.now >= self.until[1])

    def _adopt(self) -> None:
        """Have workers that are already there begin and end."""
        for state in self.planner.context.cluster.jobs.values():
            for run in state.runs.values():
                if run.closing:
                    heappush(self._ends, (self.now, state.job.key, run.window.attempt))
                elif run.started is None:
                    begin = max(self.now, run.opened + state.job.restart_seconds)
                    heappush(self._begins, (begin, state.job.key, run.window.attempt))
                else:
                    self._will_end(state, run)

    def _due(self) -> list[Event]:
        """What has happened by now, ends before beginnings."""
        told: list[Event] = []
        while self._ends and self._ends[0][0] <= self.now:
            _, key, attempt = heappop(self._ends)
            run = self._run(key, attempt)
            if run is not None:
                told.append(self._ended(key, run))
        while self._begins and self._begins[0][0] <= self.now:
            at, key, attempt = heappop(self._begins)
            run = self._run(key, attempt)
            if run is not None and not run.closing:
                told.append(WorkerStarted(key, attempt, at))
        return told

    def _run(self, key: str, attempt: int) -> TrackedWindow | None:
        state = self.planner.context.cluster.jobs.get(key)
        return state.runs.get(attempt) if state is not None else None

    def _ended(self, key: str, run: TrackedWindow) -> WorkerEnded | ChunksRequested:
        whole = dict.fromkeys(run.window.chunks, inf)
        if run.window.renewed and not run.ending:  # it asks again, and ends if it is sent home
            return ChunksRequested(ChunkRequest(key, run.window.attempt, run.window.fence, whole), self.now)
        if not run.closing:
            self._freed.setdefault(run.home.node or "", key)
            return WorkerEnded(key, run.window.attempt, "Succeeded", self.now, whole)
        progress = self._progress(self.planner.context.cluster.jobs[key], run)
        return WorkerEnded(key, run.window.attempt, "Preempted", self.now, progress, 143)

    def _tell(self, told: list[Event]) -> list[Event]:
        """One decision; returns what follows from it at once."""
        jobs = self.planner.context.cluster.jobs
        instructions = self.planner.handle_all(told or (Tick(),), self.now)
        self._count_looks()
        following: list[Event] = []
        for event in told:
            if isinstance(event, WorkerStarted) and (run := self._run(event.job, event.attempt)) is not None:
                self._will_end(jobs[event.job], run)
            elif isinstance(event, ChunksRequested) and (run := self._run(*_asker(event))) is not None:
                if run.ending:
                    following.append(self._ended(event.request.job, run))
                else:
                    self._will_end(jobs[event.request.job], run)
            elif isinstance(event, WorkerEnded | ChiefEnded) and jobs[event.job].finished:
                self.completions[event.job] = self.now
        touched = dict.fromkeys(event.job for event in told if isinstance(event, WorkerEnded))
        ends = (expected_end(key, jobs[key]) for key in touched)
        following += [end for end in ends if end is not None]
        for instruction in instructions:
            match instruction:
                case CloseWindow(job=key, window=window):
                    run = self._run(key, window.attempt)
                    if run is not None:
                        self._freed.setdefault(run.home.node or "", key)
                        following.append(self._ended(key, run))
                        self._note_stop(key, run)
                case CloseParameterServer(job=key, server=server):
                    following.append(end_of(key, server, "Preempted", 143))
                case OpenWindow(job=key, window=window):
                    self._note_start(key, window)
                    self._note_chunks(key, window, self.now + jobs[key].job.restart_seconds)
                    heappush(self._begins, (self.now + jobs[key].job.restart_seconds, key, window.attempt))
                case ExtendWindow(job=key, window=window):
                    self._note_chunks(key, window, self.now)
                case _:
                    pass
        return [*following, *self._due()]

    def _count_looks(self) -> None:
        queue = self.planner.context.queue
        assert queue is not None
        self._looks -= queue.looked_ahead == self.now
        if self._looks <= 0:
            queue.looked_ahead, queue.look_due = inf, True

    def _note_start(self, key: str, window: Window) -> None:
        if key not in self.starts:
            node = window.node or ""
            others = (other for other in (self._freed.get(node), *self._freed.values()) if other not in (None, key))
            self.starts[key] = Start(self.now, window.site, node, next(others, None))

    def _note_chunks(self, key: str, window: Window, trains: float) -> None:
        """A window begins: its chunks train one after the other from then on."""
        run = self._run(key, window.attempt)
        if run is None:
            return
        state, start, end = self.planner.context.cluster.jobs[key], self.now, trains
        pace, known = self._pace(state, run), self.chunks.setdefault(key, {})
        for chunk in window.chunks:
            end += state.remaining_batches(chunk) * pace
            first = known.get(chunk)
            known[chunk] = (
                PlannedChunk(window.site, window.node or "", start, end) if first is None else (replace(first, end=end))
            )
            start = end

    def _note_stop(self, key: str, run: TrackedWindow) -> None:
        """A window is stopped: when those of its chunks end that are not through is open again."""
        state, known, window = self.planner.context.cluster.jobs[key], self.chunks.setdefault(key, {}), run.window
        for chunk, batches in self._progress(state, run).items():
            if batches < state.job.batches_per_chunk_total:
                planned = PlannedChunk(window.site, window.node or "", window.start, None, window.attempt)
                known[chunk] = replace(known[chunk], end=None) if chunk in known else planned

    # ---- how long workers train

    def _pace(self, state: JobState, run: TrackedWindow) -> float:
        """Seconds per mini-batch; a gang is as fast as its slowest member."""
        return max(one.batch_seconds for one in state.runs.values()) if state.job.is_gang else run.batch_seconds

    def _will_end(self, state: JobState, run: TrackedWindow) -> None:
        rest = state.left_of(run) * self._pace(state, run)
        end = (self.now if run.since is None else run.since) + rest
        heappush(self._ends, (max(self.now, end), state.job.key, run.window.attempt))

    def _progress(self, state: JobState, run: TrackedWindow) -> dict[int, float]:
        """Batches applied by chunk, as far as is expected."""
        trained = 0.0 if run.since is None else max(0.0, self.now - run.since) / self._pace(state, run)
        total = state.job.batches_per_chunk_total
        before = {c: total if c in state.done else state.known_batches(c) for c in run.window.chunks}
        return applied_in_order(run.window.chunks, before, total, trained)


def _asker(event: ChunksRequested) -> tuple[str, int]:
    return event.request.job, event.request.attempt


def run_rollout(
    context: PlannerContext,
    new_planner: PlannerFactory,
    later: Collection[JobState],
    now: float,
    decisions: int = DECISIONS,
    *,
    without: str | None = None,
    until: tuple[str, float] | None = None,
) -> Rollout:
    """Play the queue forward.

    Args:
        context: Of the planner, whose policy has one queue; it is left as it is.
        new_planner: Makes the planner that decides in the rollout.
        later: Waiting jobs to leave out: those that come after all others.
        now: Clock, in seconds.
        decisions: At most so many are played.
        without: A job that is suspended first.
        until: Stop when this job, which has no window, starts, or at that time.
    """
    rollout = run_to_completion(prepare(context, new_planner, later, now))
    rollout.until = until
    absent = context.cluster.jobs[without].job if without is not None else None
    for _ in rollout.play(decisions, *([JobChanged(replace(absent, suspended=True))] if absent is not None else [])):
        pass
    return rollout


def prepare(
    context: PlannerContext, new_planner: PlannerFactory, later: Collection[JobState], now: float
) -> Steps[Rollout]:
    """A rollout that has not begun; what the planner does after the first piece does not concern it."""
    left_out = {state.job.key for state in later}
    jobs = context.cluster.jobs.items()
    chosen = {key for key, state in jobs if state.runs or (state.active and key not in left_out)}
    simulated, resuming = _copy_planner(context, new_planner, chosen, now)
    yield
    yield from resuming
    rollout = Rollout(simulated, now)
    for key, state in simulated.context.cluster.jobs.items():
        active = [run for run in state.runs.values() if not run.closing]
        if active:
            first = min(active, key=lambda run: run.window.start)
            rollout.starts[key] = Start(first.window.start, first.window.site, first.window.node or "")
    return rollout


def _copy_planner(
    context: PlannerContext, new_planner: PlannerFactory, chosen: set[str], now: float
) -> tuple[SimulatedPlanner, Iterator[None]]:
    """A planner in the same state that knows these jobs only; among them must be all that have windows.

    Its queue stands as the other one does when the iterator has come to its end.
    """
    assert context.queue is not None
    settings = replace(context.settings, validate=False, uploads_reported=False, server_idle_seconds=inf)
    planner = new_planner(settings)
    simulated = planner.context
    assert simulated.queue is not None
    cluster, old = simulated.cluster, context.cluster
    cluster.sites, cluster.epoch, cluster.dispatched = dict(old.sites), old.epoch, old.dispatched
    cluster.history = History(list(old.history.services))
    cluster.shares, cluster.uploads = old.shares.copied(), deepcopy(old.uploads)
    cluster.speed_model, cluster.quotas = deepcopy(old.speed_model), old.quotas.copied()
    for name, node in old.nodes.items():
        cluster.nodes[name] = twin = shallow_copy(node)
        twin.runs, twin.closing_runs, twin.queues, twin.free_nodes = {}, {}, list(node.queues), None
    for key, state in old.jobs.items():  # in this order: it decides where nothing else does
        if key in chosen:
            _copy_job(simulated, state)
    simulated.timers = context.timers.copied(cluster.jobs)
    return planner, simulated.queue.resume(context.queue, now)


def _copy_job(simulated: PlannerContext, state: JobState) -> None:
    twin = simulated.cluster.jobs[state.job.key] = shallow_copy(state)
    twin.done, twin.partial, twin.excluded_nodes = set(state.done), dict(state.partial), dict(state.excluded_nodes)
    twin.applied, twin.node_rejections = dict(state.applied), dict(state.node_rejections)
    twin.restarts, twin.use = state.restarts.for_rollout(), JobUse()
    twin.entries, twin.data_sites, twin.cloud = {}, dict(state.data_sites), dict(state.cloud)
    if state.job.staged:  # staging pods of the copy take as long as expected
        twin.job = replace(state.job, staged=False)
    twin.copies, twin.coming = expected_copies(state.copies, state.coming), {}
    twin.stagings = {site: shallow_copy(staging) for site, staging in state.stagings.items()}
    twin.servers, twin.hosts = [shallow_copy(server) for server in state.servers], (-1, None)
    twin.runs, twin.chunk_runs = {}, {}
    twin.windows_changed()
    for attempt, run in state.runs.items():
        again = shallow_copy(run)
        twin.enter(again)
        node = simulated.cluster.nodes.get(run.home.node or "")
        if node is not None:
            node.runs[state.job.key, attempt] = (twin, again)
            if run.closing:
                node.closing_runs[state.job.key, attempt] = again
