"""Cloud bursting: which waiting chunks and gangs train at an unlimited site.

Source: ours [I]. JSAC'22 compares its unlimited cloud with every edge worker by the dispatch cost (5); a queue policy
binds nothing at arrival, so this module compares expected completion times instead. A list schedule plays running and
waiting jobs forward in order of rank over the GPUs of all nodes (`NodeForecast`). For each waiting job it gives the
times at which its chunks would complete on nodes. The job then sends the number k of its last chunks to an unlimited
site that minimizes ``completion of the job + price · GPU time there + delay``. The delay is that of other jobs:
GPU time of the job on nodes, times the jobs that rank behind it and use nodes, over the GPUs of the nodes (compare the
fourth term of (5)). Ties go to the least sum of chunk completion times, then to the least k. With k equal to all
chunks, workers and parameter server are together (ζ = 1) and no gradient crosses a link. A job with fewer workers than
waiting chunks trains them in turns, on nodes as in the cloud, where each new pod may wait for a node. A gang goes as a
whole or not at all, without the term of delay.

A chunk that is assigned to an unlimited site starts there as soon as its data are there. Until then each review
compares again, so it may still start on a node that has become free; the bytes copied meanwhile are then wasted.
Reviews take place when a job arrives and, because conditions change with every chunk that ends, again after 3 % of the
shortest expected time to completion, but at least 30 s: reviews after 1 % gave the same JCT.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace, nlargest, nsmallest
from itertools import islice
from math import ceil, inf
from typing import NamedTuple

from tranche.planner.context import PlannerContext
from tranche.planner.data_staging import is_given_up
from tranche.planner.job_queue import JobQueue, can_use_window, preemptible
from tranche.planner.scheduling import data_replication
from tranche.planner.scheduling.placement_trial import could_run_on_nodes, usable_clouds
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.node import NodeState
from tranche.state.remaining_work import rest_seconds
from tranche.state.staging import expected_copies

REVIEW_SECONDS = 30.0
"""Shortest time between two reviews in which no job arrives."""
REVIEW_SHARE = 0.03
"""Time between two reviews, as a share of the shortest expected time to completion."""
REVIEWED_JOBS = 1000
"""Number of waiting jobs, best rank first, that a review considers."""
NEAREST_SITES = 12
"""Number of sites with nodes, nearest first, where a job's chunks are expected to train."""
CONSTRAINTS = 20
"""Number of different constraints of waiting jobs, best rank first, by which a review distinguishes nodes."""


def is_due(context: PlannerContext, changed: Sequence[str], now: float) -> bool:
    """Return whether a review of the waiting jobs is due now; otherwise set the timer for it.

    Args:
        context: Context of the planner.
        changed: Keys of jobs that events changed. A review is due immediately if one of them has waiting chunks that no
            review has considered.
        now: Clock, in seconds.
    """
    cluster = context.cluster
    states = [cluster.jobs[key] for key in changed if key in cluster.jobs]
    more = any(one.active and one.unassigned > 0 and one.returned != one.reviewed for one in states)
    if more or now >= context.reviews.cloud_review_at:
        return True
    _set_timer(context)
    return False


def review(context: PlannerContext, queue: JobQueue, now: float) -> None:
    """Decide for the waiting jobs which chunks train at an unlimited site."""
    cluster = context.cluster
    soonest, looked = inf, 0
    ordered = _in_rank_order(queue, now)
    forecast = NodeForecast(cluster, now, _groups(cluster, ordered))
    behind = sum(map(_uses_nodes, ordered))
    fixed = [state for state in ordered if state.runs and not preemptible(state, queue.policy)]
    for state in fixed:
        forecast.occupy(state)
    for state in ordered:
        behind -= _uses_nodes(state)
        if state not in fixed:
            forecast.occupy(state)
        if can_use_window(state, now):
            looked += 1
            split = _split(queue, forecast, state, behind, now)
            state.reviewed = state.returned
            soonest = min(soonest, split.completion - now)
            _bind(context, queue, state, split, now)
        elif state.unassigned > 0:  # it has its maximum number of workers, or is held
            state.reviewed = state.returned
            soonest = min(soonest, max(state.held_until, state.window_ends[0]) - now)
        if looked == REVIEWED_JOBS:
            break
    pause = max(REVIEW_SECONDS, REVIEW_SHARE * soonest) if soonest < inf or looked else inf
    context.reviews.cloud_review_at = now + pause
    _set_timer(context)


