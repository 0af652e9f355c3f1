"""Chunk windows: site, node and time window of each chunk of a job in the current plan.

Under a binding policy, the queues of the slots are simulated as the planner serves them: on each slot, the first chunk
in the policy's order whose data have arrived runs, and it is preempted when a chunk ahead of it becomes ready
(JSAC'22, Alg. 4 [P], for the whole queue instead of one insertion [I]). This is exact unless a quota, a CPU shortage or
the lack of a node for a parameter server keeps a chunk from its slot; the worker limit of another job is respected only
for its chunks on the same nodes. Under a policy with one queue, open windows are known, and later ones are taken from
the last forecast (`tranche.planner.forecast.rollout`).
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from math import inf
from typing import Protocol

from tranche.model import ChunkState, ChunkWindow
from tranche.planner.context import PlannerContext
from tranche.planner.forecast.estimates import Estimate
from tranche.planner.forecast.steps import Steps, run_to_completion
from tranche.planner.job_queue import preemptible
from tranche.policies import Policy
from tranche.state.job import JobState, QueuedChunk
from tranche.state.window import TrackedWindow


class PlannerView(Protocol):
    """Interface that these functions need of a planner; `tranche.planner.Planner` implements it."""

    context: PlannerContext
    estimates: dict[str, Estimate]


MAX_STEPS = 20_000
"""Maximum number of simulated starts and ends; chunks after these are lined up without preemption."""
EVENTS_PER_STEP = 100
"""Number of simulated starts and ends between two yields."""


def chunk_windows(planner: PlannerView, key: str, now: float) -> tuple[ChunkWindow, ...]:
    """Return one row per chunk, or per member of a gang, in order; none if the planner does not know the job.

    Args:
        planner: Planner whose plan is listed; it is not changed.
        key: Key of the job.
        now: Clock, in seconds.
    """
    return run_to_completion(listing(planner, key, now))


def listing(planner: PlannerView, key: str, now: float) -> Steps[tuple[ChunkWindow, ...]]:
    """Return the rows in steps; events handled between two steps may or may not be included."""
    context = planner.context
    state = context.cluster.jobs.get(key)
    if state is None:
        return ()
    rows = {chunk: ChunkWindow(chunk, ChunkState.DONE) for chunk in state.done}
    for run in state.runs.values():
        if not run.closing:
            rows |= {row.chunk: row for row in _of_run(state, run, now) if row.chunk not in rows}
    if context.queue is None:
        entries = dict(state.entries)
        simulated = SlotSimulation(now)
        if state.active and entries:
            yield from simulated.copy(context, state)
            yield from simulated.play()
        for chunk, entry in entries.items():
            if chunk not in state.done:
                rows[chunk] = _of_entry(entry, rows.get(chunk), simulated.own.get(chunk))
    else:
        rows = _with_forecast(state, rows, planner.estimates.get(key)) if state.active else rows
    clouds = context.cluster.clouds
    rows = {chunk: replace(row, on_demand=True) if row.site in clouds else row for chunk, row in rows.items()}
    return tuple(rows.get(chunk, ChunkWindow(chunk, ChunkState.WAITING)) for chunk in range(state.job.chunks))


def times_in_window(state: JobState, run: TrackedWindow, now: float) -> Iterator[tuple[int, float, float]]:
    """Yield the chunks of an open window with their start and expected end; they train one after the other."""
    pace = max(one.batch_seconds for one in state.runs.values()) if state.job.is_gang else run.batch_seconds
    begin, end = run.window.start, run.since
    if end is None:
        end = max(now, run.opened + state.job.restart_seconds)
    for chunk in run.window.chunks:
        end += state.remaining_batches(chunk) * pace
        yield chunk, begin, end
        begin = end


def _of_run(state: JobState, run: TrackedWindow, now: float) -> Iterator[ChunkWindow]:
    phase = ChunkState.RUNNING if run.started is not None and run.started <= now else ChunkState.PLANNED
    for chunk, start, end in times_in_window(state, run, now):
        yield ChunkWindow(chunk, phase, run.home.site, run.home.node, run.home.slots, start, end)


def _with_forecast(
    state: JobState, rows: Mapping[int, ChunkWindow], estimate: Estimate | None
) -> dict[int, ChunkWindow]:
    """Add the forecast windows of later chunks, and correct the ends of chunks that are stopped and start again."""
    found = dict(rows)
    for chunk, one in (estimate.chunks if estimate is not None else {}).items():
        row, run = rows.get(chunk), state.chunk_runs.get(chunk)
        if row is None:
            found[chunk] = ChunkWindow(chunk, ChunkState.PLANNED, one.site, one.node or None, (), one.start, one.end)
        elif run is not None and run.window.attempt == one.attempt:
            found[chunk] = replace(row, end=one.end)
    return found


def _of_entry(entry: QueuedChunk, row: ChunkWindow | None, item: Item | None) -> ChunkWindow:
    """Make the row of a queued chunk: its binding, the current plan, and the plan at dispatch."""
    start = item.start if item is not None else None
    phase = ChunkState.WAITING if start is None else ChunkState.PLANNED
    if row is not None:
        phase, start = row.state, row.start
    return ChunkWindow(
        entry.chunk,
        phase,
        entry.home.site,
        entry.home.node,
        entry.home.slots,
        start,
        item.end if item is not None else None,
        entry.cost,
        entry.planned_start,
        entry.planned_end,
    )


# ---- simulation of the slots' queues


@dataclass(slots=True, eq=False)
class Item:
    """A bound chunk in the simulation."""

    entry: QueuedChunk
    pool: SlotPool
    order: tuple[float, float, str, bool, int]
    rest: float
    """Remaining training time, in seconds."""
    setup: float
    """Seconds from its next start until it trains."""
    ready: float
    fixed: bool
    """Whether it is never preempted once it runs."""
    since: float | None = None
    """Time of its last start, in seconds, while it runs."""
    start: float | None = None
    end: float | None = None
    ticket: int = 0
    """Number of its expected end; ends with another number are void."""

    def rank(self, *, runs: bool) -> None:
        """Update its position in the order: a waiting chunk does not displace a running one of its own job."""
        value, arrival, job, waits, chunk = self.order
        if waits == runs:
            self.pool.items.remove(self)
            self.order = (value, arrival, job, not runs, chunk)
            insort(self.pool.items, self, key=lambda item: item.order)


@dataclass(slots=True, eq=False)
class SlotPool:
    """A node, or all unlimited sites."""

    slots: float
    items: list[Item] = field(default_factory=list)
    """Unfinished chunks in the policy's order."""
    running: dict[int, Item] = field(default_factory=dict)
    """Running chunks by identity."""


