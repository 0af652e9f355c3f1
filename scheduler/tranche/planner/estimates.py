"""Planned start and completion of every job, and which job each one waits behind.

The forecast plays the queues forward as they stand: no arrivals, every chunk as long as predicted. For a policy that
binds, with one GPU a worker and no restart cost, this is exact; a worker limit and CPU shortages are approximated.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tranche.policies import ClusterState, Entry, JobState, NodeState, Policy, QueuePolicy

FORECAST_JOBS = 200
"""Waiting jobs of a queue policy that are played forward; the rest are reported as behind the last of these."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """When a job starts and completes if nothing else arrives."""

    start: float
    completion: float
    behind: str | None = None
    """The job that holds the slots of its earliest chunk until `start`."""
    site: str = ""
    """Where that chunk will train."""


@dataclass(slots=True)
class _Slot:
    free_at: float
    holder: str | None = None


class _Tally:
    """Collects start and completion of one job over its chunks, at most `max_workers` at a time."""

    def __init__(self, state: JobState, now: float) -> None:
        self.state = state
        self.workers = [now] * min(state.job.max_workers, state.job.chunks)
        self.first: tuple[float, str | None, str] | None = None
        self.last = now

    def add(self, start: float, seconds: float, holder: str | None, site: str) -> float:
        worker = min(range(len(self.workers)), key=self.workers.__getitem__)
        if self.workers[worker] > start:
            start, holder = self.workers[worker], None
        end = start + seconds
        self.workers[worker] = end
        if self.first is None or start < self.first[0]:
            self.first = (start, holder, site)
        self.last = max(self.last, end)
        return end

    def estimate(self) -> Estimate | None:
        if self.first is None:
            return None
        start, holder, site = self.first
        return Estimate(start, self.last, holder if holder != self.state.job.key else None, site)


def forecast(cluster: ClusterState, policy: Policy, queue: Iterable[JobState], now: float) -> dict[str, Estimate]:
    """Estimates by job key, for every job that is neither finished nor stuck.

    Args:
        cluster: The state to play forward.
        policy: Its order.
        queue: Jobs with waiting chunks in the policy's order (policies that do not bind).
        now: Clock, in seconds.
    """
    tallies: dict[str, _Tally] = {}
    if isinstance(policy, QueuePolicy):
        _play_queue(cluster, policy, queue, tallies, now)
    else:
        _play_slots(cluster, tallies, now)
    estimates = {key: tally.estimate() for key, tally in tallies.items()}
    return {key: estimate for key, estimate in estimates.items() if estimate is not None}


def _tally(tallies: dict[str, _Tally], state: JobState, now: float) -> _Tally:
    return tallies.setdefault(state.job.key, _Tally(state, now))


def _play_slots(cluster: ClusterState, tallies: dict[str, _Tally], now: float) -> None:
    merged: list[tuple[Entry, list[_Slot]]] = []
    for node in cluster.nodes.values():
        slots = [_Slot(now) for _ in node.queues]
        merged += [(entry, [slots[s] for s in entry.home.slots]) for entry in node.entries()]
    for state in cluster.jobs.values():
        merged += [(entry, []) for entry in state.entries.values() if entry.home.node is None]
    merged.sort(key=lambda pair: pair[0].key)
    for entry, slots in merged:
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
        end = _tally(tallies, state, now).add(start, seconds, holder, entry.home.site)
        for slot in slots:
            slot.free_at, slot.holder = end, state.job.key


def _play_queue(
    cluster: ClusterState, policy: QueuePolicy, queue: Iterable[JobState], tallies: dict[str, _Tally], now: float
) -> None:
    slots = {name: [_Slot(now) for _ in range(node.slots)] for name, node in cluster.nodes.items()}
    for name, node in cluster.nodes.items():
        busy = 0
        for state, run in node.runs.values():
            seconds = sum(state.remaining_seconds(c, now, run.batch_seconds) for c in run.window.chunks)
            if run.started is None:
                seconds += state.job.restart_seconds
            end = _tally(tallies, state, now).add(now, seconds, None, node.node.site)
            for slot in slots[name][busy : busy + max(1, state.job.gpus)]:
                slot.free_at, slot.holder = end, state.job.key
            busy += max(1, state.job.gpus)
    floor = now
    for count, state in enumerate(queue):
        if count >= FORECAST_JOBS:
            return
        hosts = [n for n in cluster.eligible(state.job.worker) if len(slots[n.node.name]) >= state.job.gpus > 0]
        if not hosts:
            continue
        first = _play_job(cluster, state, hosts, slots, _tally(tallies, state, now), floor)
        floor = first if policy.strict else now


def _play_job(
    cluster: ClusterState,
    state: JobState,
    hosts: list[NodeState],
    slots: dict[str, list[_Slot]],
    tally: _Tally,
    floor: float,
) -> float:
    """Give each waiting chunk the slots that are free first; returns the last start (what a strict queue waits for)."""
    width = state.job.gpus
    chosen: list[tuple[float, list[_Slot], str, str | None]] = []
    for _ in state.waiting:
        best: tuple[float, str] | None = None
        for node in hosts:
            ordered = slots[node.node.name]
            ordered.sort(key=lambda slot: slot.free_at)
            best = min(
                best or (ordered[width - 1].free_at, node.node.name), (ordered[width - 1].free_at, node.node.name)
            )
        assert best is not None
        free_at, name = best
        group = slots[name][:width]
        start = max(free_at, floor)
        per_batch = cluster.batch_seconds(state, cluster.nodes[name].node.site)
        seconds = state.job.restart_seconds + state.job.batches_per_chunk_total * per_batch
        chosen.append((start, group, name, group[-1].holder))
        for slot in group:
            slot.free_at, slot.holder = start + seconds, state.job.key
    together = max((start for start, *_ in chosen), default=floor)
    for start, group, name, holder in chosen:
        site = cluster.nodes[name].node.site
        seconds = group[0].free_at - start
        tally.add(together if state.job.rigid else start, seconds, holder, site)
    return together