def _set_timer(context: PlannerContext) -> None:
    """Set the timer for the next review unless it is set."""
    reviews = context.reviews
    if reviews.cloud_timer_at < reviews.cloud_review_at < inf:
        reviews.cloud_timer_at = reviews.cloud_review_at
        context.wake(reviews.cloud_review_at, "")


def _in_rank_order(queue: JobQueue, now: float) -> list[JobState]:
    policy, cluster = queue.policy, queue.cluster
    return sorted(queue.engaged.values(), key=lambda state: (policy.tiered_rank(state, cluster, now), state.arrival))


def _uses_nodes(state: JobState) -> bool:
    """Return whether the job waits for nodes or has windows on nodes."""
    return state.waiting_for_nodes > 0 or any(run.home.node is not None for run in state.runs.values())


def _groups(cluster: ClusterState, states: Iterable[JobState]) -> dict[str, int]:
    """Return the group of each node by name, if it is not 0: nodes of a group take workers of the same waiting jobs."""
    groups: dict[str, int] = {}
    distinct = {one.job.worker.constraints: one for one in states if one.unassigned > 0}
    for number, state in enumerate(islice(distinct.values(), CONSTRAINTS)):
        hosts = cluster.hosts(state)
        for node in hosts if len(hosts) < len(cluster.nodes) else ():
            groups[node.node.name] = groups.get(node.node.name, 0) | 1 << number
    return groups


class Pool(NamedTuple):
    """The GPUs of one speed and resource at one site, on nodes that take workers of the same jobs."""

    site: str
    pace: float
    """Time of a mini-batch, relative to the GPU kind that jobs are measured on (`NodeState.pace`)."""
    gpu_resource: str = ""
    """As in `Resources.gpu_resource`."""
    kind: str = ""
    """GPU kind, if the installation defines kinds: jobs may have times of their own there."""
    group: int = 0
    """Group of the nodes: an idle node that does not take the workers of a job is no reason for it to wait there."""


@dataclass(frozen=True, slots=True)
class _Placed:
    """A chunk on GPUs of a pool in the forecast."""

    chunk: int
    pool: Pool
    end: float
    """Expected completion, in seconds."""
    seconds: float
    """Time for which it holds its GPUs."""
    taken: tuple[float, ...]
    """Times at which its GPUs were free before."""


