"""Going down the queue: whoever ranks first and finds room gets windows, from jobs behind it if the policy preempts."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from tranche.model import Preemption
from tranche.planner import cloud_burst, gangs
from tranche.planner.distributions import distribute
from tranche.planner.queues import Candidate, DemandClass, JobQueue, wants_at
from tranche.planner.quotas import make_quota, shortage
from tranche.planner.rooms import Challenge, Trial, could_run_on_nodes, free_hosts, free_nodes
from tranche.planner.servers import joining
from tranche.planner.tenants import expect_review, review_shares
from tranche.planner.transfers import copy_ahead, look_ahead, moves_data, upload_everywhere
from tranche.policies import ClusterState, Home, JobState, NodeState, QueuePolicy, Standing

if TYPE_CHECKING:
    from tranche.planner.machines import Planner

RESTARTS_PER_WINDOW = 3
"""A silent pod is given chunks for about this many restart costs, so that starting pods stays cheap."""


def serve_queue(planner: Planner, queue: JobQueue, now: float) -> None:
    """Run one scheduling cycle: open and close windows until no waiting job can be placed.

    First, if it is time, waiting jobs are divided between nodes and unlimited sites. Then the windows are opened, in
    order of rank.
    """
    changed = list(queue.stale)
    for key in changed:
        arriving = planner.cluster.jobs.get(key)
        if arriving is not None and arriving.active and moves_data(arriving):
            if queue.policy.sited:
                copy_ahead(planner, queue, arriving, now)
            else:
                upload_everywhere(planner, arriving, now)
    distribute(planner, queue, now)
    reviewed = review_shares(planner, now)
    if cloud_burst.is_due(planner, queue, changed, now):
        _refresh(planner, queue, now)
        cloud_burst.review(planner, queue, now)
        distribute(planner, queue, now)
    _refresh(planner, queue, now)
    decision = Decision(planner, queue, now, queue.candidates(now))
    while decision.turn():
        pass
    for state in decision.passed_over:
        queue.stale[state.job.key] = None
    queue.settle()
    expect_review(planner, now, reviewed=reviewed)
    if queue.policy.sited:
        look_ahead(planner, queue, now)


def _refresh(planner: Planner, queue: JobQueue, now: float) -> None:
    """Rank changed jobs, and set the timers for the next change of their ranks."""
    for key, change in queue.refresh(now):
        planner.timers.change(None if change is None else max(now, change), key)


@dataclass(slots=True, eq=False)
class Decision:
    """Going down the queue once."""

    planner: Planner
    queue: JobQueue
    now: float
    heap: list[Candidate]
    passed_over: list[JobState] = field(default_factory=list)
    """Who cannot run for a reason of its own, which does not concern others of its class."""
    full: set[str] = field(default_factory=set)
    """Sites where nobody who comes later can find a GPU."""

    def turn(self) -> bool:
        """Serve the candidate that ranks first; return False when none is left."""
        candidate = self._next()
        if candidate is None:
            return False
        rank, _, number, one = candidate
        queue, state, now = self.queue, self.queue.head(one), self.now
        assert state is not None
        may_preempt = queue.may_preempt(one, state)
        preempted = _serve(self.planner, queue, state, one.site, rank, now, may_preempt=may_preempt)
        waits = wants_at(state, one.site, now)
        one.tried = state
        held = waits and shortage(self.planner.cluster, state) is not None
        unlimited = self.planner.cluster.is_unlimited(one.site)
        if waits and queue.policy.strict and not (held or unlimited) and _blocks(self.planner.cluster, state, now):
            self.full.add("")  # for those behind it
            return True
        if waits and not unlimited and _is_full(self.planner, queue, state, one.site, rank, now):
            self.full.add(one.site)
        exhausted = waits and not (queue.policy.strict or unlimited or _has_own_obstacle(state, now))
        if not exhausted:
            queue.drop(state, one.site)
            self.passed_over += [state] if waits else []
        if preempted:
            self.heap = queue.others(self.heap, one if exhausted else None, rank, state, now)
        elif not exhausted and (following := queue.candidate(one, number, now)) is not None:
            heappush(self.heap, following)
        return True

    def _next(self) -> Candidate | None:
        """The first candidate that is still one, with today's rank."""
        clouds = self.planner.cluster.clouds
        while self.heap and ("" not in self.full or clouds):
            candidate = heappop(self.heap)
            one = candidate[3]
            nodes_full = "" in self.full and one.site not in clouds
            if nodes_full or one.site in self.full or not self._has_chance(one):
                continue
            today = self.queue.candidate(one, candidate[2], self.now)
            if today is None:
                continue
            if today[:2] == candidate[:2]:
                return candidate
            heappush(self.heap, today)
        return None

    def _has_chance(self, one: DemandClass) -> bool:
        """Whether the first of the class may find room: made for it, or free."""
        state = self.queue.head(one)
        if state is None or self.planner.cluster.is_unlimited(one.site):
            return True
        return self.planner.cluster.free.any_at(one.site) or self.queue.may_preempt(one, state)


