"""Simulated placements on a copy of the free capacity: nodes for a job's workers, and the windows that must close.

A `PlacementTrial` (compare Kueue's snapshots and KAI's statements) changes no state. It returns the windows to close
and the nodes to use, or None if no placement exists.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from tranche.model import Resources
from tranche.planner.scheduling.placement import count_fitting
from tranche.policies import QueuePolicy
from tranche.state.cluster import ClusterState
from tranche.state.helper import MissingHelper, helpers_of
from tranche.state.job import JobState
from tranche.state.node import Hosts, NodeState
from tranche.state.remaining_work import longest_rest_seconds, rest_seconds
from tranche.state.window import TrackedWindow


def could_run(cluster: ClusterState, state: JobState) -> bool:
    """Return whether an otherwise empty cluster could run the job; a job that never fits must not block a queue."""
    return bool(cluster.clouds_for(state)) or could_run_on_nodes(cluster, state)


def could_run_on_nodes(cluster: ClusterState, state: JobState) -> bool:
    """Return whether the nodes of an otherwise empty cluster could run the job."""
    members = state.job.min_available
    if not cluster.meets_level(state):
        return False
    if state.job.helper_count and (state.job.is_gang or not cluster.clouds):  # servers of chunked jobs may run there
        return fits_with_helpers(cluster, state, helpers_of(state.job))
    rooms = (node.capacity for node in cluster.hosts(state))
    return count_fitting(state.job.worker.requests, rooms, members) == members


def fits_with_helpers(cluster: ClusterState, state: JobState, helpers: Sequence[MissingHelper]) -> bool:
    """Return whether workers and helpers of the job fit the nodes if these have only its other helpers."""
    rooms = {name: node.capacity for name, node in cluster.nodes.items()}
    for server in state.servers if len(helpers) < state.job.helper_count else ():
        host = server.planned.node or ""
        if host in rooms:
            rooms[host] = rooms[host] - server.requests
    trials = [PlacementTrial(cluster, state, inf, iter(()), dict(rooms)) for _ in range(2)]
    return any(
        trial.place_gang((), helpers, helpers_first=first) for trial, first in zip(trials, (False, True), strict=True)
    )


def usable_clouds(cluster: ClusterState, state: JobState, now: float) -> tuple[str, ...]:
    """Return the unlimited sites for workers of the job, in order, without those where its pods find no place.

    A site that refuses the job is used if neither nodes nor another such site could take it.
    """
    clouds = cluster.clouds_for(state)
    if not state.placement.refusals:
        return clouds
    refusing = state.placement.refusing_sites(now)
    others = tuple(site for site in clouds if site not in refusing)
    return others if others or could_run_on_nodes(cluster, state) else clouds


@dataclass(slots=True, eq=False)
class Victim:
    """Windows that stop together: one window of a chunked job, or all windows of a gang."""

    state: JobState
    runs: list[TrackedWindow]
    _freed: dict[str, Resources] = field(default_factory=dict)

    def freed(self) -> dict[str, Resources]:
        """Return the resources that stopping them frees, by node."""
        if not self._freed:
            freed = self._freed
            for run in self.runs:
                node = run.home.node or ""
                freed[node] = freed[node] + run.requests if node in freed else run.requests
        return self._freed


@dataclass(frozen=True, slots=True, eq=False)
class PreemptionRequest:
    """Demand of a job, the preemptor, for slots of other jobs at a site ("": any site)."""

    policy: QueuePolicy
    state: JobState
    site: str
    seconds: float
    """Time that one of its chunks would train there."""
    now: float

    def victims(self, behind: Iterable[JobState]) -> Iterator[Victim]:
        """Yield the windows that the policy allows it to preempt, worst rank first; those of a gang together.

        Args:
            behind: Jobs that may be preempted, worst rank first.
        """
        for victim in behind:
            above = self.policy.min_remaining_to_preempt(self.state, self.seconds, victim, self.now)
            if above > -inf and above >= longest_rest_seconds(victim, self.now):
                continue
            runs = [run for run in victim.runs.values() if not run.closing]
            if not victim.job.is_gang:
                for run in reversed(runs):
                    if self._may_close(victim, run, above):
                        yield Victim(victim, [run])
            elif runs and all(self._may_close(victim, run, above) for run in runs):
                yield Victim(victim, runs)

    def _may_close(self, victim: JobState, run: TrackedWindow, above: float) -> bool:
        if self.site and run.home.site != self.site:
            return False
        if not self.policy.may_preempt_window(self.state, victim, run, self.now):
            return False
        return above == -inf or rest_seconds(victim, run, self.now) > above


Placement = tuple[list[NodeState], list[Victim]]
"""Nodes for workers, and the victims to stop for them."""


@dataclass(slots=True, eq=False)
class PlacementTrial:
    """Simulated placement of one job: nodes for its workers, and the victims that this needs.

    `find` may be called again after its result was carried out; it first considers victims that were not needed then.
    """

    cluster: ClusterState
    state: JobState
    """The job that needs capacity."""
    now: float
    further: Iterator[Victim]
    """Further possible victims, worst rank first, besides those considered already."""
    rooms: dict[str, Resources] = field(default_factory=dict)
    """Free resources in the simulation, by node; nodes that it has not touched are missing."""
    hosts: Hosts[NodeState] | None = None
    """Nodes that workers may use; None: all that could take them."""
    nodes: list[NodeState] = field(default_factory=list)
    """Node of each worker."""
    helper_nodes: list[NodeState] = field(default_factory=list)
    """Nodes of its parameter servers and chief, if these start with the workers."""
    chosen: set[int] = field(default_factory=set)
    """Positions of the chosen victims in `_victims`."""
    refusing: set[str] = field(init=False)
    """Sites where no worker is stopped, because pods of the job found no place there and others did elsewhere."""
    _victims: list[Victim] = field(default_factory=list)
    """Victims considered so far, worst rank first."""

    def __post_init__(self) -> None:
        self.refusing = self.state.placement.refusing_sites(self.now)

    def find(self, free: Sequence[NodeState], workers: int, helpers: Sequence[MissingHelper] = ()) -> Placement | None:
        """Return nodes for the workers and the victims to stop for them; None if preemption does not help.

        Args:
            free: Nodes with free GPUs that may be used.
            workers: Number of workers: all of a gang, or one.
            helpers: Pods that start with them; their nodes are in `helper_nodes`.
        """
        for position in sorted(self.chosen, reverse=True):
            del self._victims[position]
        self.chosen, self.rooms, self.nodes, self.helper_nodes = set(), {}, [], []
        for _ in range(workers):
            if not self.place_worker(self.state.job.worker.requests, free):
                return None
        return (self.nodes, self.drop_needless_victims()) if self.place_helpers(helpers) else None

    def place_gang(self, free: Sequence[NodeState], helpers: Sequence[MissingHelper], *, helpers_first: bool) -> bool:
        """Place all workers of a gang with its helpers; returns whether they fit.

        Neither order finds all placements, so callers try both.

        Args:
            free: Nodes with free GPUs that may be used.
            helpers: Pods that start with the workers.
            helpers_first: Place the helpers before the workers instead of after them.
        """
        if helpers_first and not self.place_helpers(helpers):
            return False
        request = self.state.job.worker.requests
        if not all(self.place_worker(request, free) for _ in range(self.state.job.min_available)):
            return False
        return helpers_first or self.place_helpers(helpers)

    def room(self, node: NodeState) -> Resources:
        """Return the free resources of the node in the simulation."""
        return self.rooms.get(node.node.name) or node.capacity - node.reserved

    def place_worker(self, request: Resources, free: Sequence[NodeState]) -> bool:
        """Place one more worker; returns whether a node was found.

        Free capacity is used before preemption; preemption uses the node whose best victim ranks last.
        """
        hosts = self.cluster.hosts(self.state) if self.hosts is None else self.hosts
        touched = [node for name in self.rooms if (node := self._usable(name, hosts)) is not None]
        usable = free if self.hosts is None else [node for node in free if node.node.name in hosts.by_name]
        fitting = [node for node in (*usable, *touched) if request.fits(self.room(node))]
        if fitting:
            best = min(fitting, key=lambda node: (self.room(node).gpus, node.node.name))
        else:
            found = self._node_with_preemption(request, hosts)
            if found is None:
                return False
            best = found
        self.place_workers([best])
        return True

    def place_workers(self, nodes: Iterable[NodeState]) -> None:
        """Place one worker on each of these nodes, which have room for it."""
        for node in nodes:
            self.rooms[node.node.name] = self.room(node) - self.state.job.worker.requests
            self.nodes.append(node)

    def place_helpers(self, helpers: Sequence[MissingHelper]) -> bool:
        """Place each helper: at a site with workers if possible, and on the node with the fewest GPUs for workers."""
        near = {node.node.site for node in self.nodes}
        for one in helpers:
            hosts, request = self.cluster.eligible(one.shape), one.shape.requests
            usable = [node for node in hosts if self._usable(node.node.name, hosts) and request.fits(self.room(node))]
            best = min(usable, key=lambda node: self._distance(node, near, request), default=None)
            best = self._node_with_preemption(request, hosts) if best is None else best
            if best is None:
                return False
            self.rooms[best.node.name] = self.room(best) - request
            self.helper_nodes.append(best)
        return True

    def _distance(self, node: NodeState, near: set[str], request: Resources) -> tuple[bool, int, int, str]:
        """Return a key that is smallest for the best node: at a site with workers, few GPUs, much free CPU."""
        room = self.room(node)
        gpus = room.gpus if request.gpus else node.capacity.gpus
        return (node.node.site not in near, gpus, -room.cpu, node.node.name)

    def drop_needless_victims(self) -> list[Victim]:
        """Drop victims that turn out not to be needed, best rank first; returns the remaining victims."""
        for position in sorted(self.chosen, reverse=True):
            freed = self._victims[position].freed()
            if all(name in self.rooms and amount.fits(self.rooms[name]) for name, amount in freed.items()):
                for name, amount in freed.items():
                    self.rooms[name] = self.rooms[name] - amount
                self.chosen.discard(position)
        return [self._victims[position] for position in sorted(self.chosen)]

    def _usable(self, name: str, hosts: Hosts[NodeState]) -> NodeState | None:
        """Return the node if it is one of these and the job may use it, else None."""
        node = None if self.state.excludes(name, self.now) else hosts.by_name.get(name)
        return node if node is None or self.state.can_start_at(node.node.site, self.now) else None

    def _node_with_preemption(self, request: Resources, hosts: Hosts[NodeState]) -> NodeState | None:
        """Go up the ranks until the request would fit on some node, choose the victims there, and return the node."""
        rooms: dict[str, Resources] = {}
        position = 0
        while (victim := self._victim_at(position)) is not None:
            for name, amount in victim.freed().items() if position not in self.chosen else ():
                node = self._usable(name, hosts)
                if node is not None and node.node.site not in self.refusing:
                    rooms[name] = (rooms.get(name) or self.room(node)) + amount
                    if request.fits(rooms[name]):
                        self._choose_victims_on(name, position)
                        return node
            position += 1
        return None

    def _victim_at(self, position: int) -> Victim | None:
        while len(self._victims) <= position and (victim := next(self.further, None)) is not None:
            self._victims.append(victim)
        return self._victims[position] if position < len(self._victims) else None

    def _choose_victims_on(self, node: str, last: int) -> None:
        """Choose all victims on the node up to that position."""
        for position, victim in enumerate(self._victims[: last + 1]):
            freed = victim.freed() if position not in self.chosen else {}
            if node in freed:
                self.chosen.add(position)
                for name, amount in freed.items():
                    known = self.cluster.nodes.get(name)
                    if known is not None:
                        self.rooms[name] = self.room(known) + amount


def nodes_beside_worker(
    cluster: ClusterState, state: JobState, nodes: Sequence[NodeState], now: float
) -> Sequence[NodeState]:
    """Return nodes for the missing parameter servers beside which a worker fits one of `nodes`; none if there are none.

    Args:
        cluster: State of the cluster.
        state: State of the job.
        nodes: Nodes with free GPUs that a worker may use.
        now: Clock, in seconds.
    """
    for first in (False, True):
        trial = PlacementTrial(cluster, state, now, iter(()))
        if trial.place_gang(nodes, state.missing_servers, helpers_first=first):
            return trial.helper_nodes
    return ()