@dataclass(slots=True, eq=False)
class NodeForecast:
    """A list schedule: when each GPU of the nodes is free, after jobs have taken GPUs in order of rank."""

    cluster: ClusterState
    now: float
    groups: Mapping[str, int]
    """Group of each node by name, as in `Pool.group`."""
    free_at: dict[Pool, list[float]] = field(default_factory=dict)
    """Time at which each GPU becomes free, in seconds: a heap for each pool."""
    _sites: set[str] = field(default_factory=set)
    """Sites whose pools are in `free_at`."""

    def pool_of(self, node: NodeState) -> Pool:
        """Return the pool of a node."""
        specification = node.node
        group = self.groups.get(specification.name, 0)
        return Pool(specification.site, node.pace, node.capacity.gpu_resource, specification.kind or "", group)

    def gpus(self, pool: Pool) -> list[float]:
        """Return the heap of one pool."""
        if pool.site not in self._sites:
            self._sites.add(pool.site)
            for node in self.cluster.free.nodes_at(pool.site):
                gpus = node.capacity.gpus if node.takes_pods else 0
                self.free_at.setdefault(self.pool_of(node), []).extend([self.now] * gpus)
        return self.free_at.get(pool, [])

    def occupy(self, state: JobState) -> None:
        """Hold the GPUs of the job's open windows on nodes that take pods until the windows end."""
        gpus, more = max(1, state.job.gpus), 0.0
        runs = [run for run in state.runs.values() if not run.closing]
        if runs and state.waiting_for_nodes > 0 and len(runs) >= state.job.max_workers:
            rounds = ceil(state.waiting_for_nodes / len(runs))
            more = rounds * state.job.batches_per_chunk_total * runs[0].batch_seconds
        for run in runs:
            node = self.cluster.nodes.get(run.home.node or "")
            if node is not None and node.takes_pods and not self.cluster.is_unlimited(node.node.site):
                self._take(self.pool_of(node), gpus, self.now, rest_seconds(state, run, self.now) + more)

    def place(self, state: JobState, options: Sequence[_Option], chunk: int, earliest: float) -> _Placed | None:
        """Place a chunk where it would complete first; None if no pool has as many GPUs as a worker needs.

        `earliest` is the time at which the job may start the worker, in seconds.
        """
        gpus, best = max(1, state.job.gpus), (inf, Pool("", 0.0), 0.0)
        rest = state.remaining_batches(chunk)
        for option in options:
            heap = self.gpus(option.pool)
            if len(heap) >= gpus:
                free = heap[0] if gpus == 1 else nsmallest(gpus, heap)[-1]
                start = max(free, option.ready(chunk), earliest)
                seconds = state.restart_seconds + rest * option.batch_seconds
                best = min(best, (start + seconds, option.pool, start))
        if best[0] == inf:
            return None
        seconds = best[0] - best[2]
        taken, end = self._take(best[1], gpus, best[2], seconds, latest=earliest > self.now)
        return _Placed(chunk, best[1], end, seconds, taken)

    def gang_slots(self, state: JobState) -> list[tuple[float, Pool]]:
        """Return the GPUs on which a gang would start soonest, as (free at, pool); empty if the gang never fits."""
        needed = state.job.min_available * max(1, state.job.gpus)
        pools = dict.fromkeys(map(self.pool_of, self.cluster.hosts(state)))
        found = nsmallest(needed, ((at, pool) for pool in pools for at in self.gpus(pool)))
        return found if len(found) == needed and could_run_on_nodes(self.cluster, state) else []

    def take_slots(self, slots: Sequence[tuple[float, Pool]], end: float) -> None:
        """Hold these GPUs until `end`."""
        for _, pool in slots:
            heappop(self.gpus(pool))
        for _, pool in slots:
            heappush(self.gpus(pool), end)

    def undo(self, placed: Sequence[_Placed]) -> None:
        """Release the GPUs that these chunks took."""
        for pool in {one.pool for one in placed}:
            heap = self.gpus(pool)
            for one in reversed(placed):  # a later chunk may have taken the GPU of an earlier one
                for at in one.taken if one.pool == pool else ():
                    heap.remove(one.end)
                    heap.append(at)
            heapify(heap)

    def _take(
        self, pool: Pool, gpus: int, start: float, seconds: float, *, latest: bool = False
    ) -> tuple[tuple[float, ...], float]:
        """Hold GPUs of the pool; returns when these were free, and the end of the hold.

        They are those that are free first or, with `latest`, last before `start`: those of the worker that ends then.
        """
        heap = self.gpus(pool)
        if latest:
            taken = tuple(nlargest(gpus, (at for at in heap if at <= start)))
            for at in taken:
                heap.remove(at)
            heapify(heap)
        else:
            taken = tuple(heappop(heap) for _ in range(min(gpus, len(heap))))
        end = max((start, *taken)) + seconds
        for _ in taken:
            heappush(heap, end)
        return taken, end


@dataclass(slots=True, eq=False)
class _Option:
    """A pool of nodes or an unlimited site whose GPUs could train chunks of a job."""

    pool: Pool
    batch_seconds: float
    copies: Mapping[int, float]
    """Time at which each chunk's data are there, in seconds; `otherwise` for chunks that are missing here."""
    otherwise: float

    def ready(self, chunk: int) -> float:
        """Return when the chunk could start there if a GPU were free."""
        return self.copies.get(chunk, self.otherwise)


def _node_options(queue: JobQueue, forecast: NodeForecast, state: JobState) -> list[_Option]:
    """Return the pools of nodes at the nearest sites where the job's chunks could train."""
    cluster, now = queue.cluster, forecast.now
    by_site = cluster.hosts(state).by_site
    if data_replication.stays_with_data(queue.policy, state):
        by_site = {site: nodes for site, nodes in by_site.items() if site == state.job.data_site}
    delta = {site: cluster.transfer_seconds(state, site) for site in by_site}
    options = []
    for site in sorted(sorted(by_site, key=lambda site: (delta[site], site))[:NEAREST_SITES]):
        if not is_given_up(state, site):
            copies, otherwise = _uploads(queue, state, site, now)
            for pool, node in {forecast.pool_of(node): node for node in by_site[site]}.items():
                seconds = cluster.batch_seconds(state, site, node=node.node.name)
                options.append(_Option(pool, seconds, copies, otherwise))
    return options


def _uploads(queue: JobQueue, state: JobState, site: str, now: float) -> tuple[dict[int, float], float]:
    """Return when the data of each chunk are at a site, and when those of all other chunks are, in seconds."""
    cluster = queue.cluster
    if not state.moves_data or site == state.job.data_site or queue.policy.traits.free_data_movement:
        return {}, now
    if queue.policy.fetches_after_start:
        return {}, now + cluster.transfer_seconds(state, site)
    known = expected_copies({site: state.copies.get(site, {})}, state.coming)[site]
    copies = {chunk: max(now, at) for chunk, at in known.items()}
    missing = [chunk for chunk in state.waiting if chunk not in copies]
    copies.update(zip(missing, cluster.copies_ready(state, site, len(missing), now), strict=True))
    return copies, now


