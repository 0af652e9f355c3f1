"""Planned start and completion of every job, and which job each one waits behind.

A rollout (`tranche.planner.forecast.rollout`) simulates the jobs that come first. Under a policy with one queue, a job
that comes later, or takes longer than the rollout, gets the fluid estimate: work ahead over capacity. Under a binding
policy, such a job gets an estimate from the queues of its slots, in which worker limits, quotas and CPU shortages do
not count. All assume no arrivals and that each chunk takes its predicted time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import fsum, inf
from types import MappingProxyType

from tranche.model import PodShape
from tranche.planner.context import PlannerContext
from tranche.planner.forecast.rollout import DECISIONS, PlannedChunk, PlannerFactory, Rollout, Start, prepare
from tranche.planner.forecast.steps import Steps
from tranche.planner.scheduling.data_replication import is_cut_off
from tranche.planner.scheduling.placement_trial import could_run
from tranche.policies import QueuePolicy, TieredRank
from tranche.state.cluster import ClusterState
from tranche.state.job import Arrival, JobState, QueuedChunk

SIMULATED_JOBS = 200
"""Number of waiting jobs, from the head of the queue, that a rollout simulates."""

_NO_CHUNKS: Mapping[int, PlannedChunk] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Estimate:
    """Start and completion of a job if no other job arrives; `start` is in the past for a job with windows."""

    start: float
    completion: float
    behind: str | None = None
    """Key of the job that frees the capacity for its earliest chunk at `start`."""
    site: str = ""
    """Site where that chunk will train; "" if unknown."""
    node: str = ""
    verified: bool = False
    """Whether `behind` was verified, or is not verified at all (`Planner.estimate_of`)."""
    quota_binds: bool = True
    """Whether the job may start earlier without the limits of its quotas; False if a rollout has shown that not."""
    chunks: Mapping[int, PlannedChunk] = field(default_factory=lambda: _NO_CHUNKS, compare=False, repr=False)
    """Planned training of chunks that are in no window yet, as far as the rollout simulated it."""


def forecast(context: PlannerContext, new_planner: PlannerFactory, now: float) -> Steps[dict[str, Estimate]]:
    """Return estimates by job key, for every job that is neither finished nor unable to run.

    Args:
        context: Context of the planner, which is not changed. It may handle events between the steps: the forecast uses
            the state at the first step.
        new_planner: Makes the planner that decides in the rollout.
        now: Clock, in seconds.
    """
    if context.queue is None:
        return (yield from _forecast_slots(context, new_planner, now))
    waiting = context.queue.waiting()
    later = waiting[SIMULATED_JOBS:]
    rollout = yield from prepare(context, new_planner, later, now)
    known = rollout.planner.context.cluster.jobs.values()
    ahead = fsum(_gpu_seconds(state, now) for state in known if state.active)
    yield from rollout.play(DECISIONS)
    estimates = yield from _estimates_of_rollout(rollout, context.queue.policy)
    last = waiting[SIMULATED_JOBS - 1].job.key if later else None
    fluid = Fluid(context.cluster, now, ahead, last)
    for state in later:
        if is_cut_off(context.cluster, context.queue.policy, state):
            continue
        fluid.add(state, None, estimates)
        yield
    return estimates


# ---- one queue


def _estimates_of_rollout(rollout: Rollout, policy: QueuePolicy) -> Steps[dict[str, Estimate]]:
    """Return the results of the rollout, and fluid estimates from its end on for jobs that it did not complete."""
    estimates: dict[str, Estimate] = {}
    simulated = rollout.planner.context.cluster
    for key, completion in rollout.completions.items():
        start = rollout.starts.get(key) or Start(
            completion, "", ""
        )  # without a start, it completes by the progress that a stopped pod saved
        estimates[key] = Estimate(start.at, completion, start.behind, start.site, start.node)
    known = simulated.jobs if rollout.cut_short else rollout.chunks
    active = [simulated.jobs[key] for key in known if simulated.jobs[key].active]
    open_ended = [state for state in active if not is_cut_off(simulated, policy, state)]
    ranks: dict[str, tuple[TieredRank, Arrival]] = {}
    for state in open_ended:
        ranks[state.job.key] = (policy.tiered_rank(state, simulated, rollout.now), state.arrival)
        yield
    fluid = Fluid(simulated, rollout.now)
    for state in sorted(open_ended, key=lambda state: ranks[state.job.key]):
        fluid.add(state, rollout.starts.get(state.job.key), estimates)
        yield
    for key, chunks in rollout.chunks.items():
        if key in estimates:
            estimates[key] = replace(estimates[key], chunks=chunks)
    return estimates


@dataclass(slots=True, eq=False)
class Fluid:
    """Fluid model: jobs run one after the other on all GPUs that can serve them, as if work were divisible at will."""

    cluster: ClusterState
    now: float
    ahead: float = 0.0
    """GPU-seconds of the jobs ahead."""
    last: str | None = None
    """Key of the previous job in the order."""
    _gpus: dict[tuple[PodShape, int], float] = field(default_factory=dict)

    def add(self, state: JobState, begun: Start | None, estimates: dict[str, Estimate]) -> None:
        """Estimate the next job in the order, unless it can never run."""
        gpus = self._capacity(state)
        if not gpus:
            return
        own, key = _gpu_seconds(state, self.now), state.job.key
        start = Start(self.now + self.ahead / gpus, "", "", self.last) if begun is None else begun
        rest = own / max(1, state.job.gpus) / state.job.width
        end = max(start.at + state.job.restart_seconds, self.now) + rest
        end = max(end, self.now + (self.ahead + own) / gpus)
        estimates[key] = Estimate(start.at, end, start.behind, start.site, start.node)
        self.ahead, self.last = self.ahead + own, key

    def _capacity(self, state: JobState) -> float:
        """Return the GPUs of the nodes that could take its workers; 0 if it can never run."""
        job = state.job
        demand = (job.worker, job.min_available, *((job.chief, job.server, job.servers) if job.is_gang else ()))
        if demand not in self._gpus:
            found: float = sum(node.capacity.gpus for node in self.cluster.hosts(state))
            if not could_run(self.cluster, state):
                found = 0.0
            self._gpus[demand] = inf if self.cluster.clouds_for(state) else found
        return self._gpus[demand]


def _gpu_seconds(state: JobState, now: float) -> float:
    return max(0.0, state.worker_seconds(now)) * max(1, state.job.gpus)


# ---- slots


def _forecast_slots(context: PlannerContext, new_planner: PlannerFactory, now: float) -> Steps[dict[str, Estimate]]:
    """Return the results of a rollout of a binding policy, and from its end on those of the slots as they stand."""
    rollout = yield from prepare(context, new_planner, (), now)
    yield from rollout.play(DECISIONS)
    estimates: dict[str, Estimate] = {}
    for key, completion in rollout.completions.items():
        start = rollout.starts.get(key) or Start(completion, "", "")
        estimates[key] = Estimate(start.at, completion, start.behind, start.site, start.node)
    left = _simulate_slots(rollout.planner.context.cluster, rollout.now)
    for key, rest in left.items():
        begun = rollout.starts.get(key)
        if begun is not None:
            estimates[key] = Estimate(begun.at, rest.completion, begun.behind, begun.site, begun.node)
        elif rollout.cut_short:
            estimates[key] = rest
    return estimates


@dataclass(slots=True)
class _Slot:
    free_at: float
    holder: str | None = None


class _JobTimeline:
    """Collects start and completion of one job over its chunks, at most `max_workers` at a time."""

    def __init__(self, state: JobState, now: float) -> None:
        self.state = state
        self.workers = [now] * min(state.job.max_workers, state.job.chunks)
        self.first: tuple[float, str | None, QueuedChunk] | None = None
        self.last = now

    def add(self, start: float, seconds: float, holder: str | None, entry: QueuedChunk) -> float:
        worker = min(range(len(self.workers)), key=self.workers.__getitem__)
        if self.workers[worker] > start:
            start, holder = self.workers[worker], None
        end = start + seconds
        self.workers[worker] = end
        if self.first is None or start < self.first[0]:
            self.first = (start, holder, entry)
        self.last = max(self.last, end)
        return end

    def estimate(self, first: tuple[float, str | None, QueuedChunk]) -> Estimate:
        start, holder, entry = first
        behind = holder if holder != self.state.job.key else None
        return Estimate(start, self.last, behind, entry.home.site, entry.home.node or "")


def _simulate_slots(cluster: ClusterState, now: float) -> dict[str, Estimate]:
    timelines: dict[str, _JobTimeline] = {}
    for entry, slots in _merged_queues(cluster, now):
        state = entry.state
        if not state.active:
            continue
        run = state.chunk_runs.get(entry.chunk)
        seconds = entry.remaining_seconds(now)
        if run is None or run.started is None:
            seconds += state.job.restart_seconds
        latest = max(slots, key=lambda slot: slot.free_at, default=_Slot(now))
        start = max(latest.free_at, entry.ready_at, state.held_until)
        holder = latest.holder if latest.free_at >= max(entry.ready_at, state.held_until) else None
        end = timelines.setdefault(state.job.key, _JobTimeline(state, now)).add(start, seconds, holder, entry)
        for slot in slots:
            slot.free_at, slot.holder = end, state.job.key
    return {key: timeline.estimate(timeline.first) for key, timeline in timelines.items() if timeline.first is not None}


def _merged_queues(cluster: ClusterState, now: float) -> Iterable[tuple[QueuedChunk, list[_Slot]]]:
    """Return all bound chunks in order of their keys, each with its slots."""
    merged: list[tuple[QueuedChunk, list[_Slot]]] = []
    for node in cluster.nodes.values():
        slots = [_Slot(now) for _ in node.queues]
        merged += [(entry, [slots[s] for s in entry.home.slots]) for entry in node.entries()]
    for state in cluster.jobs.values():
        merged += [(entry, []) for entry in state.entries.values() if entry.home.node is None]
    return sorted(merged, key=lambda pair: pair[0].key)
