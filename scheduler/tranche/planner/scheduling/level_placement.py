"""Placement of gangs at the narrowest topology level with room, which a policy may let them decline for a time.

Source of the delays: design ours [I] after the abstract of Dally, arXiv 2401.16492 (`tranche.policies.locality.dally`).
A gang that declines a place leaves it to the jobs behind it, and a timer reconsiders the gang when it would accept.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tranche.model import PodShape, Resources
from tranche.planner.context import PlannerContext
from tranche.planner.job_queue import can_use_window
from tranche.planner.scheduling.placement import free_hosts
from tranche.planner.scheduling.windows import open_windows
from tranche.policies import Policy, QueuePolicy
from tranche.policies.locality.delay_timer import size_class
from tranche.state.cluster import ClusterState
from tranche.state.job import MOMENT_SECONDS, JobState
from tranche.state.node import Hosts, NodeState
from tranche.state.topology_fit import Fit, members_in, narrowest_fit, spread
from tranche.state.window import TrackedWindow


class LevelRooms:
    """Free resources of nodes, and the members of one gang for which they have room; a trial may change them."""

    def __init__(self, cluster: ClusterState, state: JobState, nodes: Iterable[NodeState]) -> None:
        self._cluster = cluster
        self._request, self._members = state.job.worker.requests, state.job.min_available
        self._widest = cluster.widest_level(state)
        self._nodes = {node.node.name: node for node in nodes}
        self._free = {name: node.capacity - node.reserved for name, node in self._nodes.items()}
        self._rooms = {name: self._count(name) for name in self._free}
        self._domains = {name: cluster.places.domain(node.node) for name, node in self._nodes.items()}

    def _count(self, name: str) -> int:
        return members_in(self._free[name], self._request, self._members)

    def release(self, requests: Iterable[tuple[str, Resources]]) -> None:
        """Add resources that windows would free, by node; nodes that the gang may not use are ignored."""
        for name, amount in requests:
            if name in self._free:
                self._free[name] = self._free[name] + amount
                self._rooms[name] = self._count(name)

    def take(self, requests: Iterable[tuple[str, Resources]]) -> None:
        """Remove resources that windows would use, by node."""
        self.release((name, Resources() - amount) for name, amount in requests)

    def empty(self) -> None:
        """Add all resources that our pods use."""
        self.release((name, node.reserved) for name, node in self._nodes.items())

    def fit(self, widest: int | None = None) -> Fit | None:
        """Return the narrowest fit of the gang, up to a level and to that which it requires; None if it has none."""
        most = self._widest if widest is None else min(widest, self._widest)
        return narrowest_fit(self._rooms, self._domains, self._members, most)

    def holds(self, members: Mapping[str, int]) -> bool:
        """Return whether each of the nodes has room for this number of members."""
        return all(self._rooms.get(name, 0) >= count for name, count in members.items())

    def nodes(self, fit: Fit) -> list[NodeState]:
        """Return the node of each member."""
        return [self._nodes[name] for name in spread(self._rooms, self._domains, fit, self._members)]


class Fits:
    """Narrowest fits of gangs in the free capacity of one moment, one for each demand."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._known: dict[tuple[PodShape, int, str], Fit | None] = {}

    def of(self, state: JobState) -> Fit | None:
        """Return the narrowest fit of the gang; None if it does not fit."""
        job, cluster = state.job, self._cluster
        demand = (job.worker, job.min_available, job.required_level)
        if demand not in self._known:
            nodes = cluster.free.of(cluster.hosts(state), "")
            self._known[demand] = LevelRooms(cluster, state, nodes).fit()
        return self._known[demand]


def takes_narrowest_level(cluster: ClusterState, policy: Policy, state: JobState) -> bool:
    """Return whether the gang takes the narrowest level that has room for it, because it or the policy says so."""
    if state.job.required_level or state.job.preferred_level:
        return True
    return isinstance(policy, QueuePolicy) and policy.prefers_levels(state, cluster)


def places_by_level(cluster: ClusterState, policy: Policy, state: JobState) -> bool:
    """Return whether the members of the job are placed by topology level."""
    return state.job.is_gang and (policy.traits.places_by_level or takes_narrowest_level(cluster, policy, state))


