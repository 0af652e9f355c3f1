"""Rollout: a simulation of a copy of the planner, in which every worker behaves as predicted.

The production planner decides in the copy, so ranks, preemption, gangs, data copies, parameter servers, CPU and memory
count as they do in the live planner. The rollout leaves out what is unknown: arrivals, failures and the true duration
of chunks. `shallow_copy` keeps the cost of copying thousands of objects low, because no event is handled meanwhile.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from functools import cache
from heapq import heappop, heappush
from math import inf
from typing import Any, Protocol, TypeVar

from tranche.model import ChunkRequest, Quota, Window
from tranche.planner.context import PlannerContext
from tranche.planner.events import (
    ChiefEnded,
    ChunksRequested,
    Event,
    JobChanged,
    JobSubmitted,
    QuotaChanged,
    Tick,
    WorkerEnded,
    WorkerStarted,
)
from tranche.planner.forecast.steps import Steps, run_to_completion
from tranche.planner.helper_end import HelperEnd, expected_chief_end, helper_end
from tranche.planner.instructions import CloseParameterServer, CloseWindow, ExtendWindow, Instruction, OpenWindow
from tranche.planner.settings import PlannerSettings
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState, QueuedChunk
from tranche.state.phases import WindowPhase
from tranche.state.progress_ledger import applied_in_order
from tranche.state.site_usage import JobUse
from tranche.state.staging import expected_copies
from tranche.state.window import TrackedWindow

T = TypeVar("T")


def shallow_copy(original: T) -> T:
    """Return a shallow copy of a dataclass, several times as fast as `copy.copy`."""
    kind: Any = type(original)
    made = kind.__new__(kind)
    for name in _names_of_fields(kind):
        setattr(made, name, getattr(original, name))
    return made  # type: ignore[no-any-return]


@cache
def _names_of_fields(kind: Any) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind))


DECISIONS = 500
"""Maximum number of decisions in a rollout."""
TIMER_DECISIONS = 0.1
"""Number of decisions as which a decision without events counts: it is cheap, because only time has passed."""
OVERDUE_POD_SECONDS = 3600.0
"""Assumed time for which a pod that does not stop holds its room from now on."""
MAX_PREVIEWS = 20
"""Number of previews for data copies in a rollout; after these, the simulated planner starts no more copies ahead."""


class SimulatedPlanner(Protocol):
    """Interface of the planner that decides in a rollout; `tranche.planner.Planner` implements it."""

    context: PlannerContext

    def handle_all(self, events: Sequence[Event], now: float) -> list[Instruction]:
        """Apply events, and decide once."""

    def next_wakeup(self) -> float | None:
        """Return the latest time of the next `Tick`, in seconds; None if there is none."""


PlannerFactory = Callable[[PlannerSettings], SimulatedPlanner]
"""Makes an empty planner of the same policy; the planner passes it in, so that forecasts need not import it."""


@dataclass(frozen=True, slots=True)
class Start:
    """First window of a waiting job in a rollout."""

    at: float
    site: str
    node: str
    behind: str | None = None
    """Key of the job whose window ended or was closed there at that time."""


@dataclass(frozen=True, slots=True)
class PlannedChunk:
    """Site, node and time of a chunk's training in windows that are not open yet, or are closed before its end."""

    site: str
    node: str
    start: float
    """Start of the first of these windows."""
    end: float | None
    """End of the last one; None if that is after the end of the rollout."""
    attempt: int = 0
    """Attempt number of the window that is open already; 0 if there is none."""


