"""Wait reason of a job: the one fact whose removal would let the job start earlier."""

from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum

from tranche.model import Preemption
from tranche.planner.forecast.estimates import Estimate
from tranche.planner.scheduling.data_replication import is_cut_off
from tranche.planner.scheduling.placement import count_fitting, free_hosts
from tranche.planner.scheduling.placement_trial import could_run, fits_with_helpers
from tranche.planner.scheduling.server_placement import room_for_servers, server_sites
from tranche.planner.unplaced_pods import preempts_any
from tranche.policies import Policy, QueuePolicy
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.node import TOO_SMALL
from tranche.state.quota_usage import Shortage
from tranche.state.staging import expected_copies


class WaitReasonKind(StrEnum):
    """Kind of a wait reason; the values are public (`waitsFor` of a plan and a metric's label)."""

    SUSPENDED = "Suspended"
    HELD = "Held"
    """Back-off after failures or rejections."""
    NO_NODES = "NoNodes"
    NODE = "Node"
    """No node takes a worker."""
    SIZE = "Size"
    """No node is large enough for a worker."""
    GANG = "Gang"
    """The cluster cannot hold all members at once."""
    LEVEL = "Level"
    """No group of the topology level that the members of a gang require has room for all of them now."""
    LEVEL_SIZE = "LevelSize"
    """No group of that level could ever hold all members, or the installation does not have the level."""
    QUOTA = "Quota"
    """A ResourceQuota of the namespace."""
    DATA = "Data"
    """The job's data are on the way to a site."""
    SERVER = "Server"
    """No free capacity for its parameter servers."""
    SERVER_SIZE = "ServerSize"
    """No node could ever host one of its parameter servers."""
    WORKERS_WITH_SERVERS = "Together"
    """The cluster cannot hold its parameter servers and the workers that it needs at once."""
    AVOIDED = "Avoided"
    """The node rejected a pod of the job and is excluded."""
    ROOM = "Room"
    """Too few free GPUs, CPU, memory or pods."""
    UNKNOWN = "Unknown"
    """There is no estimate yet, or no planned event lets the job start."""


SAME_SECONDS = 1e-6
"""Distance of two times that count as the same."""
PERMANENT = frozenset(
    {
        WaitReasonKind.NODE,
        WaitReasonKind.SIZE,
        WaitReasonKind.GANG,
        WaitReasonKind.LEVEL_SIZE,
        WaitReasonKind.SERVER_SIZE,
        WaitReasonKind.WORKERS_WITH_SERVERS,
    }
)
"""Reasons that end only when the specification or the nodes change."""
VERIFIED = frozenset({WaitReasonKind.ROOM, WaitReasonKind.SERVER, WaitReasonKind.QUOTA})
"""Reasons that rollouts verify (`tranche.planner.forecast.counterfactual`)."""


class Precedence(StrEnum):
    """Reason why another job has the capacity that a job waits for."""

    ORDER = "Order"
    """The other job ranks ahead."""
    POLICY = "Policy"
    """The other job ranks behind, and its own preemption policy or a disruption budget forbids stopping it."""
    COST = "Cost"
    """The other job ranks behind, and stopping it would cost more than it gains."""
    RUNNING = "Running"
    """The other job ranks behind, and the policy does not preempt."""
    RESTRAINED = "Restrained"
    """The other job ranks behind, and the waiting job may preempt no other now."""


