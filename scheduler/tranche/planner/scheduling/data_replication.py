"""Data replication: copying the data of chunks ahead of need to the sites where the chunks would end first.

Source: ours [I] (decision 5): a chunk's data are copied, not moved. They stay at their origin and at every site with a
copy, so a waiting chunk may start at any of these sites, whichever has free capacity first. At arrival the data are
copied to the nearest sites (`QueuePolicy.prefetch_site_count`): all chunks to each of them, or where uploads queue on
their link, each chunk to one (decision 26). If uploads share the uplink of their site, nothing is copied ahead of need,
since it delays what is needed. Where GPU kinds differ, "near" counts the time by which a chunk
trains longer on the GPUs of a site (decision 25). Then, twice a minute, the head of the queue is simulated in order of
rank over the slots of all sites with nodes. Each chunk goes where it ends first with Δ included (own wait, work and
transfer of the dispatch rule (5) of JSAC'22; docs/explanation/algorithms.md, "Dispatch cost"). A chunk that goes to a
site without a copy, and needs it soon, gets one. `tranche.planner.scheduling.cloud_burst` starts copies to unlimited
sites.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappush, heapreplace
from math import inf
from typing import NamedTuple

from tranche.model import Constraints
from tranche.planner.context import PlannerContext
from tranche.planner.data_staging import is_given_up, request_copies
from tranche.planner.instructions import StageData
from tranche.planner.job_queue import JobQueue
from tranche.planner.scheduling.gpu_choice import has_kinds, site_batch_seconds
from tranche.planner.scheduling.server_placement import room_for_servers
from tranche.policies import Policy, TieredRank
from tranche.state import site_accounting
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.staging import ARRIVED

PREVIEW_SECONDS = 30.0
"""Interval between two previews of the queue."""
PREVIEWED_CHUNKS = 40
"""Number of waiting chunks, from the head of the queue, that a preview places."""
PREVIEWED_SITES = 12
"""Number of sites, nearest first by `_delays`, that a preview considers for a job's chunks."""
LEAD_FACTOR = 4.0
"""A copy is begun when the chunk needs it within this multiple of Δ: a copy begun too late delays the chunk, and one
begun too early may never be used, because plans change."""


def stays_with_data(policy: Policy, state: JobState) -> bool:
    """Return whether the nodes of no other site can train the job's chunks, because its data are never copied."""
    away = state.job.data_site is not None and not state.job.is_gang and not state.moves_data
    return away and policy.traits.needs_local_data


def is_cut_off(cluster: ClusterState, policy: Policy, state: JobState) -> bool:
    """Return whether the job stays with its data, and no node of their site and no unlimited site takes a worker."""
    if not stays_with_data(policy, state) or cluster.clouds_for(state):
        return False
    return all(node.node.site != state.job.data_site for node in cluster.hosts(state))


def copy_ahead(context: PlannerContext, queue: JobQueue, state: JobState, now: float) -> None:
    """Copy the data of a job that has arrived to the nearest sites that could train it, by `_delays`.

    Where uploads queue on their link, each chunk goes to one of the sites: a copy of each at all of them would arrive
    after the chunk is complete elsewhere, and would delay the data of other jobs.
    """
    if state.copies or not state.waiting:
        return
    delta = _delays(context.cluster, state, _chunk_seconds(context.cluster, state), now)
    others = sorted(
        (seconds, site)
        for site, seconds in delta.items()
        if site != state.job.data_site and not is_given_up(state, site)
    )
    at_home = state.job.data_site in delta
    ahead = 0 if context.cluster.uploads.shares_uplinks else queue.policy.prefetch_site_count()
    chosen = [site for _, site in others[: max(ahead, not at_home)]]
    backward = state.waiting[::-1]  # the first ones may train at home first
    for number, site in enumerate(chosen):
        queues = context.cluster.uploads_queue(state, site)
        if sent := backward[number :: len(chosen)] if queues else backward:
            copy(context, queue, state, sent, site, now)


def _chunk_seconds(cluster: ClusterState, state: JobState) -> dict[str, float]:
    """Return the expected time of a whole chunk of the job at each site with nodes for it, in seconds."""
    batches = state.job.batches_per_chunk_total
    return {site: batches * site_batch_seconds(cluster, state, site) for site in cluster.hosts(state).by_site}