@dataclass(slots=True, eq=False)
class Rollout:
    """A simulated planner with the events of its workers."""

    planner: SimulatedPlanner
    now: float
    starts: dict[str, Start] = field(default_factory=dict)
    """First windows by job; for a job that has windows, its earliest open one."""
    completions: dict[str, float] = field(default_factory=dict)
    chunks: dict[str, dict[int, PlannedChunk]] = field(default_factory=dict)
    """Chunks that got a window or were stopped, by job; with the site and node of the first window."""
    cut_short: bool = False
    """Whether the rollout ended before all jobs did."""
    until: tuple[str, float] | None = None
    """Key of a job that has no window, and a time: the rollout ends when the job starts, or at that time."""
    _previews_left: int = MAX_PREVIEWS
    _ends: list[tuple[float, str, int]] = field(default_factory=list)
    _begins: list[tuple[float, str, int]] = field(default_factory=list)
    _freed: dict[str, str] = field(default_factory=dict)
    """Job that freed capacity at the current time, by node."""

    def play(self, decisions: float, *first: Event) -> Iterator[None]:
        """Simulate until all jobs are done, no event is left, or `decisions` decisions were made.

        Yields after each decision; the planner that was copied may handle events meanwhile.

        Args:
            decisions: Maximum number of decisions.
            first: Events to apply first.
        """
        self._adopt()
        unfinished = {key for key, state in self.planner.context.cluster.jobs.items() if state.active}
        unfinished |= {event.job.key for event in first if isinstance(event, JobSubmitted)}
        events: list[Event] = [*first, *self._ends_of_helpers(), *self._due()]
        while len(self.completions) < len(unfinished) and not self._is_known():
            self.cut_short = decisions <= 0
            if self.cut_short:
                return
            if not events:
                times = [heap[0][0] for heap in (self._ends, self._begins) if heap]
                wakeup = self.planner.next_wakeup()
                times += [] if wakeup is None else [wakeup]
                if not times:
                    return
                self.now = max(self.now, min(times))
                self._freed = {}
                events = self._due()
            decisions -= 1 if events else TIMER_DECISIONS
            events = self._decide(events)
            yield

    def _ends_of_helpers(self) -> list[HelperEnd]:
        """Return the ends of closing parameter servers, and of chiefs whose workers are done."""
        jobs = self.planner.context.cluster.jobs
        stopped = [
            helper_end(key, server.planned, "Preempted", 143)
            for key, state in jobs.items()
            for server in state.servers
            if server.closing
        ]
        return stopped + [end for key, state in jobs.items() if (end := expected_chief_end(key, state)) is not None]

    def _is_known(self) -> bool:
        """Return whether the result that `until` asks for is known."""
        return self.until is not None and (self.until[0] in self.starts or self.now >= self.until[1])

    def _adopt(self) -> None:
        """Schedule the starts and ends of workers in windows that are already open or closing."""
        for state in self.planner.context.cluster.jobs.values():
            for run in state.runs.values():
                if run.closing:
                    at = self.now + OVERDUE_POD_SECONDS if run.overdue else self.now
                    heappush(self._ends, (at, state.job.key, run.window.attempt))
                elif run.started is None:
                    has_node = run.phase is not WindowPhase.PENDING
                    begin = max(self.now, self._begin(state, run.window.site, run.opened, has_node=has_node))
                    heappush(self._begins, (begin, state.job.key, run.window.attempt))
                else:
                    self._will_end(state, run)

    def _due(self) -> list[Event]:
        """Remove and return the events up to now, ends before starts."""
        events: list[Event] = []
        while self._ends and self._ends[0][0] <= self.now:
            _, key, attempt = heappop(self._ends)
            run = self._run(key, attempt)
            if run is not None:
                events.append(self._ended(key, run))
        while self._begins and self._begins[0][0] <= self.now:
            at, key, attempt = heappop(self._begins)
            run = self._run(key, attempt)
            if run is not None and not run.closing:
                events.append(WorkerStarted(key, attempt, at))
        return events

    def _run(self, key: str, attempt: int) -> TrackedWindow | None:
        state = self.planner.context.cluster.jobs.get(key)
        return state.runs.get(attempt) if state is not None else None

    def _ended(self, key: str, run: TrackedWindow) -> WorkerEnded | ChunksRequested:
        whole = dict.fromkeys(run.window.chunks, inf)
        if run.window.renewed and not run.ending:  # it requests chunks again, and ends if it gets none
            return ChunksRequested(ChunkRequest(key, run.window.attempt, run.window.fence, whole), self.now)
        if not run.closing:
            self._freed.setdefault(run.home.node or "", key)
            return WorkerEnded(key, run.window.attempt, "Succeeded", self.now, whole)
        if run.overdue:
            return WorkerEnded(key, run.window.attempt, "Lost", self.now)
        progress = self._progress(self.planner.context.cluster.jobs[key], run)
        return WorkerEnded(key, run.window.attempt, "Preempted", self.now, progress, 143)

    def _decide(self, events: list[Event]) -> list[Event]:
        """Pass events to the planner for one decision; returns the events that follow immediately."""
        jobs = self.planner.context.cluster.jobs
        instructions = self.planner.handle_all(events or (Tick(),), self.now)
        self._count_previews()
        following: list[Event] = []
        for event in events:
            if isinstance(event, WorkerStarted) and (run := self._run(event.job, event.attempt)) is not None:
                self._will_end(jobs[event.job], run)
            elif isinstance(event, ChunksRequested) and (run := self._run(*_requester(event))) is not None:
                if run.ending:
                    following.append(self._ended(event.request.job, run))
                else:
                    self._will_end(jobs[event.request.job], run)
            elif isinstance(event, WorkerEnded | ChiefEnded) and jobs[event.job].finished:
                self.completions[event.job] = self.now
        touched = dict.fromkeys(event.job for event in events if isinstance(event, WorkerEnded))
        ends = (expected_chief_end(key, jobs[key]) for key in touched)
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
                    following.append(helper_end(key, server, "Preempted", 143))
                case OpenWindow(job=key, window=window):
                    self._note_start(key, window)
                    begin = self._begin(jobs[key], window.site, self.now)
                    self._note_chunks(key, window, begin)
                    heappush(self._begins, (begin, key, window.attempt))
                case ExtendWindow(job=key, window=window):
                    self._note_chunks(key, window, self.now)
                case _:
                    pass
        return [*following, *self._due()]

    def _count_previews(self) -> None:
        reviews = self.planner.context.reviews
        self._previews_left -= reviews.previewed == self.now
        if self._previews_left <= 0:
            reviews.previewed, reviews.preview_timer_set = inf, True

    def _note_start(self, key: str, window: Window) -> None:
        if key not in self.starts:
            node = window.node or ""
            others = (other for other in (self._freed.get(node), *self._freed.values()) if other not in (None, key))
            self.starts[key] = Start(self.now, window.site, node, next(others, None))

    def _note_chunks(self, key: str, window: Window, trains: float) -> None:
        """Record the chunks of a new window, which train one after the other from `trains` on."""
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
        """Clear the end of the unfinished chunks of a window that is stopped."""
        state, known, window = self.planner.context.cluster.jobs[key], self.chunks.setdefault(key, {}), run.window
        for chunk, batches in self._progress(state, run).items():
            if batches < state.job.batches_per_chunk_total:
                planned = PlannedChunk(window.site, window.node or "", window.start, None, window.attempt)
                known[chunk] = replace(known[chunk], end=None) if chunk in known else planned

    # ---- training times of workers

    def _begin(self, state: JobState, site: str, opened: float, *, has_node: bool = False) -> float:
        """Return when a worker begins to train; at an unlimited site, each new pod waits for a new node."""
        cluster = self.planner.context.cluster
        node_seconds = cluster.sites[site].start_seconds if cluster.is_unlimited(site) and not has_node else 0.0
        return opened + node_seconds + state.job.restart_seconds

    def _pace(self, state: JobState, run: TrackedWindow) -> float:
        """Return the seconds per mini-batch; a gang is as fast as its slowest member."""
        return max(one.batch_seconds for one in state.runs.values()) if state.job.is_gang else run.batch_seconds

    def _will_end(self, state: JobState, run: TrackedWindow) -> None:
        rest = state.left_of(run) * self._pace(state, run)
        end = (self.now if run.since is None else run.since) + rest
        heappush(self._ends, (max(self.now, end), state.job.key, run.window.attempt))

    def _progress(self, state: JobState, run: TrackedWindow) -> dict[int, float]:
        """Return the expected number of applied batches, by chunk."""
        trained = 0.0 if run.since is None else max(0.0, self.now - run.since) / self._pace(state, run)
        total = state.job.batches_per_chunk_total
        before = {c: total if c in state.done else state.known_batches(c) for c in run.window.chunks}
        return applied_in_order(run.window.chunks, before, total, trained)