@dataclass(frozen=True, slots=True)
class WaitReason:
    """Reason why a job waits."""

    kind: WaitReasonKind
    until: float | None = None
    """Expected end of the reason, in seconds on the planner's clock; None if unknown."""
    site: str = ""
    node: str = ""
    behind: str | None = None
    """Key of the job whose end or preemption frees the capacity."""
    precedence: Precedence = Precedence.ORDER
    resources: tuple[str, ...] = ("gpus",)
    """Fields of `Resources` that are short."""
    detail: str = ""
    """Why the job is held, or the nodes' objection to its workers."""
    count: int = 0
    """Number of nodes with this objection."""
    nodes: int = 0
    """Number of nodes that were asked: those with GPUs of the resource that the job requests, or all."""
    shortages: tuple[Shortage, ...] = ()
    """Limits of quotas that the job would exceed. Beside the room that another job has, they delay it no further;
    beside a permanent reason, they are those that the job would exceed in any case."""

    @property
    def is_permanent(self) -> bool:
        """Whether the job cannot start until its specification, the nodes or a quota change."""
        return self.kind in PERMANENT or any(short.hopeless for short in self.shortages)


def wait_reason_of(
    cluster: ClusterState, policy: Policy, state: JobState, estimate: Estimate | None, now: float
) -> WaitReason:
    """Return what an unfinished job without windows waits for.

    Args:
        cluster: State of the cluster.
        policy: Policy that ranks the jobs.
        state: State of the job.
        estimate: The job's estimate from the last forecast, if there is one.
        now: Clock, in seconds.
    """
    if state.job.suspended:
        return WaitReason(WaitReasonKind.SUSPENDED)
    short = cluster.shortages(state)
    hopeless = tuple(one for one in short if one.hopeless)
    permanent = _permanent(cluster, policy, state, estimate)
    if permanent is not None:
        return replace(permanent, shortages=hopeless)
    if hopeless:
        return WaitReason(WaitReasonKind.QUOTA, shortages=hopeless)
    start = estimate.start if estimate is not None else now
    if state.held_until > now and start <= state.held_until:
        return WaitReason(WaitReasonKind.HELD, state.held_until, detail=state.hold_reason)
    if short and (estimate is None or estimate.quota_binds):
        return WaitReason(WaitReasonKind.QUOTA, shortages=short)
    data = _data(cluster, state, estimate, now)
    if data is not None:
        return data
    until = start if estimate is not None and start > now else None
    if _servers_bind(cluster, policy, state, estimate, now):
        where = _server_place(cluster, policy, state)
        return WaitReason(WaitReasonKind.SERVER, until, where, behind=estimate.behind if estimate is not None else None)
    if estimate is None:
        fits = _fits_with_missing_servers(cluster, state)
        return WaitReason(WaitReasonKind.UNKNOWN if fits else WaitReasonKind.WORKERS_WITH_SERVERS)
    excluded = [name for name, at in state.excluded_nodes.items() if now < at <= start]
    if estimate.behind is None and excluded and (state.job.is_gang or estimate.node in excluded):
        node = estimate.node if estimate.node in excluded else excluded[0]
        return WaitReason(WaitReasonKind.AVOIDED, until, estimate.site, node)
    if _level_binds(cluster, state, now):
        return WaitReason(WaitReasonKind.LEVEL, until, estimate.site, estimate.node, estimate.behind)
    other = cluster.jobs.get(estimate.behind or "")
    if other is None and short:
        return WaitReason(WaitReasonKind.QUOTA, shortages=short)
    return WaitReason(
        WaitReasonKind.ROOM,
        until,
        estimate.site,
        estimate.node,
        other.job.key if other is not None else None,
        _precedence(cluster, policy, state, other, now) if other is not None else Precedence.ORDER,
        _short(cluster, state, estimate),
        shortages=short,
    )