class _Split(NamedTuple):
    """Decision of a review for one job."""

    chunks: tuple[int, ...]
    """Chunks that train at `site`."""
    site: str
    completion: float
    """Expected completion of the job, in seconds."""


def _split(queue: JobQueue, forecast: NodeForecast, state: JobState, behind: int, now: float) -> _Split:
    """Decide how many of the job's waiting chunks train at an unlimited site; the others take GPUs in the forecast.

    Args:
        queue: Queue, with the policy and the cluster.
        forecast: Forecast after all jobs that rank ahead of this one.
        state: State of the job.
        behind: Number of jobs that rank behind it and use nodes: GPU time on nodes delays each of them.
        now: Clock, in seconds.
    """
    options = [
        one
        for one in (_cloud_option(queue, state, site, now) for site in usable_clouds(queue.cluster, state, now))
        if one
    ]
    if state.job.is_gang:
        return _split_gang(queue, forecast, state, options, now)
    waiting = state.waiting
    floor = max([now, *(run.window.end for run in state.runs.values() if not run.closing)])
    clouds = [_cloud_ends(queue, state, option, waiting) for option in options]
    price = queue.policy.cloud_price() * state.job.gpus
    limit = min((max(floor, ends.together[0]) + price * ends.seconds[0] for ends in clouds), default=inf)
    placed: list[_Placed] = []
    nodes = [] if state.unhosted else _node_options(queue, forecast, state)
    workers = _WorkerTimes(state, len(waiting), now)
    for chunk in waiting:
        one = forecast.place(state, nodes, chunk, workers.first)
        if one is None:
            break
        placed.append(one)
        workers.add(one.end)
        if one.end > limit:
            break
    delay_per_second = state.job.gpus * behind / max(1, sum(len(forecast.gpus(one.pool)) for one in nodes))
    best: tuple[float, float, int, int] | None = None
    for number, ends in enumerate(clouds):
        on_nodes, latest, held = 0.0, -inf, 0.0
        for kept in range(len(placed) + 1):
            if kept:
                on_nodes, latest = on_nodes + placed[kept - 1].end, max(latest, placed[kept - 1].end)
            end = max(floor, latest, ends.together[0] if not kept else workers.cloud_end(kept, ends))
            total = on_nodes + (ends.sum_together if not kept else ends.sum_apart[kept])
            held += placed[kept - 1].seconds if kept else 0.0
            key = (end + price * ends.seconds[kept] + delay_per_second * held, total, -kept, number)
            best = min(best, key) if best is not None else key
    if best is None:
        return _Split((), "", max([floor, *(one.end for one in placed)]) if placed else inf)
    kept, ends = -best[2], clouds[best[3]]
    forecast.undo(placed[kept:])
    return _Split(tuple(waiting[kept:]), ends.site, best[0])


class _CloudEnds(NamedTuple):
    """Completion at an unlimited site of the chunks from each position on, in seconds."""

    site: str
    apart: list[float]
    """Completion of the last of them with other pods of the job elsewhere (ζ = 0); -inf at the end, without chunks."""
    busy: list[float]
    """Time that they take then once their data are there, in seconds; -inf at the end."""
    together: list[float]
    """Completion of the last of them with all pods at this site (ζ = 1); only the first position counts."""
    sum_apart: list[float]
    sum_together: float
    seconds: list[float]
    """Worker time there, in seconds."""


class _WorkerTimes:
    """When each worker of a job may start its next chunk, after the first waiting chunks were placed on nodes.

    A job with fewer workers than waiting chunks trains these one after the other, wherever they are. Otherwise, each
    chunk may start at once.
    """

    def __init__(self, state: JobState, waiting: int, now: float) -> None:
        workers = max(1, state.job.max_workers - len(state.runs))
        self._free = [now] * min(waiting, workers)
        self._limits, self._waiting = workers < waiting, waiting
        self._after = [(now, now)]
        """By number of chunks on nodes: when the first worker is free, and the mean over the workers, in seconds."""

    @property
    def first(self) -> float:
        """Time at which the next chunk may start."""
        return self._after[-1][0]

    def add(self, end: float) -> None:
        """Let the worker that is free first train a chunk on a node until `end`."""
        if self._limits:
            heapreplace(self._free, end)
            self._after.append((self._free[0], sum(self._free) / len(self._free)))

    def cloud_end(self, kept: int, ends: _CloudEnds) -> float:
        """Return when the chunks after the first `kept` would complete at an unlimited site."""
        if not (self._limits and kept):
            return ends.apart[kept]
        first, mean = self._after[kept]
        share = min(1.0, (self._waiting - kept - 1) / max(1, len(self._free) - 1))
        return max(ends.apart[kept], first + share * (mean - first) + ends.busy[kept])