def _requester(event: ChunksRequested) -> tuple[str, int]:
    return event.request.job, event.request.attempt


def run_rollout(
    context: PlannerContext,
    new_planner: PlannerFactory,
    later: Collection[JobState],
    now: float,
    decisions: int = DECISIONS,
    *,
    without: str | None = None,
    quotas: Sequence[Quota] = (),
    until: tuple[str, float] | None = None,
) -> Rollout:
    """Run a rollout.

    Args:
        context: Context of the planner; it is not changed.
        new_planner: Makes the planner that decides in the rollout.
        later: Waiting jobs to leave out: those that rank behind all others.
        now: Clock, in seconds.
        decisions: Maximum number of decisions.
        without: Key of a job that is suspended first; None for none.
        quotas: Quotas that replace those of the same name first.
        until: Stop when this job, which has no window, starts, or at that time.
    """
    rollout = run_to_completion(prepare(context, new_planner, later, now))
    rollout.until = until
    first: list[Event] = [QuotaChanged(quota) for quota in quotas]
    if without is not None:
        first.append(JobChanged(replace(context.cluster.jobs[without].job, suspended=True)))
    for _ in rollout.play(decisions, *first):
        pass
    return rollout


def prepare(
    context: PlannerContext, new_planner: PlannerFactory, later: Collection[JobState], now: float
) -> Steps[Rollout]:
    """Prepare a rollout in steps; events that the planner handles after the first step do not affect it."""
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
    """Return a planner in the same state with only the chosen jobs, which must include all jobs with windows.

    Its queue is in the state of the original queue when the returned iterator is exhausted.
    """
    settings = replace(
        context.settings,
        validate=False,
        uploads_reported=False,
        shared_uplinks=False,
        server_idle_seconds=inf,
        learns_from_silent_windows=False,
    )
    planner = new_planner(settings)
    simulated = planner.context
    cluster, old = simulated.cluster, context.cluster
    cluster.sites, cluster.epoch, cluster.dispatched = dict(old.sites), old.epoch, old.dispatched
    cluster.distribution, cluster.trial_changes = old.distribution, old.trial_changes
    cluster.history = old.history.copied()
    cluster.shares, cluster.uploads = old.shares.copied(), deepcopy(old.uploads)
    cluster.failed_preemptions = old.failed_preemptions.copied()
    cluster.health, cluster.locality = old.health.copied(), deepcopy(old.locality)
    cluster.speed_model, cluster.quotas = deepcopy(old.speed_model), old.quotas.copied()
    for name, node in old.nodes.items():
        cluster.nodes[name] = twin = shallow_copy(node)
        twin.runs, twin.closing_runs, twin.queues, twin.free_room = {}, {}, list(node.queues), None
    for key, state in old.jobs.items():  # keeps the order of the jobs, which breaks ties
        if key in chosen:
            _copy_job(simulated, state)
    simulated.timers, simulated.reviews = context.timers.copied(cluster.jobs), shallow_copy(context.reviews)
    if simulated.queue is not None and context.queue is not None:
        return planner, simulated.queue.resume(context.queue, now)
    simulated.work.unbound, simulated.work.unhosted = set(context.work.unbound), set(context.work.unhosted)
    _copy_slots(cluster, old)
    return planner, iter(())


def _copy_slots(cluster: ClusterState, old: ClusterState) -> None:
    """Give the copied jobs and nodes copies of the bound chunks, in the same order."""
    twins: dict[int, QueuedChunk] = {}
    for key, twin in cluster.jobs.items():
        for chunk, entry in old.jobs[key].entries.items():
            again = twins[id(entry)] = twin.entries[chunk] = shallow_copy(entry)
            again.state = twin
    for node in cluster.nodes.values():
        node.queues = [[twins[id(entry)] for entry in queue if id(entry) in twins] for queue in node.queues]


def _copy_job(simulated: PlannerContext, state: JobState) -> None:
    twin = simulated.cluster.jobs[state.job.key] = shallow_copy(state)
    twin.done, twin.partial, twin.excluded_nodes = set(state.done), dict(state.partial), dict(state.excluded_nodes)
    twin.applied, twin.node_rejections = dict(state.applied), dict(state.node_rejections)
    twin.node_failures = dict(state.node_failures)
    twin.restarts, twin.use = state.restarts.for_rollout(), JobUse()
    twin.placement = shallow_copy(state.placement)
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