def _permanent(cluster: ClusterState, policy: Policy, state: JobState, estimate: Estimate | None) -> WaitReason | None:
    """Return why the nodes can never take the job's pods; None if they can."""
    if not cluster.eligible(state.job.worker) and not cluster.clouds_for(state):
        return _no_node(cluster, state)
    if is_cut_off(cluster, policy, state):
        detail = f"are not at {state.job.data_site}, where its data stay without spec.data.chunkSize"
        return WaitReason(WaitReasonKind.NODE, detail=detail, count=len(cluster.hosts(state)), nodes=len(cluster.nodes))
    if state.job.is_gang and not cluster.meets_level(state) and not cluster.clouds_for(state):
        topology = cluster.places.topology
        known = topology.level(state.job.required_level) is not None
        detail = "" if known else f"which is not a topology level of this installation ({', '.join(topology.labels)})"
        return WaitReason(WaitReasonKind.LEVEL_SIZE, detail=detail)
    if state.job.is_gang and not could_run(cluster, state):
        return WaitReason(WaitReasonKind.GANG)
    if not _servers_fit(cluster, policy, state):
        return WaitReason(WaitReasonKind.SERVER_SIZE, site=_server_place(cluster, policy, state))
    if estimate is None and not _fits_with_servers(cluster, state):
        return WaitReason(WaitReasonKind.WORKERS_WITH_SERVERS)
    return None


def _data(cluster: ClusterState, state: JobState, estimate: Estimate | None, now: float) -> WaitReason | None:
    """Return data as the reason if the job starts when they arrive, or has none at any site where it could start."""
    uploads = [entry for entry in state.entries.values() if entry.home.site]
    if uploads:
        if estimate is not None:
            arriving = (one for one in uploads if abs(one.ready_at - estimate.start) <= SAME_SECONDS)
            uploads = [one for one in arriving if one.home.site == estimate.site]
        first = min(uploads, key=lambda entry: entry.ready_at, default=None)
        if first is None or first.ready_at <= now:
            return None
        return WaitReason(WaitReasonKind.DATA, first.ready_at, first.home.site)
    if estimate is not None and estimate.site:
        copies = {estimate.site: state.copies.get(estimate.site, {})}
        coming = expected_copies(copies, state.coming)[estimate.site].values()
        binds = estimate.start > now and estimate.start in coming
        return WaitReason(WaitReasonKind.DATA, estimate.start, estimate.site) if binds else None
    hosts = {node.node.site for node in cluster.hosts(state)}
    if not (state.copies or state.stagings) or hosts.intersection(state.waiting_by_site(now)):
        return None
    expected = expected_copies(state.copies, state.coming)
    arrivals = [(at, site) for site, copies in expected.items() for at in copies.values()]
    if arrivals:
        at, site = min(arrivals)
        return WaitReason(WaitReasonKind.DATA, at if at > now else None, site)
    failed = sorted((staging.site, staging.problem) for staging in state.stagings.values() if staging.given_up)
    if not failed:
        return None
    site, problem = failed[0]
    detail = "too many staging pods failed" + (f": {problem}" if problem else "")
    return WaitReason(WaitReasonKind.DATA, None, site, detail=detail)


def _server_place(cluster: ClusterState, policy: Policy, state: JobState) -> str:
    """Return the only site where the job's parameter servers may be; "" if there are several."""
    missing = state.missing_servers
    sites = server_sites(cluster, state, policy, missing[0].shape) if missing else []
    return (sites[0] or "") if len(sites) == 1 else ""


def _servers_fit(cluster: ClusterState, policy: Policy, state: JobState) -> bool:
    """Return whether each missing parameter server fits some node, leaving out tranche's own pods there."""
    for shape in {one.shape: None for one in state.missing_servers}:
        sites = server_sites(cluster, state, policy, shape)
        unlimited = any(site in cluster.sites and cluster.sites[site or ""].unlimited for site in sites)
        if not unlimited and not any(None in sites or node.node.site in sites for node in cluster.eligible(shape)):
            return False
    return True


def _fits_with_servers(cluster: ClusterState, state: JobState) -> bool:
    """Return whether the workers that must start together fit beside the servers that are placed already."""
    bound = {entry.home.node for entry in state.entries.values()}
    rooms = {node.node.name: node.capacity for node in cluster.hosts(state) if not bound or node.node.name in bound}
    for server in state.servers:
        host = server.planned.node or ""
        if host in rooms:
            rooms[host] = rooms[host] - server.requests
    members = state.job.min_available
    fitting = count_fitting(state.job.worker.requests, rooms.values(), members)
    return fitting == members or bool(cluster.clouds_for(state))