class SlotSimulation:
    """Simulation of the nodes where a job has chunks, with all chunks that may keep these from running."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.own: dict[int, Item] = {}
        self._pools: list[SlotPool] = []
        self._ends: list[tuple[float, int, Item]] = []
        self._wakes: list[tuple[float, int, SlotPool]] = []
        self._count = 0
        self._workers: Counter[str] = Counter()
        """Number of windows by job."""
        self._blocked: dict[str, dict[int, SlotPool]] = {}
        """Pools in which a job could not start a chunk because it has its maximum number of workers."""

    def copy(self, context: PlannerContext, state: JobState) -> Iterator[None]:
        """Copy the queues of these nodes, one node per step."""
        last = max(entry.key for entry in state.entries.values())
        names = dict.fromkeys(entry.home.node for entry in state.entries.values())
        for name in names:
            node = context.cluster.nodes.get(name or "")
            if name is None:
                entries = [entry for entry in state.entries.values() if entry.home.node is None]
                self._add(SlotPool(inf), entries, context.policy)
            elif node is not None:
                others = (e for e in node.entries() if e.key <= last or not preemptible(e.state, context.policy))
                self._add(SlotPool(len(node.queues)), others, context.policy)
            yield
        self.own = {item.entry.chunk: item for pool in self._pools for item in pool.items if item.entry.state is state}
        jobs = {item.entry.state.job.key: item.entry.state for pool in self._pools for item in pool.items}
        copied = {id(item.entry) for pool in self._pools for item in pool.items}
        for key, one in jobs.items():
            self._workers[key] += sum(
                not run.closing and not any(id(one.entries.get(chunk)) in copied for chunk in run.window.chunks)
                for run in one.runs.values()
            )

    def _add(self, pool: SlotPool, entries: Iterable[QueuedChunk], policy: Policy) -> None:
        self._pools.append(pool)
        for entry in entries:
            if not entry.state.active:
                continue
            run = entry.state.chunk_runs.get(entry.chunk)
            is_open = run is not None and not run.closing
            setup = restart = entry.state.job.restart_seconds
            if run is not None and is_open:
                setup = 0.0 if run.started is not None else max(0.0, run.opened + restart - self.now)
            value, arrival, job, chunk = entry.key
            item = Item(
                entry,
                pool,
                (value, arrival, job, not is_open, chunk),
                entry.remaining_seconds(self.now),
                setup,
                max(self.now, entry.ready_at, entry.state.held_until),
                fixed=not preemptible(entry.state, policy),
            )
            pool.items.append(item)
            if is_open:
                self._workers[job] += 1
                self._begin(item)
            if item.ready > self.now:
                self._count += 1
                heappush(self._wakes, (item.ready, self._count, pool))
        pool.items.sort(key=lambda item: item.order)

    def play(self) -> Iterator[None]:
        """Simulate until all chunks of the job are done, or until `MAX_STEPS` events; the rest is lined up then."""
        left = len(self.own)
        dirty = {id(pool): pool for pool in self._pools}
        steps, pause = 0, EVENTS_PER_STEP
        while left:
            while dirty:
                self._choose(dirty.pop(next(iter(dirty))), dirty)
            times = [heap[0][0] for heap in (self._ends, self._wakes) if heap]
            if not times or steps >= MAX_STEPS:
                break
            self.now = max(self.now, min(times))
            while self._ends and self._ends[0][0] <= self.now:
                _, ticket, item = heappop(self._ends)
                if item.ticket == ticket:
                    self._finish(item, dirty)
                    left -= item.entry.chunk in self.own and self.own[item.entry.chunk] is item
                    steps += 1
            while self._wakes and self._wakes[0][0] <= self.now:
                pool = heappop(self._wakes)[2]
                dirty[id(pool)] = pool
                steps += 1
            if steps >= pause:
                pause = steps + EVENTS_PER_STEP
                yield
        if left:
            self._place_in_order()

    def _begin(self, item: Item) -> None:
        self._count += 1
        item.since, item.ticket = self.now, self._count
        item.pool.running[id(item)] = item
        item.rank(runs=True)
        if item.start is None:
            item.start = self.now
        heappush(self._ends, (self.now + item.setup + item.rest, item.ticket, item))

    def _stop(self, item: Item) -> None:
        """Preempt a running chunk, which keeps its progress."""
        assert item.since is not None
        item.rest -= max(0.0, self.now - item.since - item.setup)
        item.setup, item.since, item.ticket = item.entry.state.job.restart_seconds, None, 0
        del item.pool.running[id(item)]
        item.rank(runs=False)

    def _finish(self, item: Item, dirty: dict[int, SlotPool]) -> None:
        item.end, item.ticket, item.since = self.now, 0, None
        item.pool.items.remove(item)
        del item.pool.running[id(item)]
        dirty[id(item.pool)] = item.pool
        self._release(item.entry.state.job.key, dirty)

    def _release(self, job: str, dirty: dict[int, SlotPool]) -> None:
        self._workers[job] -= 1
        dirty.update(self._blocked.pop(job, {}))

    def _choose(self, pool: SlotPool, dirty: dict[int, SlotPool]) -> None:
        """Choose, start and stop chunks as `tranche.planner.scheduling.slot_scheduler` does."""
        taken: set[int] = set()
        chosen: list[Item] = []
        before = list(pool.running.values())
        for item in before:
            if item.fixed:
                taken.update(item.entry.home.slots)
                chosen.append(item)
        starting = Counter[str]()
        for item in pool.items:
            if len(taken) >= pool.slots:
                break
            if item in chosen or taken.intersection(item.entry.home.slots):
                continue
            if item.since is None and not self._may_start(item, starting):
                continue
            taken.update(item.entry.home.slots)
            chosen.append(item)
            if item.since is None:
                starting[item.entry.state.job.key] += 1
        for item in before:
            if item not in chosen:
                self._stop(item)
                self._release(item.entry.state.job.key, dirty)
        for item in chosen:
            if item.since is None:
                self._workers[item.entry.state.job.key] += 1
                self._begin(item)

    def _may_start(self, item: Item, starting: Counter[str]) -> bool:
        job = item.entry.state.job
        if item.ready > self.now:
            return False
        if self._workers[job.key] + starting[job.key] < job.max_workers:
            return True
        self._blocked.setdefault(job.key, {})[id(item.pool)] = item.pool
        return False

    def _place_in_order(self) -> None:
        """Place the remaining chunks one after the other on each slot, in order, without simulating preemption."""
        for pool in self._pools:
            free: dict[int, float] = {}
            for item in pool.items:
                slots = item.entry.home.slots
                begin = max([self.now, item.ready, *(free.get(slot, self.now) for slot in slots)])
                trained = max(0.0, self.now - item.since - item.setup) if item.since is not None else 0.0
                item.end = begin + (item.setup if item.since is None else 0.0) + item.rest - trained
                item.start = begin if item.start is None else item.start
                free.update(dict.fromkeys(slots, item.end))