def _cloud_option(queue: JobQueue, state: JobState, site: str, now: float) -> _Option | None:
    """Return the unlimited site as an option; None if copying the job's data there was given up."""
    if is_given_up(state, site):
        return None
    seconds = queue.cluster.batch_seconds(state, site, colocated=False)
    return _Option(Pool(site, 1.0), seconds, *_uploads(queue, state, site, now))


def _cloud_ends(queue: JobQueue, state: JobState, option: _Option, waiting: Sequence[int]) -> _CloudEnds:
    cluster = queue.cluster
    together = cluster.could_colocate(state, option.pool.site)
    fast = cluster.batch_seconds(state, option.pool.site, colocated=True) if together else option.batch_seconds
    start = cluster.sites[option.pool.site].start_seconds + state.restart_seconds
    workers = max(1, state.job.max_workers - len(state.runs))
    apart, busy, near, total, near_total, seconds = [-inf], [-inf], [-inf], [0.0], 0.0, [0.0]
    for count, chunk in enumerate(reversed(waiting), start=1):
        rest, at = state.remaining_batches(chunk), option.ready(chunk)
        rounds = ceil(count / workers)
        trains, trains_near = (rounds * (start + rest * pace) for pace in (option.batch_seconds, fast))
        end, close = at + trains, at + trains_near
        apart.append(max(apart[-1], end))
        busy.append(max(busy[-1], trains))
        near.append(max(near[-1], close))
        total.append(total[-1] + end)
        near_total += close
        seconds.append(seconds[-1] + rest * option.batch_seconds)
    seconds[-1] *= fast / option.batch_seconds if option.batch_seconds else 1.0
    return _CloudEnds(option.pool.site, apart[::-1], busy[::-1], near[::-1], total[::-1], near_total, seconds[::-1])


def _split_gang(
    queue: JobQueue, forecast: NodeForecast, state: JobState, options: Sequence[_Option], now: float
) -> _Split:
    """Decide whether a gang trains at an unlimited site: as a whole, or not at all."""
    cluster, batches = queue.cluster, state.job.batches_per_chunk_total
    rest = max((state.remaining_batches(chunk) for chunk in state.waiting), default=batches)
    slots = [] if state.unhosted else forecast.gang_slots(state)
    used = {pool for _, pool in slots}
    pools = {forecast.pool_of(node): node for node in cluster.hosts(state)} if slots else {}
    members = {pool: node for pool, node in pools.items() if pool in used}
    pace = max((cluster.batch_seconds(state, p.site, node=n.node.name) for p, n in members.items()), default=0.0)
    on_nodes = slots[-1][0] + state.restart_seconds + rest * pace if slots else inf
    best = (on_nodes, 0, "")
    for option in options:
        seconds = rest * cluster.batch_seconds(state, option.pool.site, colocated=True)
        end = now + cluster.sites[option.pool.site].start_seconds + state.restart_seconds + seconds
        price = queue.policy.cloud_price() * seconds * state.job.min_available * state.job.gpus
        best = min(best, (end + price, 1, option.pool.site))
    if best[1]:
        return _Split(tuple(state.waiting), best[2], best[0])
    if slots:
        forecast.take_slots(slots, on_nodes)
    return _Split((), "", on_nodes)


def _bind(context: PlannerContext, queue: JobQueue, state: JobState, split: _Split, now: float) -> None:
    """Record the decision, and begin the copies that it needs."""
    chosen = dict.fromkeys(split.chunks, split.site)
    if chosen != state.cloud:
        state.cloud = chosen
        if split.site and state.moves_data and queue.policy.traits.needs_local_data:
            state.burst_sites.add(split.site)
            known = state.copies.get(split.site, {})
            missing = [chunk for chunk in split.chunks if chunk not in known]
            if missing and split.site != state.job.data_site:
                data_replication.copy(context, queue, state, missing, split.site, now)
        state.windows_changed()
        queue.stale[state.job.key] = None
        context.publish(state.job.key)