def _fits_with_missing_servers(cluster: ClusterState, state: JobState) -> bool:
    """Return whether a worker of a chunked job fits the nodes together with the servers that have no place yet."""
    missing = state.missing_servers
    return bool(state.job.is_gang or cluster.clouds) or not missing or fits_with_helpers(cluster, state, missing)


def _servers_bind(
    cluster: ClusterState, policy: Policy, state: JobState, estimate: Estimate | None, now: float
) -> bool:
    """Return whether parameter servers find no free capacity although, as far as is known, a worker would."""
    if len(state.servers) >= state.job.helper_count or room_for_servers(cluster, state, policy, now):
        return False
    sites = state.waiting_by_site(now) if state.copies else ("",)
    nodes = [node for site in sites for node in free_hosts(cluster, state, site, now)]
    return estimate is None or any(node.has_room(state.job.worker.requests) for node in nodes)


def _level_binds(cluster: ClusterState, state: JobState, now: float) -> bool:
    """Return whether the members of a gang would fit now, but for the topology level that they require."""
    if not (state.job.is_gang and state.job.required_level):
        return False
    rooms = (node.capacity - node.reserved for node in free_hosts(cluster, state, "", now))
    return count_fitting(state.job.worker.requests, rooms, state.job.min_available) == state.job.min_available


def _short(cluster: ClusterState, state: JobState, estimate: Estimate) -> tuple[str, ...]:
    """Return the resources that are short on the node where the job will start, or on all nodes for a gang."""
    request, members = state.job.worker.requests, state.job.min_available
    known = None if state.job.is_gang else cluster.nodes.get(estimate.node)
    rooms = [node.capacity - node.reserved for node in ([known] if known is not None else cluster.hosts(state))]
    short = []
    for resource in ("gpus", "cpu", "memory", "pods"):
        need = getattr(request, resource)
        if need and sum(max(0, getattr(room, resource) // need) for room in rooms) < members:
            short.append(resource)
    return tuple(short) or ("gpus",)


def _precedence(cluster: ClusterState, policy: Policy, state: JobState, other: JobState, now: float) -> Precedence:
    if isinstance(policy, QueuePolicy):
        first, second = ((policy.tiered_rank(one, cluster, now), one.arrival) for one in (other, state))
        if first < second:
            return Precedence.ORDER
    elif _is_first_in_slots(other, state):
        return Precedence.ORDER
    if not policy.traits.preemptive:
        return Precedence.RUNNING
    if other.job.preemption is not Preemption.IMMEDIATE or other.eviction_blocked:
        return Precedence.POLICY
    return Precedence.COST if preempts_any(cluster, policy, state) else Precedence.RESTRAINED


def _is_first_in_slots(first: JobState, second: JobState) -> bool:
    """Return whether a chunk of the first job is ahead of the second job's chunks that wait on the same nodes."""
    waiting = [entry for entry in second.entries.values() if entry.chunk not in second.chunk_runs]
    return any(
        one.key < entry.key for entry in waiting for one in first.entries.values() if one.home.node == entry.home.node
    )


def _no_node(cluster: ClusterState, state: JobState) -> WaitReason:
    """Return the most frequent objection of the nodes to a worker as the reason."""
    if not cluster.nodes:
        return WaitReason(WaitReasonKind.NO_NODES)
    alike = [node for node in cluster.nodes.values() if node.capacity.gpu_resource == state.job.gpu_resource]
    nodes = alike or list(cluster.nodes.values())
    reason, count = Counter(node.objection(state.job.worker) or "" for node in nodes).most_common(1)[0]
    kind = WaitReasonKind.SIZE if reason == TOO_SMALL else WaitReasonKind.NODE
    return WaitReason(kind, detail=reason, count=count, nodes=len(nodes))