def groups_by_level(cluster: ClusterState, state: JobState) -> Iterator[list[Hosts[NodeState]]]:
    """Yield the nodes that members of the gang may use, by group of each level, the narrowest level first.

    A gang that requires a level has that level only, and none if the installation does not have it.
    """
    hosts, widest = cluster.hosts(state), cluster.widest_level(state)
    narrowest = widest if state.job.required_level else cluster.narrowest_level(state)
    for level in range(max(narrowest, 0), widest + 1):
        if level not in hosts.by_level:
            groups = cluster.by_level(level, hosts, lambda node: node.node)
            hosts.by_level[level] = [Hosts(nodes) for nodes in groups]
        yield hosts.by_level[level]


def find_nodes(context: PlannerContext, state: JobState, nodes: Sequence[NodeState], now: float) -> list[NodeState]:
    """Return nodes with room for all members of a gang, at the narrowest level; none if it declines or does not fit.

    Args:
        context: Context of the planner.
        state: State of the gang.
        nodes: Nodes with free GPUs that it may use, by name.
        now: Clock, in seconds.
    """
    rooms = LevelRooms(context.cluster, state, nodes)
    fit = rooms.fit()
    if fit is None:
        return []
    seconds = seconds_to_accept(context.cluster, context.policy, state, fit.level, now)
    if seconds <= 0:
        return rooms.nodes(fit)
    context.cluster.locality.of(state.job.key).decline(now)
    state.awaits_faster = True
    if seconds < float("inf"):
        context.timers.change(now + max(MOMENT_SECONDS, seconds), state.job.key)
    return []


def seconds_to_accept(cluster: ClusterState, policy: Policy, state: JobState, level: int, now: float) -> float:
    """Return for how many more seconds the gang declines places of a level; 0 or less if it accepts them."""
    if not isinstance(policy, QueuePolicy) or not policy.traits.places_by_level:
        return 0.0
    known = cluster.locality.jobs.get(state.job.key)
    return policy.seconds_to_accept(state, cluster, level, known.waited(now) if known is not None else 0.0)


def observe_waits(context: PlannerContext, now: float) -> None:
    """Update what is known about the waits of all gangs, before places are given at a decision.

    For each level that a waiting gang could use, the time until there is capacity is observed, even after the gang
    has started elsewhere.
    """
    cluster = context.cluster
    records, fits = cluster.locality, Fits(cluster)
    for key, state in cluster.jobs.items():
        if not state.job.is_gang:
            continue
        if can_use_window(state, now):
            levels = range(cluster.narrowest_level(state), cluster.places.topology.widest)
            records.of(key).begin_wait(levels, now)
        known = records.jobs.get(key)
        if known is None:
            continue
        if state.runs:
            known.start()
        if known.observed:
            fit = fits.of(state)
            ended = not state.active
            for level in [one for one in known.observed if ended or (fit is not None and fit.level <= one)]:
                records.close(key, size_class(state.job_gpus), level, now)
    for key in [key for key in records.jobs if key not in cluster.jobs]:
        del records.jobs[key]


def end_declines(context: PlannerContext, now: float) -> None:
    """Stop the clock of gangs for which no place is left, after places were given at a decision."""
    cluster, fits = context.cluster, Fits(context.cluster)
    for key, known in cluster.locality.jobs.items():
        if known.declining_since is not None and (known.declined_at != now or fits.of(cluster.jobs[key]) is None):
            known.fits_nowhere(now)
            cluster.jobs[key].awaits_faster = False


def requests_by_node(runs: Mapping[int, TrackedWindow]) -> list[tuple[str, Resources]]:
    """Return what the open windows of a job reserve, by node."""
    return [(run.home.node or "", run.requests) for run in runs.values() if not run.closing]


def continue_moves(context: PlannerContext, now: float) -> None:
    """Open windows for the gangs that have stopped to move, on the nodes that were chosen for them."""
    moving, cluster = context.cluster.locality.moving, context.cluster
    for key in list(moving):
        state, names = cluster.jobs.get(key), moving[key]
        if state is not None and state.runs:
            continue
        del moving[key]
        if state is None or not can_use_window(state, now) or cluster.shortage(state) is not None:
            continue
        free = {node.node.name: node for node in free_hosts(cluster, state, "", now)}
        rooms = LevelRooms(cluster, state, free.values())
        if rooms.holds(Counter(names)):
            open_windows(context, state, "", [free[name] for name in names], now)
