"""Scheduling cycle of queue policies: jobs get windows in order of rank, by preempting jobs behind if necessary."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush

from tranche.planner.context import PlannerContext
from tranche.planner.job_queue import Candidate, DemandClass, JobQueue, can_use_window_at
from tranche.planner.scheduling import (
    cloud_burst,
    gang_placement,
    gpu_choice,
    level_placement,
    level_relocation,
)
from tranche.planner.scheduling.bandwidth_group import best_connected
from tranche.planner.scheduling.chunk_split import split_lagging
from tranche.planner.scheduling.data_replication import copy_ahead, copy_for_head, upload_everywhere
from tranche.planner.scheduling.fair_share import expect_review, review_shares
from tranche.planner.scheduling.faster_gpu import move_to_faster
from tranche.planner.scheduling.placement import BEST_FIT, BY_PACE, Order, free_hosts, free_nodes
from tranche.planner.scheduling.placement_trial import could_run_on_nodes, nodes_beside_worker
from tranche.planner.scheduling.preemption import coming_quota, free_quota, preempt, preemption_request
from tranche.planner.scheduling.server_placement import place_servers
from tranche.planner.scheduling.windows import open_window, open_windows
from tranche.planner.scheduling.worker_distribution import distribute
from tranche.planner.unplaced_pods import preempts_any
from tranche.policies import TieredRank
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.node import NodeState
from tranche.state.placement_record import PreemptionScope
from tranche.state.quota_usage import Shortage
from tranche.state.window import SlotBinding

AFTER_OTHER_SITES = 1 << 62
"""Number added to that of a candidate, so that its job is first served at the other sites with its data."""


def run_cycle(context: PlannerContext, queue: JobQueue, now: float) -> None:
    """Run one scheduling cycle: open and close windows until no waiting job can be placed.

    If a review of unlimited sites is due, it first divides the waiting jobs between nodes and unlimited sites. Then
    windows are opened in order of rank.
    """
    changed, traits = _copy_data(context, queue, now), queue.policy.traits
    if traits.allocates_workers:
        distribute(context, queue, now)
    capacity_freed = bool(queue.freed_sites)
    if traits.places_by_level:
        level_placement.continue_moves(context, now)
        level_placement.observe_waits(context, now)
    counts_recent = context.cluster.shares.halflife_seconds > 0
    reviewed = counts_recent and review_shares(context, now)
    if context.cluster.clouds and cloud_burst.is_due(context, changed, now):
        _review_clouds(context, queue, now)
    _refresh(context, queue, now)
    _serve_queue(context, queue, now)
    if traits.places_by_level:
        level_placement.end_declines(context, now)
        level_relocation.relocate(context, queue, now, capacity_freed=capacity_freed)
    queue.settle()
    if queue.policy.split_factor() > 0:
        split_lagging(context, queue, now)
    if context.cluster.weighs_gpu_kinds and queue.policy.faster_factor() > 0:
        move_to_faster(context, queue, now)
    if counts_recent:
        expect_review(context, now, reviewed=reviewed)
    if traits.needs_local_data:
        copy_for_head(context, queue, now)


def _copy_data(context: PlannerContext, queue: JobQueue, now: float) -> list[str]:
    """Begin the copies of data that changed jobs need, or all jobs after a change of nodes; return their keys."""
    changed, jobs = list(queue.stale), context.cluster.jobs
    if queue.places_changed:
        queue.places_changed = False
        changed = list(dict.fromkeys((*changed, *jobs)))
    for key in changed:
        state = jobs.get(key)
        if state is not None and state.moves_data and state.active:
            if queue.policy.traits.needs_local_data:
                copy_ahead(context, queue, state, now)
            else:
                upload_everywhere(context, queue, state, now)
    return changed


def _review_clouds(context: PlannerContext, queue: JobQueue, now: float) -> None:
    """Divide the waiting jobs between nodes and unlimited sites."""
    _refresh(context, queue, now)
    cloud_burst.review(context, queue, now)
    if queue.policy.traits.allocates_workers:
        distribute(context, queue, now)


def _serve_queue(context: PlannerContext, queue: JobQueue, now: float) -> None:
    candidates = queue.candidates(now)
    if not candidates:
        return
    cycle = SchedulingCycle(context, queue, now, candidates)
    while cycle.schedule_next():
        pass
    for state in cycle.passed_over:
        queue.stale[state.job.key] = None


def _refresh(context: PlannerContext, queue: JobQueue, now: float) -> None:
    """Rank changed jobs, and set the timers for the next change of their ranks."""
    for key, change in queue.refresh(now):
        context.timers.change(None if change is None else max(now, change), key)


@dataclass(slots=True, eq=False)
class SchedulingCycle:
    """One pass down the queue."""

    context: PlannerContext
    queue: JobQueue
    now: float
    heap: list[Candidate]
    passed_over: list[JobState] = field(default_factory=list)
    """Jobs that cannot run for a reason of their own, which does not apply to other jobs of their class."""
    full: set[str] = field(default_factory=set)
    """Sites where no job of lower rank can get a GPU."""
    blocked: set[str] = field(default_factory=set)
    """GPU resources that the head of a strict queue keeps from the jobs behind it, if the installation has several."""
    coming: list[Shortage] = field(default_factory=list)
    """Quotas that closing windows will free for jobs served before, so that jobs of lower rank may not take them."""

    def schedule_next(self) -> bool:
        """Serve the candidate that ranks first; returns False when none is left."""
        found = self._next()
        if found is None:
            return False
        candidate, may_preempt = found
        rank, _, number, one, state = candidate
        queue, now, before = self.queue, self.now, len(state.runs)
        postponed = may_preempt and bool(one.site) and self._has_room_elsewhere(candidate)
        may_preempt = may_preempt and not postponed
        preempted = _serve(self.context, queue, candidate, now, may_preempt=may_preempt, is_first=not self.passed_over)
        if postponed and can_use_window_at(state, one.site, now):
            heappush(self.heap, candidate._replace(number=number + AFTER_OTHER_SITES))
            return True
        if queue.policy.fills_progressively() and len(state.runs) > before and can_use_window_at(state, one.site, now):
            if (again := queue.candidate(one, number, now)) is not None:
                heappush(self.heap, again)
            return True
        exhausted = False
        if can_use_window_at(state, one.site, now):
            if self._blocks_others(one, state, rank):
                return True
            strict, unlimited = queue.policy.traits.head_of_line_blocking, self.context.cluster.is_unlimited(one.site)
            exhausted = not (strict or unlimited or _has_own_obstacle(one, state, now))
            self.passed_over += [] if exhausted else [state]
        else:
            one.last_tried = state
        if not exhausted:
            queue.drop(state, one.site)
        if preempted:
            self.heap = queue.candidates_after_preemption(self.heap, one if exhausted else None, rank, state, now)
        elif not exhausted and (following := queue.candidate(one, number, now)) is not None:
            heappush(self.heap, following)
        return True

    def _has_room_elsewhere(self, candidate: Candidate) -> bool:
        """Return whether the job could start in free capacity of another site, so that it preempts here only later."""
        cluster, one = self.context.cluster, candidate.demand_class
        if candidate.number >= AFTER_OTHER_SITES:
            return False
        return any(
            cluster.free.gpus_at(site) >= one.slots and not cluster.is_unlimited(site)
            for site in self.queue.sites_of(candidate.state)
            if site != one.site
        )

    def _blocks_others(self, one: DemandClass, state: JobState, rank: TieredRank) -> bool:
        """Record what a job that waits after it was served keeps from others; returns whether a strict queue ends."""
        queue, cluster, now = self.queue, self.context.cluster, self.now
        held, unlimited = cluster.shortage(state) is not None, cluster.is_unlimited(one.site)
        one.last_tried = None if held else state  # what failed for lack of quota may succeed with it
        if held and queue.policy.traits.preemptive:
            short = coming_quota(cluster, state)
            self.coming += [short] if short is not None else []
        strict = queue.policy.traits.head_of_line_blocking
        if strict and not (held or unlimited) and _blocks(cluster, state, now):
            resource = state.job.gpu_resource
            if resource:
                self.blocked.add(resource)
            else:
                self.full.add("")  # for jobs behind it
            return True
        if not unlimited and _is_full(self.context, queue, state, one.site, rank, now):
            self.full.add(one.site)
        return False

    def _is_too_large(self, candidate: Candidate, free: int, *, may_preempt: bool) -> bool:
        """Return whether the job gets no worker by the number of GPUs alone, as most heads of classes do not.

        Its class needs no further consideration then, and the site is full if no GPU is free or held by jobs behind.
        Quotas, unlimited sites and strict queues need more consideration, and so does a job that waits for a reason of
        its own.
        """
        rank, _, _, one, state = candidate
        slots = one.slots
        if free >= slots:
            return False
        queue, cluster, site, now = self.queue, self.context.cluster, one.site, self.now
        traits = queue.policy.traits
        if cluster.quotas.by_namespace or traits.head_of_line_blocking or (site and cluster.is_unlimited(site)):
            return False
        behind = queue.running.gpus_behind(state, rank, site, now, any_resource=True) if traits.preemptive else 0
        if free + (behind if may_preempt else 0) >= slots or not can_use_window_at(state, site, now):
            return False
        state.awaits_faster = False
        if _has_own_obstacle(one, state, now):
            return False
        if not (free or behind):
            self.full.add(site)
        return True

    def _next(self) -> tuple[Candidate, bool] | None:
        """Return the first candidate that is still valid, may get capacity and is not too large for it.

        It has its current rank, and comes with whether it may preempt others.
        """
        queue, cluster, heap, full = self.queue, self.context.cluster, self.heap, self.full
        clouds = cluster.clouds
        while heap and ("" not in full or clouds):
            candidate = heappop(heap)
            one = candidate.demand_class
            site = one.site
            nodes_full = ("" in full or one.gpu_resource in self.blocked) and site not in clouds
            if nodes_full or site in full:
                continue
            current = queue.current(candidate, self.now)
            if current is None:
                continue
            free, may_preempt = cluster.free.gpus_at(site), queue.may_preempt(one, current.state)
            if not (free or may_preempt or (site and cluster.is_unlimited(site))):
                continue
            if self.coming and any(short.limit_counts(current.state.job) for short in self.coming):
                continue
            if current is not candidate and current.position != candidate.position:
                heappush(heap, current)
            elif self._is_too_large(current, free, may_preempt=may_preempt):
                one.last_tried = current.state
            else:
                return current, may_preempt
        return None


def _is_full(
    context: PlannerContext, queue: JobQueue, state: JobState, site: str, rank: TieredRank, now: float
) -> bool:
    """Return whether no job behind this one can get a GPU there: none is free, and none is held by jobs behind."""
    if context.cluster.free.gpus_at(site):
        return False
    behind = queue.policy.traits.preemptive and queue.running.gpus_behind(state, rank, site, now, any_resource=True)
    return not behind


def _has_own_obstacle(one: DemandClass, state: JobState, now: float) -> bool:
    """Return whether the job may be blocked for a reason that does not apply to other jobs of its class."""
    uploading = state.uploaded_at is not None and now < state.uploaded_at
    tries = one.scope is PreemptionScope.ONE and state.awaits_place
    avoids = bool(state.excluded_nodes or state.placement.refusals)
    return avoids or state.unhosted or uploading or tries or state.awaits_faster


def _blocks(cluster: ClusterState, state: JobState, now: float) -> bool:
    """Return whether a waiting head of a strict queue blocks the nodes: it could run there, and its data are there."""
    sites = cluster.hosts(state).by_site
    return any(state.can_start_at(site, now) for site in sites) and could_run_on_nodes(cluster, state)


def _serve(
    context: PlannerContext, queue: JobQueue, candidate: Candidate, now: float, *, may_preempt: bool, is_first: bool
) -> bool:
    """Open the windows that the head of a class can get at its site; returns whether a job was preempted for it.

    `is_first` is False if the cycle has already passed over a job that waits.
    """
    rank, state, site = candidate.rank, candidate.state, candidate.demand_class.site
    job, policy = state.job, queue.policy
    workers, state.awaits_faster = job.min_available, False
    if context.cluster.is_unlimited(site):
        _open_on_demand(context, state, site, now)
        return False
    nodes = free_hosts(context.cluster, state, site, now)
    if context.cluster.shortage(state) is not None:
        preempts = preempts_any(context.cluster, policy, state)
        behind = list(queue.running.jobs_behind(state, rank, "", now)) if preempts else []
        return free_quota(context, preemption_request(context, policy, state, site, now), nodes, behind)
    if sum([node.free_gpus for node in nodes]) >= workers * job.gpus:
        if is_first and gpu_choice.has_kinds(context.cluster, state):
            is_first = all(other is state for _, other in queue.heads_before(candidate.position, now))
        _take_free(context, state, site, nodes, now, first_fit=policy.traits.first_fit, first=is_first)
    if state.awaits_faster or not may_preempt or not can_use_window_at(state, site, now):
        return False
    free = sum([node.free_gpus for node in nodes])
    return preempt(context, queue, state, site, rank, free, now)


def _take_free(
    context: PlannerContext,
    state: JobState,
    site: str,
    nodes: list[NodeState],
    now: float,
    *,
    first_fit: bool,
    first: bool,
) -> None:
    """Open windows in free capacity: all of a gang or none, and of a chunked job as many as fit.

    Args:
        context: Context of the planner.
        state: State of the job.
        site: Site where it starts ("": any site).
        nodes: Nodes with free GPUs that it may use, by name.
        now: Clock, in seconds.
        first_fit: Choose nodes by name instead of best fit.
        first: Whether no other job that waits ranks ahead.
    """
    job = state.job
    if job.is_gang:
        _start_gang(context, state, site, nodes, now, first_fit=first_fit)
        return
    waiting = len(state.waiting_at(site, now)) if site else state.wanted_on_nodes
    wanted = min(job.max_workers - len(state.runs), waiting)
    choose = partial(_choose_nodes, context, state, site, nodes, wanted, now, first_fit=first_fit, first=first)
    chosen, later = choose()

    def starts() -> bool:
        nonlocal chosen, later
        chosen, later = choose()
        return bool(chosen)

    lacks_servers = bool(chosen) and len(state.servers) < job.servers
    if lacks_servers and not _place_servers(context, state, nodes, now, starts) and chosen:
        return
    if later is not None:
        state.awaits_faster = True
        context.retry(later, job.key)
    if chosen:
        open_windows(context, state, site, chosen, now)


def _start_gang(
    context: PlannerContext, state: JobState, site: str, nodes: list[NodeState], now: float, *, first_fit: bool
) -> None:
    """Open the windows of all members of a gang, if all of them fit; the arguments are those of `_take_free`."""
    job = state.job
    if context.queue is not None and context.queue.policy.groups_by_bandwidth():
        nodes = best_connected(context.cluster, state, nodes)
    if job.helper_count:
        by_level = level_placement.takes_narrowest_level(context.cluster, context.policy, state)
        found = gang_placement.find_places(context.cluster, state, nodes, now, first_fit=first_fit, by_level=by_level)
        if found is not None:
            gang_placement.start_helpers(context, state, found[1], now)
            open_windows(context, state, site, found[0], now)
        return
    if level_placement.places_by_level(context.cluster, context.policy, state):
        places = level_placement.find_nodes(context, state, nodes, now)
        if places:
            open_windows(context, state, site, places, now)
        return
    chosen, _ = _choose_nodes(context, state, site, nodes, job.chunks, now, first_fit=first_fit, first=False)
    if len(chosen) >= job.chunks:
        open_windows(context, state, site, chosen, now)


def _choose_nodes(
    context: PlannerContext,
    state: JobState,
    site: str,
    nodes: list[NodeState],
    wanted: int,
    now: float,
    *,
    first_fit: bool,
    first: bool,
) -> tuple[list[NodeState], float | None]:
    """Return a node for each of at most `wanted` windows, and when to look again if chunks wait for a faster GPU.

    Quotas and the policy may allow a chunked job fewer windows. The other arguments are those of `_take_free`.
    """
    job = state.job
    if not job.is_gang:
        if context.queue is not None and context.queue.policy.fills_progressively():
            wanted = min(1, wanted)
        wanted = context.cluster.quotas.most_workers(job, wanted)
    learned = context.policy.traits.uses_learned_estimates and not job.is_indivisible
    order, weighs = BY_PACE if learned else BEST_FIT, gpu_choice.has_kinds(context.cluster, state)
    if weighs:
        order = gpu_choice.by_speed(state, learned=learned)
    chosen = free_nodes(nodes, state, wanted, first_fit=first_fit and not weighs, order=order)
    if job.is_gang or not (chosen and weighs):
        return chosen, None
    waits = state.waiting_at(site, now) if site else state.waiting
    elsewhere = _free_elsewhere(context.cluster, state, site, waits, order, now) if site else []
    kept, later = gpu_choice.nodes_to_start_on(
        context.cluster, state, chosen, waits, now, first=first, elsewhere=elsewhere
    )
    return (chosen, None) if later is None else (kept, later)


def _place_servers(
    context: PlannerContext, state: JobState, nodes: list[NodeState], now: float, starts: Callable[[], bool]
) -> bool:
    """Start the missing parameter servers of a chunked job if a worker of it fits one of the nodes beside them.

    They would be idle if no worker `starts` now: with them, a chunk may complete sooner on a faster GPU, later.
    """

    def fits() -> bool:
        return bool(free_nodes(nodes, state, 1, first_fit=True))

    return fits() and place_servers(
        context, state, fits, lambda: nodes_beside_worker(context.cluster, state, nodes, now), starts
    )


def _free_elsewhere(
    cluster: ClusterState, state: JobState, site: str, waiting: list[int], order: Order, now: float
) -> list[NodeState]:
    """Return nodes with free GPUs at other sites that chunks of this site do not leave to chunks that wait only there.

    Returns one entry for each worker.
    """
    found = []
    for other, there in state.waiting_by_site(now).items():
        if other != site and not cluster.is_unlimited(other):
            free = free_nodes(free_hosts(cluster, state, other, now), state, len(there), first_fit=False, order=order)
            found += free[len(set(there).difference(waiting)) :]
    return found


def _open_on_demand(context: PlannerContext, state: JobState, site: str, now: float) -> None:
    """Open a window for every chunk that waits for an unlimited site; all of a gang or none."""
    if state.job.is_gang:
        if context.cluster.shortage(state) is None:
            gang_placement.start_helpers_at(context, state, site, now)
            state.topology_level = context.cluster.fresh_level(state)
            for chunk in state.waiting:
                open_window(context, state, SlotBinding(site, None), (chunk,))
        return
    for chunk in state.waiting_at(site, now):
        if len(state.runs) >= state.job.max_workers or context.cluster.shortage(state):
            return
        if not place_servers(context, state):
            return
        open_window(context, state, SlotBinding(site, None), (chunk,))