def _delays(cluster: ClusterState, state: JobState, seconds: Mapping[str, float], now: float) -> dict[str, float]:
    """Return Δ to each site, plus the time by which a chunk trains longer there than on the fastest GPUs, in seconds.

    Where sites have GPUs of different kinds, the nearest site is not the one at which a chunk ends first. `seconds` are
    the times of `_chunk_seconds`.
    """
    delta = {site: cluster.upload_seconds(state, site, now) for site in seconds}
    if not has_kinds(cluster, state):
        return delta
    least = min(seconds.values(), default=0.0)
    return {site: delta[site] + seconds[site] - least for site in seconds}


def upload_everywhere(context: PlannerContext, queue: JobQueue, state: JobState, now: float) -> None:
    """Record uploads of the data of a job that has arrived to every site, each complete after its transfer time.

    If uploads share uplinks, they are instructed instead, and complete with their reports. This serves policies that do
    not plan where data are (`QueuePolicy.uploads_on_arrival`).
    """
    if not queue.policy.uploads_on_arrival():
        return
    cluster = context.cluster
    began = min(now, state.job.submitted)
    waiting, last, reported = state.waiting, state.uploaded_at or began, context.settings.shared_uplinks
    for site in [*cluster.hosts(state).by_site, *cluster.clouds_for(state)]:
        if site == state.job.data_site or site in state.copies:
            continue
        ready = cluster.begin_copies(state, site, len(waiting), began)
        queue.stale[state.job.key] = None
        site_accounting.count_all_uploads(cluster, state, waiting, site)
        for chunk, until in zip(waiting, ready, strict=True):
            state.copy(chunk, site, until if until > now else ARRIVED, reported=reported)
        for until in () if reported else dict.fromkeys(ready):
            if until > now:
                context.wake(until, state.job.key)
        if reported:
            last = inf
            context.instruct(StageData(state.job.key, tuple(waiting), site, context.cause))
        last = max([last, *ready])
        if cluster.is_unlimited(site):
            state.burst_sites.add(site)
    state.uploaded_at = last


def copy_for_head(context: PlannerContext, queue: JobQueue, now: float) -> None:
    """Begin the copies that chunks near the head of the queue will need, at most once per `PREVIEW_SECONDS`."""
    reviews = context.reviews
    due = reviews.previewed + PREVIEW_SECONDS
    if now < due:
        if not reviews.preview_timer_set:
            reviews.preview_timer_set = True
            context.wake(due, "")
        return
    preview: Preview | None = None
    for rank, state in queue.in_order():
        reviews.previewed, reviews.preview_timer_set = now, False
        left = PREVIEWED_CHUNKS - (preview.placed if preview is not None else 0)
        if left <= 0:
            break
        workers = _workers_to_start(context.cluster, queue, state, now) if state.moves_data else 0
        if not workers:
            continue
        preview = preview or Preview(context.cluster, queue, now)
        waiting = [chunk for chunk in state.waiting if chunk not in state.cloud]
        chunks = waiting[: min(workers, left)]
        for chunk, site, start, delta in preview.play(state, rank, chunks):
            if start - now <= LEAD_FACTOR * delta:
                copy(context, queue, state, [chunk], site, now)


def _workers_to_start(cluster: ClusterState, queue: JobQueue, state: JobState, now: float) -> int:
    """Return how many more workers of the job could start on nodes, if they had free GPUs and the data.

    Chunks that wait for anything else need no copy now, and must not take the place of others in a preview.
    """
    if not cluster.hosts(state) or cluster.shortage(state) is not None:
        return 0
    if not room_for_servers(cluster, state, queue.policy, now):
        return 0
    return cluster.quotas.most_workers(state.job, state.job.max_workers - len(state.runs))


class Place(NamedTuple):
    """The GPUs of one resource on the nodes of a site that take the workers of a job."""

    site: str
    resource: str
    constraints: Constraints | None
    """Constraints of the workers, if some nodes of the site do not take them; None if all do."""