def _is_full(planner: Planner, queue: JobQueue, state: JobState, site: str, rank: Standing, now: float) -> bool:
    """Whether nobody who ranks behind the job can find a GPU there: none is free, and none is held by those behind."""
    if planner.cluster.free.any_at(site):
        return False
    return not (queue.policy.preemptive and queue.running.gpus_behind(state, rank, site, now))


def _has_own_obstacle(state: JobState, now: float) -> bool:
    """Whether the job may be kept from running by what does not concern others of its class."""
    uploading = state.uploaded_at is not None and now < state.uploaded_at
    return bool(state.avoided) or state.unhosted or uploading


def _blocks(cluster: ClusterState, state: JobState, now: float) -> bool:
    """Whether a waiting head of a strict queue blocks the nodes: it could run there, and its data have arrived."""
    sites = cluster.hosts(state).by_site
    return any(state.can_start_at(site, now) for site in sites) and could_run_on_nodes(cluster, state)


def _serve(
    planner: Planner, queue: JobQueue, state: JobState, site: str, rank: Standing, now: float, *, may_preempt: bool
) -> bool:
    """Give the job what it can get at the site (anywhere, with ""); returns whether anybody was preempted for it."""
    job, policy = state.job, queue.policy
    workers = job.together
    if planner.cluster.is_unlimited(site):
        _open_on_demand(planner, state, site, now)
        return False
    nodes = free_hosts(planner.cluster, state, site, now)
    if shortage(planner.cluster, state) is not None:
        behind = queue.running.behind(state, rank, "", now) if policy.preemptive else []
        return make_quota(planner, _challenge(planner, policy, state, site, now), nodes, behind)
    free = sum([node.free_gpus for node in nodes])
    if free >= workers * job.gpus:
        _take_free(planner, state, site, nodes, now, first_fit=policy.first_fit)
        if not may_preempt or not wants_at(state, site, now):
            return False
        free = sum([node.free_gpus for node in nodes])
    return may_preempt and _preempt(planner, queue, state, site, rank, free, now)


def _preempt(
    planner: Planner, queue: JobQueue, state: JobState, site: str, rank: Standing, free: int, now: float
) -> bool:
    """Have jobs that rank behind make way where that gives the job another worker; returns whether anybody did."""
    cluster, job = planner.cluster, state.job
    workers = job.together
    room = free + queue.running.gpus_behind(state, rank, site, now)
    if room < workers * job.gpus:
        return False
    behind = queue.running.behind(state, rank, site, now)
    challenge = _challenge(planner, queue.policy, state, site, now)
    trial = Trial(cluster, state, now, challenge.victims(behind))
    stopped: dict[str, JobState] = {}
    preempted = False
    while room >= workers * job.gpus:
        found = trial.find(free_hosts(cluster, state, site, now), workers, joining(state))
        if found is None or shortage(cluster, state) or not (job.rigid or planner.place_servers(state)):
            break
        for victim in found[1]:
            stopped[victim.state.job.key] = victim.state
            for run in victim.runs:
                planner.close(victim.state, run, preempted_by=job.key)
                room -= victim.state.job.gpus
        gangs.seat(planner, state, trial.seats, now)
        _open(planner, state, site, found[0], now)
        preempted = True
        if not wants_at(state, site, now):
            break
    for one in stopped.values():
        queue.note_running(one, now)
    return preempted


