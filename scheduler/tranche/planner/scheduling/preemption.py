"""Preemption: closing windows of jobs that rank behind, where that frees capacity or quota for a job.

The policy decides whether a window may be closed for another job, and above which remaining time that is worthwhile
(`QueuePolicy.min_remaining_to_preempt`, `may_preempt_window`); `PlacementTrial` finds the windows to close. Policies
that bind chunks to slots preempt in `slot_scheduler`, and `level_relocation` moves gangs. If a pod of others needs a
node, `tranche.extender.eviction_cost` compares what the training pods there would lose.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from tranche.model import Resources
from tranche.planner.context import PlannerContext
from tranche.planner.job_actions import preempt_window
from tranche.planner.job_queue import JobQueue, can_use_window_at
from tranche.planner.scheduling import gang_placement, level_placement
from tranche.planner.scheduling.placement import free_hosts, free_nodes
from tranche.planner.scheduling.placement_trial import (
    Placement,
    PlacementTrial,
    PreemptionRequest,
    Victim,
    nodes_beside_worker,
)
from tranche.planner.scheduling.server_placement import place_servers
from tranche.planner.scheduling.windows import open_windows
from tranche.policies import QueuePolicy, TieredRank
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.node import Hosts, NodeState
from tranche.state.placement_record import PreemptionScope
from tranche.state.quota_usage import Kind, Shortage, is_covered, kind_of


def preempt(
    context: PlannerContext, queue: JobQueue, state: JobState, site: str, rank: TieredRank, free: int, now: float
) -> bool:
    """Close windows of jobs that rank behind if that gives the job a worker; returns whether any was closed."""
    cluster, job = context.cluster, state.job
    scope = cluster.preemption_scope(state)
    if scope is PreemptionScope.NONE:  # it has just opened a window that must be placed first
        return False
    workers = job.min_available
    room = free + queue.running.gpus_behind(state, rank, site, now)
    if room < workers * job.gpus:
        return False
    behind = queue.running.jobs_behind(state, rank, site, now)
    request = preemption_request(context, queue.policy, state, site, now)
    trial = _trial(request, cluster, behind, free_hosts(cluster, state, site, now))
    stopped: dict[str, JobState] = {}
    reasons: dict[str, str] = {}
    preempted = False
    while room >= workers * job.gpus:
        hosts = free_hosts(cluster, state, site, now)
        found = trial.find(hosts, workers, state.joining)
        if found is None or cluster.shortage(state):
            break
        if not job.is_gang and (found := _with_servers(context, state, trial, found, hosts)) is None:
            break
        for victim in found[1]:
            key = victim.state.job.key
            if key not in stopped:
                reasons[key] = queue.policy.precedence_reason(state, victim.state, cluster, now)
            stopped[key] = victim.state
            for run in victim.runs:
                preempt_window(context, victim.state, run, state, reasons[key])
        if job.is_gang:
            gang_placement.start_helpers(context, state, trial.helper_nodes, now)
        open_windows(context, state, site, found[0], now)
        room -= workers * job.gpus
        preempted = True
        if scope is PreemptionScope.ONE or not can_use_window_at(state, site, now):
            break
    for one in stopped.values():
        queue.note_running(one, now)
    return preempted


def _with_servers(
    context: PlannerContext, state: JobState, trial: PlacementTrial, found: Placement, free: Sequence[NodeState]
) -> Placement | None:
    """Start the missing parameter servers of a chunked job, and return a placement of its worker beside them, if any.

    If the servers as the policy places them leave no room for the worker in `found`, both are placed by the trial.
    """
    placement: Placement | None = found

    def leaves_room() -> bool:
        node = found[0][0]
        freed = [victim.freed().get(node.node.name, Resources()) for victim in found[1]]
        return state.job.worker.requests.fits(sum(freed, node.capacity - node.reserved))

    def beside_worker() -> Sequence[NodeState]:
        nonlocal placement
        trial.chosen.clear()  # no victim has stopped, so that the trial may choose from all again
        placement = trial.find(free, 1, state.missing_servers)
        return trial.helper_nodes if placement is not None else ()

    return placement if place_servers(context, state, leaves_room, beside_worker) else None


def _trial(
    request: PreemptionRequest, cluster: ClusterState, behind: Iterable[JobState], free: list[NodeState]
) -> PlacementTrial:
    """Return a new trial; for a gang with a topology level, in the group where it stops the fewest windows.

    A gang that requires a level has the groups of that level. One that prefers narrow levels has those of the narrowest
    level at which it can start, of any level that it may use.
    """
    state, now = request.state, request.now
    if not (state.job.is_gang and level_placement.takes_narrowest_level(cluster, request.policy, state)):
        return PlacementTrial(cluster, state, now, request.victims(behind))
    victims = list(request.victims(behind))
    for groups in level_placement.groups_by_level(cluster, state):
        hosts = _group_with_fewest_stops(request, cluster, groups, victims, free)
        if hosts is not None:
            return PlacementTrial(cluster, state, now, iter(victims), hosts=hosts)
    return PlacementTrial(cluster, state, now, iter(()), hosts=Hosts[NodeState](()))


def _group_with_fewest_stops(
    request: PreemptionRequest,
    cluster: ClusterState,
    groups: list[Hosts[NodeState]],
    victims: list[Victim],
    free: list[NodeState],
) -> Hosts[NodeState] | None:
    """Return the group of nodes in which a gang can start if the fewest windows stop; None if it can start in none.

    A group is not tried if its GPUs do not suffice, or if more windows would have to stop there than elsewhere.
    """
    state, needed = request.state, request.state.job.min_available * request.state.job.gpus
    number_of = {name: number for number, hosts in enumerate(groups) for name in hosts.by_name}
    within: list[list[Victim]] = [[] for _ in groups]
    free_within: list[list[NodeState]] = [[] for _ in groups]
    free_gpus = [sum(max(0, node.free_gpus) for node in hosts) for hosts in groups]
    gpus, largest = list(free_gpus), [1 for _ in groups]
    for node in free:
        if (number := number_of.get(node.node.name)) is not None:
            free_within[number].append(node)
    for victim in victims:
        found_in: set[int] = set()
        for run in victim.runs:
            if (number := number_of.get(run.home.node or "")) is not None:
                found_in.add(number)
                gpus[number] += run.requests.gpus
                largest[number] = max(largest[number], run.requests.gpus)
        for number in found_in:
            within[number].append(victim)
    best: tuple[int, Hosts[NodeState]] | None = None
    for number, hosts in enumerate(groups):
        least = -(-(needed - free_gpus[number]) // largest[number])
        if gpus[number] < needed or (best is not None and least >= best[0]):
            continue
        own = victims if state.joining else within[number]  # parameter servers and chief may be outside of the group
        trial = PlacementTrial(cluster, state, request.now, iter(own), hosts=hosts)
        found = trial.find(free_within[number], state.job.min_available, state.joining)
        count = sum(len(victim.runs) for victim in found[1]) if found is not None else 0
        if found is not None and (best is None or count < best[0]):
            best = (count, hosts)
    return None if best is None else best[1]


def free_quota(
    context: PlannerContext, request: PreemptionRequest, nodes: list[NodeState], behind: list[JobState]
) -> bool:
    """Close windows of the namespace that rank behind if that frees enough quota; returns whether any was closed.

    Parameter servers that the job lacks are placed first, as in `preempt`: otherwise the room that the windows leave
    may go to another job, and the job would preempt again without end.

    The quota is free only when their pods have ended; the job, which ranks first, is planned then.

    Args:
        context: Context of the planner, with the jobs and the queue.
        request: Request of the job that its quotas hold back.
        nodes: Nodes that it could use.
        behind: Jobs that may be preempted, worst rank first.
    """
    state, now = request.state, request.now
    workers = state.job.min_available
    quotas, job, missing = context.cluster.quotas, state.job, state.missing_shapes
    less = _ending(context.cluster, job.namespace)
    chosen: list[Victim] = []
    short_of = ""
    victims = request.victims([one for one in behind if one.job.namespace == job.namespace])
    while (short := quotas.shortage(job, workers, missing, besides=less)) is not None:
        victim = next(victims, None)
        if victim is None:
            return False
        kind, short_of = kind_of(victim.state.job, victim.runs[0].requests), short.quota.key
        if is_covered(short.quota, kind) and short.limit.amount(kind.requests):
            chosen.append(victim)
            less.subtract(kind_of(victim.state.job, run.requests) for run in victim.runs)

    def fits() -> bool:
        if len(free_nodes(nodes, state, workers, first_fit=False)) == workers and not job.required_level:
            return True
        return _trial(request, context.cluster, behind, nodes).find(nodes, workers, state.joining) is not None

    if not (chosen and fits()):
        return False
    if not (
        job.is_gang
        or place_servers(context, state, fits, lambda: nodes_beside_worker(context.cluster, state, nodes, now))
    ):
        return False
    for victim in chosen:
        reason = request.policy.precedence_reason(state, victim.state, context.cluster, now)
        why = f"{reason}, for the quota {short_of}"
        for run in victim.runs:
            preempt_window(context, victim.state, run, state, why)
        if context.queue is not None:
            context.queue.note_running(victim.state, now)
    return True


def coming_quota(cluster: ClusterState, state: JobState) -> Shortage | None:
    """Return the shortage of quota of a job that ends when the closing windows of its namespace end; None if none does.

    Until then, jobs that rank behind must not take what becomes free: the job would preempt them again without end.
    """
    short = cluster.shortage(state)
    if short is None:
        return None
    less = _ending(cluster, state.job.namespace)
    left = cluster.quotas.shortage(state.job, state.job.min_available, state.missing_shapes, besides=less)
    return short if left is None else None


def _ending(cluster: ClusterState, namespace: str) -> Counter[Kind]:
    """Return the closing windows of a namespace whose pods stop in time by kind, as negative numbers.

    Those whose pods do not stop may keep their quota without end.
    """
    less: Counter[Kind] = Counter()
    for other in cluster.jobs.values():
        if other.job.namespace == namespace:
            ending = (run for run in other.runs.values() if run.closing and not run.overdue)
            less.subtract(kind_of(other.job, run.requests) for run in ending)
    return less


def preemption_request(
    context: PlannerContext, policy: QueuePolicy, state: JobState, site: str, now: float
) -> PreemptionRequest:
    """Make the job's request for slots of other jobs at a site ("": any site)."""
    seconds = state.job.batches_per_chunk_total * context.cluster.batch_seconds(state, site)
    return PreemptionRequest(policy, state, site, seconds, now)