@dataclass(slots=True, eq=False)
class Preview:
    """Simulation of the head of the queue over the slots of all sites."""

    cluster: ClusterState
    queue: JobQueue
    now: float
    free: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Number of free GPUs, by site and name of their resource."""
    ends: dict[Place, list[float]] = field(default_factory=dict)
    """Ends of windows as a heap for each place, filled on first use."""
    taken: Counter[Place] = field(default_factory=Counter)
    """Number of GPUs, free or preempted, that chunks took in the simulation, by place."""
    placed: int = 0
    """Number of chunks that were placed."""
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    """Number of nodes with GPUs that foreign pods leave, by site and resource, filled on first use."""

    def __post_init__(self) -> None:
        self.free = self.cluster.free.gpus()

    def place_of(self, state: JobState, site: str) -> Place:
        """Return the place of the job's workers at a site."""
        resource = state.job.gpu_resource
        if (site, resource) not in self.counts:
            there = [node.capacity for node in self.cluster.free.nodes_at(site)]
            self.counts[site, resource] = sum(one.gpus > 0 and one.gpu_resource == resource for one in there)
        is_whole = len(self.cluster.hosts(state).at(site)) == self.counts[site, resource]
        return Place(site, resource, None if is_whole else state.job.worker.constraints)

    def room(self, state: JobState, rank: TieredRank, place: Place) -> int:
        """Return the number of GPUs that the job could take there now, free ones or by preemption."""
        running, site = self.queue.running, place.site
        if place.constraints is None:
            gpus = self.free[site, place.resource] + running.gpus_behind(state, rank, site, self.now)
            return gpus - self.taken[place]
        nodes = self.cluster.hosts(state).at(site)
        held = [other for node in nodes for other, run in node.runs.values() if not run.closing]
        behind = (other.job.gpus for other in held if running.is_behind(other, state, rank, site, self.now))
        return sum(max(0, node.free_gpus) for node in nodes) + sum(behind) - self.taken[place]

    def ends_at(self, state: JobState, place: Place) -> list[float]:
        """Return the heap of the ends of windows there."""
        if place not in self.ends:
            is_whole, site = place.constraints is None, place.site
            nodes = self.cluster.free.nodes_at(site) if is_whole else self.cluster.hosts(state).at(site)
            there = [node for node in nodes if node.capacity.gpu_resource == place.resource]
            self.ends[place] = [run.window.end for node in there for _, run in node.runs.values() if not run.closing]
            heapify(self.ends[place])
        return self.ends[place]

    def play(self, state: JobState, rank: TieredRank, chunks: list[int]) -> list[tuple[int, str, float, float]]:
        """Place the chunks; returns those that need a copy, as (chunk, site, start there in seconds, Δ in seconds)."""
        cluster, now, job = self.cluster, self.now, state.job
        seconds = _chunk_seconds(cluster, state)
        delta = _delays(cluster, state, seconds, now)
        sites = sorted(sorted(delta, key=delta.__getitem__)[:PREVIEWED_SITES])
        places = {site: self.place_of(state, site) for site in sites}
        room = {site: self.room(state, rank, place) for site, place in places.items()}
        delta = {site: cluster.copy_ready(state, site, now) - now for site in sites}
        ends = {site: self.ends_at(state, place) for site, place in places.items()}
        copies = {site: state.copies.get(site, {}) for site in sites}
        given_up = {site for site in state.stagings if is_given_up(state, site)}
        needed = []
        for chunk in chunks:
            best = (inf, inf, "")
            for site in sites:
                ready, extra = now, 0.0
                if site != job.data_site:
                    copied = copies[site].get(chunk)
                    if copied is not None:
                        ready = max(now, state.coming[site, chunk]) if copied == inf else copied
                    elif site in given_up:
                        continue
                    else:
                        ready, extra = now + delta[site], delta[site]
                slot = now if room[site] >= job.gpus else ends[site][0] if ends[site] else inf
                option = (max(ready, slot) + seconds[site], extra, site)
                if option < best:
                    best = option
            end, extra, site = best
            if end == inf:
                break
            self.placed += 1
            if room[site] >= job.gpus:
                room[site] -= job.gpus
                self.taken[places[site]] += job.gpus
                heappush(ends[site], end)
            else:
                heapreplace(ends[site], end)
            if extra:
                needed.append((chunk, site, end - seconds[site], extra))
        return needed


def copy(
    context: PlannerContext, queue: JobQueue, state: JobState, chunks: Iterable[int], site: str, now: float
) -> None:
    """Begin to copy data of chunks to a site."""
    reported = context.settings.uploads_reported or state.job.staged
    sent = tuple(chunks)
    ready = context.cluster.begin_copies(state, site, len(sent), now)
    for chunk, until in zip(sent, ready, strict=True):
        state.copy(chunk, site, until, reported=reported)
    for until in () if reported else dict.fromkeys(ready):
        context.wake(until, state.job.key)
    if state.job.staged:
        request_copies(context, state, sent, site)
    else:
        site_accounting.count_uploads(context.cluster, state, sent, site)
        context.publish(state.job.key)
        context.instruct(StageData(state.job.key, sent, site, context.cause))
    queue.stale[state.job.key] = None