def _challenge(planner: Planner, policy: QueuePolicy, state: JobState, site: str, now: float) -> Challenge:
    seconds = state.job.batches_per_chunk_total * planner.cluster.batch_seconds(state, site)
    return Challenge(policy, state, site, seconds, now)


def _take_free(
    planner: Planner, state: JobState, site: str, nodes: list[NodeState], now: float, *, first_fit: bool
) -> None:
    """Open windows in what is free: all of a gang or none, of a chunked job as many as fit."""
    job = state.job
    waiting = len(state.waiting_at(site, now)) if site else state.wanted_on_nodes
    wanted = job.chunks if job.rigid else min(job.max_workers - len(state.runs), waiting)
    if job.rigid and job.helpers:
        found = gangs.find_places(planner.cluster, state, nodes, now, first_fit=first_fit)
        if found is not None:
            gangs.seat(planner, state, found[1], now)
            _open(planner, state, site, found[0], now)
        return
    if len(state.servers) < job.servers and not (
        free_nodes(nodes, state, 1, first_fit=True) and planner.place_servers(state)
    ):
        return
    if not job.rigid:
        wanted = planner.cluster.quotas.most_workers(job, wanted)
    fastest = planner.policy.learns and not job.whole
    chosen = free_nodes(nodes, state, wanted, first_fit=first_fit, fastest=fastest)
    if chosen and not (job.rigid and len(chosen) < wanted):
        _open(planner, state, site, chosen, now)


def _open_on_demand(planner: Planner, state: JobState, site: str, now: float) -> None:
    """Open a window for every chunk that is to train at a site with capacity on demand; all of a gang or none."""
    if state.job.rigid:
        if shortage(planner.cluster, state) is None:
            gangs.seat_at(planner, state, site, now)
            for chunk in state.waiting:
                planner.open(state, Home(site, None), (chunk,), now)
        return
    for chunk in state.waiting_at(site, now):
        if len(state.runs) >= state.job.max_workers or shortage(planner.cluster, state):
            return
        if not planner.place_servers(state):
            return
        planner.open(state, Home(site, None), (chunk,), now)


def _open(planner: Planner, state: JobState, at: str, nodes: list[NodeState], now: float) -> None:
    """Open one window on each of the nodes, as long as there are chunks whose data are there."""
    waiting = state.waiting_at(at, now) if at else state.waiting
    if state.cloud and not at:
        waiting = [chunk for chunk in waiting if chunk not in state.cloud]
    uploading = not at and state.uploaded_at is not None and now < state.uploaded_at
    for node in nodes:
        if not waiting:
            return
        site, name = node.node.site, node.node.name
        count = chunks_of_window(state, planner.cluster.batch_seconds(state, site, node=name))
        if uploading:
            chosen = [chunk for chunk in waiting if state.is_at(chunk, site, now)][:count]
            waiting = [chunk for chunk in waiting if chunk not in chosen]
        else:
            chosen, waiting = waiting[:count], waiting[count:]
        if chosen:
            planner.open(state, Home(site, name), tuple(chosen), now)


def chunks_of_window(state: JobState, seconds_per_batch: float) -> int:
    """How many chunks a window of a queue policy gets."""
    if state.job.rigid or not state.job.restart_seconds or state.job.preemption is Preemption.AT_CHUNK_END:
        return 1
    chunk_seconds = state.job.batches_per_chunk_total * seconds_per_batch
    return max(1, round(RESTARTS_PER_WINDOW * state.job.restart_seconds / chunk_seconds))
