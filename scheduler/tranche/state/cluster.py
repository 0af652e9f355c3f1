"""State of the cluster with its jobs and nodes, as policies read it."""

from bisect import insort
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tranche.estimate import (
    CommonRestarts,
    Ends,
    ForecastErrors,
    LevelNetwork,
    NetworkPrior,
    SpeedModel,
    Uploads,
    batch_seconds,
    bits_per_second,
    upload_link,
)
from tranche.model import Admission, Link, Node, PlannedServer, PodShape, Resources, Site, Tier, WindowState
from tranche.model.topology import Domain, Topology
from tranche.state.distribution import Distribution
from tranche.state.gang_locality import LocalityRecords
from tranche.state.helper import Server, helpers_of
from tranche.state.job import JobState, QueuedChunk
from tranche.state.node import FreeNodes, Hosts, NodeState
from tranche.state.node_health import ExclusionPhase, NodeHealth
from tranche.state.phases import PROGRESS, WINDOW_TRANSITIONS, PhaseError, WindowPhase
from tranche.state.placement_record import FailedPreemptions, PreemptionScope
from tranche.state.quota_usage import Quotas, Shortage
from tranche.state.site_usage import SiteUsage
from tranche.state.staging import expected_copies
from tranche.state.tenant_usage import History, Shares
from tranche.state.topology_fit import TopologyIndex, largest_room, members_in, narrowest_fit
from tranche.state.window import UNKNOWN_REQUESTS, TrackedWindow

T = TypeVar("T")

FRESH_NODE_GPUS = 8
"""GPUs of a node that an unlimited site creates [I]: a gang that needs no more is on one node."""


@dataclass(slots=True, eq=False)
class ClusterState:
    """The state that a policy may read, and that the planner keeps up to date."""

    sites: dict[str, Site] = field(default_factory=dict)
    nodes: dict[str, NodeState] = field(default_factory=dict)
    jobs: dict[str, JobState] = field(default_factory=dict)
    network: NetworkPrior = NetworkPrior()
    places: TopologyIndex = field(default_factory=TopologyIndex)
    """Topology levels, and the groups of the nodes."""
    level_network: LevelNetwork | None = None
    """Links between the members of a gang by topology level; None: their communication takes no time."""
    locality: LocalityRecords = field(default_factory=LocalityRecords)
    """Records of gangs under a policy that places them by topology level (`PolicyTraits.places_by_level`)."""
    seed: int = 0
    """Seed of reproducible random choices (`tranche.policies.seeded_choice`)."""
    validate: bool = False
    """Check each transition of a window's phase."""
    requires_admission: bool = False
    """Whether a job preempts others only after a dry run has admitted its pods (`Job.admission`)."""
    weighs_gpu_kinds: bool = False
    """Whether expected speeds of GPU kinds decide where workers start (`tranche.planner.scheduling.gpu_choice`)."""
    scheduler_silent: bool = False
    """Whether kube-scheduler does not respond, so that no job preempts others."""
    failed_preemptions: FailedPreemptions = field(default_factory=FailedPreemptions)
    uploads: Uploads = field(default_factory=Uploads)
    shares: Shares = field(default_factory=Shares)
    history: History = field(default_factory=History)
    quotas: Quotas = field(default_factory=Quotas)
    speed_model: SpeedModel = field(default_factory=SpeedModel)
    """Learned speeds; empty unless the policy has `PolicyTraits.uses_learned_estimates`."""
    forecast_errors: ForecastErrors = field(default_factory=ForecastErrors)
    """Errors of earlier plans, from which the intervals of planned times follow."""
    restarts: CommonRestarts = field(default_factory=CommonRestarts)
    """Measured cost of stopping and starting workers."""
    eviction_blocked_until: dict[str, float] = field(default_factory=dict)
    """Time until which a job is not preempted because an eviction of its pods was rejected, by job key."""
    health: NodeHealth = field(default_factory=NodeHealth)
    """Results of pods by node, and the nodes that are excluded because of them."""
    site_uses: dict[tuple[str, Tier], SiteUsage] = field(default_factory=dict)
    """Usage by all jobs since this planner began, by site and its tier at that time; amounts never decrease."""
    namespace_uses: dict[str, SiteUsage] = field(default_factory=dict)
    """Usage by all jobs of each namespace since this planner began; amounts never decrease."""
    distribution: Distribution = field(default_factory=Distribution)
    """The last worker distribution, under a policy that `allocates_workers`."""
    dispatched: int = 0
    """Number of chunks that were bound so far."""
    epoch: int = 0
    """Number that rises whenever a node or site changes."""
    trial_changes: int = 0
    """Number of these changes because a job began or gave up the trial of a node (`tranche.state.node_health`)."""
    _measured: int = -1
    """Epoch at which `shares.capacity` was computed."""
    _eligible: dict[PodShape, Hosts[NodeState]] = field(default_factory=dict)
    _narrowest: dict[tuple[PodShape, int], int] = field(default_factory=dict)
    _free: tuple[int, FreeNodes] = field(default_factory=lambda: (-1, FreeNodes(())))
    _clouds: tuple[dict[str, Site] | None, tuple[str, ...]] = (None, ())

    def nodes_changed(self) -> None:
        """Discard what was derived from the nodes, after one of them has changed."""
        self._eligible.clear()
        self._narrowest.clear()
        self.places.clear()
        self.epoch += 1

    def set_exclusion_reason(self, node: NodeState, reason: str, *, for_trial: bool = False) -> None:
        """Set why no pod of ours may start on the node; "" admits them again.

        Args:
            node: The node.
            reason: Why the node is excluded, or "".
            for_trial: Whether a job begins or gives up the trial of the node.
        """
        if node.exclusion_reason != reason:
            node.exclusion_reason = reason
            self.nodes_changed()
            self.trial_changes += for_trial

    @property
    def free(self) -> FreeNodes:
        """Index of the nodes with free GPUs, those of unlimited sites left out."""
        if self._free[0] != self.epoch:
            clouds = set(self.clouds)
            self._free = (self.epoch, FreeNodes(n for n in self.nodes.values() if n.node.site not in clouds))
        return self._free[1]

    @property
    def total_gpus(self) -> int:
        """Number of GPUs of all nodes, without those that foreign pods use."""
        self._measure()
        return self.shares.capacity.gpus

    def dominant_share(self, tenant: str) -> float:
        """Return the tenant's largest share of any resource of all nodes, 0 … 1."""
        self._measure()
        return self.shares.dominant(tenant)

    def dominant_share_of(self, state: JobState) -> float:
        """Return the job's largest share of any resource of all nodes, 0 … 1, with its parameter servers."""
        self._measure()
        pods = [run.requests for run in state.runs.values() if run.home.node]
        pods += [server.requests for server in state.servers if server.planned.node]
        requests = sum(pods, start=Resources())
        return max(requests.parts_of(self.shares.capacity), default=0.0)

    def _measure(self) -> None:
        """Add up the capacity of all nodes if they have changed."""
        if self._measured != self.epoch:
            self._measured = self.epoch
            nothing = Resources()  # a node where foreign pods use more than it offers takes nothing from the others
            capacities = (node.capacity.larger(nothing) for node in self.nodes.values())
            self.shares.capacity = sum(capacities, start=nothing)

    def hosts(self, state: JobState) -> Hosts[NodeState]:
        """Return the `eligible` nodes for the job's workers, kept with the job until a node changes."""
        if state.hosts[0] != self.epoch:
            state.hosts = (self.epoch, self.eligible(state.job.worker))
        hosts: Hosts[NodeState] = state.hosts[1]
        return hosts

    def eligible(self, shape: PodShape) -> Hosts[NodeState]:
        """Return the nodes that could take such a pod without our other pods, by name.

        Nodes of unlimited sites are left out: windows there name no node, since the next one may not exist yet.
        """
        hosts = self._eligible.get(shape)
        if hosts is None:
            clouds = set(self.clouds)
            nodes = (node for _, node in sorted(self.nodes.items()) if node.node.site not in clouds)
            hosts = self._eligible[shape] = Hosts(node for node in nodes if node.objection(shape) is None)
        return hosts

    def hosting_nodes(self) -> Iterator[NodeState]:
        """Return the nodes on which pods are placed, those of unlimited sites left out."""
        clouds = set(self.clouds)
        return (node for node in self.nodes.values() if node.takes_pods and node.node.site not in clouds)

    @property
    def clouds(self) -> tuple[str, ...]:
        """Names of the unlimited sites, in order."""
        if self._clouds[0] is not self.sites:
            self._clouds = (self.sites, tuple(sorted(name for name, site in self.sites.items() if site.unlimited)))
        return self._clouds[1]

    def clouds_for(self, state: JobState) -> tuple[str, ...]:
        """Return the names of the unlimited sites whose nodes may take a worker of the job, in order.

        The pods that start with the workers of a gang must find a place there, too.
        """
        shapes = [state.job.worker, *(one.shape for one in helpers_of(state.job) if state.job.is_gang)]
        return tuple(
            name
            for name in self.clouds
            if all(self.creates_nodes_for(shape, name) for shape in shapes)
            and (not state.job.required_level or self._assures_level(state))
        )

    def creates_nodes_for(self, shape: PodShape, site: str) -> bool:
        """Return whether nodes of an unlimited site may take such a pod.

        They have GPUs of the resource that it requests, if any, and its constraints allow the labels of the nodes.
        """
        declared, requests = self.sites[site], shape.requests
        has_gpus = not requests.gpus or declared.gpu_resource == requests.gpu_resource
        return has_gpus and shape.constraints.allow(declared.labels)

    def _assures_level(self, state: JobState) -> bool:
        """Return whether any new nodes of an unlimited site share the level that the members of a gang require."""
        apart = self.places.topology.fresh_level(2, 1)
        return state.job.min_available == 1 or apart <= self.widest_level(state)

    def is_unlimited(self, site: str) -> bool:
        """Return whether the site's nodes are created on demand."""
        declared = self.sites.get(site)
        return declared is not None and declared.unlimited

    def clouds_with_copies(self, state: JobState) -> set[str]:
        """Return the unlimited sites that have, or receive, copies of the job's data."""
        return {site for site in state.copies if self.is_unlimited(site)}

    def batch_seconds(
        self,
        state: JobState,
        site: str,
        colocated: bool | None = None,
        node: str | None = None,
        level: int | None = None,
    ) -> float:
        """Return 1 / n_js of a worker at the site (on the node, if given), in seconds, corrected by measurements."""
        declared = self.declared_batch_seconds(state, site, colocated, node, level)
        return declared * self.speed_factor(state, site, node)

    def speed_factor(self, state: JobState, site: str, node: str | None = None) -> float:
        """Return the corrected over the predicted time of a mini-batch at the site (on the node, if given)."""
        model = self.speed_model
        if not (model.jobs or model.nodes or model.kinds):
            return 1.0
        host = self.nodes.get(node) if node is not None else None
        if host is None:
            return self.speed_factors(state, site, "")(None)
        return self.speed_factors(state, site, host.node.gpu_kind)(host.node.name)

    def speed_factors(self, state: JobState, site: str, kind: str) -> Callable[[str | None], float]:
        """Return the function from the name of a node of this kind at the site to `speed_factor`, for one decision."""
        factor = self.speed_model.factors(state.job.key, kind, site)
        if kind in state.job.step_seconds_by_kind:
            return lambda node: factor(None)  # what others have measured there says nothing about its own time
        return factor

    def declared_batch_seconds(
        self,
        state: JobState,
        site: str,
        colocated: bool | None = None,
        node: str | None = None,
        level: int | None = None,
    ) -> float:
        """Return 1 / n_js by specification and links alone, in seconds.

        `level` is the topology level that the members of a gang will share; None: that of its windows (`level_of`).
        A parameter server that is not placed yet is assumed beside the data, or beside the worker if no site of the
        cluster has the data. The site "" stands for the inside of any site.
        """
        host = self.nodes.get(node) if node is not None else None
        speed = self._speed_of(state, site, host)
        if state.job.servers == 0 and self.level_network is not None:
            seconds = batch_seconds(state.job, None, speed)
            shared = self.level_of(state) if level is None else level
            return seconds + self.level_network.ring_seconds(state.job, shared)
        if state.job.servers == 0 or (self._is_colocated(state, site) if colocated is None else colocated):
            return batch_seconds(state.job, None, speed)
        placed = (server.planned.site for server in state.servers if not server.planned.is_chief)
        server_site = next(placed, state.job.home or site) if site else site
        if self.level_network is not None and host is not None and site == server_site:
            bandwidth = self.level_network.slowest(self._level_to_servers(state, host))
        else:
            bandwidth = bits_per_second(self.network, self.sites, site, server_site)
        return batch_seconds(state.job, bandwidth, speed)

    def computing_seconds(self, state: JobState, site: str, node: str | None = None) -> float:
        """Return the part of `declared_batch_seconds` in which its workers compute."""
        host = self.nodes.get(node) if node is not None else None
        return batch_seconds(state.job, None, self._speed_of(state, site, host))

    def _speed_of(self, state: JobState, site: str, host: NodeState | None) -> float:
        place = host.node if host is not None else self.sites.get(site)
        return state.job.speed_on(place.gpu_kind, place.speed) if place is not None else 1.0

    def communication_seconds(self, state: JobState, site: str, node: str | None = None) -> float:
        """Return the part of `declared_batch_seconds` in which its workers communicate; 0 without network model."""
        if self.level_network is None:
            return 0.0
        if state.job.servers == 0:
            return self.level_network.ring_seconds(state.job, self.level_of(state))
        return self.declared_batch_seconds(state, site, None, node) - self.computing_seconds(state, site, node)

    def _level_to_servers(self, state: JobState, host: NodeState) -> int:
        """Return the topology level that the node shares with the job's parameter servers at its site."""
        names = [server.planned.node or "" for server in state.servers if server.planned.site == host.node.site]
        nodes = [self.nodes[name].node for name in names if name in self.nodes]
        return self.places.level_of([host.node, *nodes])

    def level_of(self, state: JobState) -> int:
        """Return the topology level of the job's members: that of their windows, else the narrowest possible one."""
        if not state.job.is_gang:
            return 0
        return self.narrowest_level(state) if state.topology_level is None else state.topology_level

    def widest_level(self, state: JobState) -> int:
        """Return the widest topology level that the members of a gang may share; -1 if none is allowed.

        The latter is the case if the job requires a level that the installation does not have.
        """
        if not state.job.required_level:
            return self.places.topology.widest
        level = self.places.topology.level(state.job.required_level)
        return -1 if level is None else level

    def by_required_level(self, state: JobState, items: Iterable[T], node_of: Callable[[T], Node]) -> list[list[T]]:
        """Return items by the group of their nodes at the widest level that the members of a gang may share."""
        level = self.widest_level(state)
        return self.by_level(level, items, node_of) if level >= 0 else []

    def by_level(self, level: int, items: Iterable[T], node_of: Callable[[T], Node]) -> list[list[T]]:
        """Return items by the group of their nodes at a topology level, in order of the groups."""
        groups: dict[Domain, list[T]] = {}
        for item in items:
            groups.setdefault(self.places.domain(node_of(item))[level:], []).append(item)
        return [groups[domain] for domain in sorted(groups)]

    def meets_level(self, state: JobState) -> bool:
        """Return whether the members of a gang fit into the empty cluster at the topology level that they require."""
        return not state.job.required_level or self.narrowest_level(state) <= self.widest_level(state)

    def largest_room(self, state: JobState) -> int:
        """Return how many members of a gang fit into one group of the level that it requires, in the empty cluster."""
        rooms, domains = self._rooms(state.job.worker, state.job.min_available)
        return largest_room(rooms, domains, self.widest_level(state))

    def narrowest_level(self, state: JobState) -> int:
        """Return the narrowest topology level at which the members of a gang fit into the empty cluster.

        It is the widest level if they fit nowhere.
        """
        demand = (state.job.worker, state.job.min_available)
        level = self._narrowest.get(demand)
        if level is None:
            level = self._narrowest[demand] = self._find_narrowest(*demand)
        return level

    def _find_narrowest(self, shape: PodShape, members: int) -> int:
        topology = self.places.topology
        if members == 1:
            return 0
        rooms, domains = self._rooms(shape, members)
        fit = narrowest_fit(rooms, domains, members, topology.widest)
        if fit is not None:
            return fit.level
        return _fresh_level(topology, shape, members) if self.clouds else topology.widest

    def _rooms(self, shape: PodShape, members: int) -> tuple[dict[str, int], dict[str, Domain]]:
        """Return the room of each empty node for members of this shape, and its narrowest group."""
        hosts = self.eligible(shape)
        rooms = {node.node.name: members_in(node.capacity, shape.requests, members) for node in hosts}
        return rooms, {node.node.name: self.places.domain(node.node) for node in hosts}

    def fresh_level(self, state: JobState) -> int:
        """Return the topology level of a gang at an unlimited site, whose nodes are created for it."""
        return _fresh_level(self.places.topology, state.job.worker, state.job.min_available)

    def _is_colocated(self, state: JobState, site: str) -> bool:
        """Return whether ζ = 1 for a worker at the site: decided at dispatch by a binding policy, else as it is now."""
        if state.colocated or state.entries:
            return state.colocated
        return self.is_unlimited(site) and state.is_bound_for(site) and self.could_colocate(state, site)

    def could_colocate(self, state: JobState, site: str) -> bool:
        """Return whether ζ = 1 if all waiting chunks train at the unlimited site: no pod of the job is elsewhere."""
        if state.job.server is not None and not self.creates_nodes_for(state.job.server, site):
            return False
        servers = (server.planned.site for server in state.servers if not server.planned.is_chief)
        runs = (run.home.site for run in state.runs.values())
        return all(pod_site == site for pod_site in (*servers, *runs))

    def exchange_bits_per_second(self, state: JobState, site: str, server_site: str) -> float:
        """Return B between a worker of the job and a parameter server, in bit/s."""
        return min(bits_per_second(self.network, self.sites, site, server_site), state.job.bits_per_second)

    def nominal_batch_seconds(self, state: JobState) -> float:
        """Return 1 / n_j in seconds at the job's data and servers, or inside any site if these may be anywhere.

        That of a gang is at its narrowest topology level, wherever it trains now.
        """
        is_gang = state.job.is_gang and self.level_network is not None
        return self.level_seconds(state, self.narrowest_level(state) if is_gang else None)

    def level_seconds(self, state: JobState, level: int | None) -> float:
        """Return 1 / n_j of a gang at a topology level, in seconds, as `nominal_batch_seconds`."""
        return self.batch_seconds(state, state.job.home or "", level=level)

    def transfer_seconds(self, state: JobState, site: str) -> float:
        """Return Δ_js of one chunk without other traffic on the link, in seconds, corrected by measured uploads."""
        path = self._path(state, site)
        return 0.0 if path is None else self.uploads.seconds(*path, state.job.chunk_bytes, state.job.namespace)

    def upload_seconds(self, state: JobState, site: str, now: float) -> float:
        """Return how long it takes to send one chunk of the job to the site now, in seconds.

        Uploads in progress on the same uplinks count if `Uploads.shares_targets`, and those on the same link do not.
        """
        path = self._path(state, site)
        if path is None:
            return 0.0
        uploads, size, tenant = self.uploads, state.job.chunk_bytes, state.job.namespace
        if uploads.shares_targets:
            return uploads.slowed_seconds(*path, size, now, tenant)
        return uploads.seconds(*path, size, tenant)

    def copy_ready(self, state: JobState, site: str, now: float) -> float:
        """Return when a chunk sent to the site now would be there, after the transfers that share the link."""
        path = self._path(state, site)
        return now if path is None else self.uploads.ready(*path, state.job.chunk_bytes, now, state.job.namespace)

    def uploads_queue(self, state: JobState, site: str) -> bool:
        """Return whether uploads of the job's data to the site go one after the other, because they share a link."""
        path = self._path(state, site)
        return path is not None and not path[1].dedicated

    def copies_ready(self, state: JobState, site: str, count: int, now: float) -> list[float]:
        """Return when each of `count` chunks of the job would be there if they were sent now."""
        path = self._path(state, site)
        if path is None:
            return [now] * count
        return self.uploads.preview(*path, state.job.chunk_bytes, now, count, state.job.namespace)

    def begin_copies(self, state: JobState, site: str, count: int, now: float) -> list[float]:
        """Begin to send `count` chunks, and return when each will be there."""
        path = self._path(state, site)
        if path is None:
            return [now] * count
        return self.uploads.begin(*path, state.job.chunk_bytes, now, count, state.job.namespace)

    def copy_measured(self, state: JobState, site: str, seconds: float, now: float) -> None:
        """Record that sending a chunk of the job there has ended now, and took this many seconds."""
        path = self._path(state, site)
        if path is not None:
            self.uploads.measured(*path, state.job.chunk_bytes, seconds, now, state.job.namespace)

    def cancel_copies(self, state: JobState, now: float) -> None:
        """Remove the copies of the job's data that have not been made from the links."""
        for site, times in expected_copies(state.copies, state.coming).items():
            path = self._path(state, site)
            if path is not None:
                left = sum(now < until for until in times.values())
                self.uploads.cancel(*path, state.job.chunk_bytes, now, left, state.job.namespace)

    def _path(self, state: JobState, site: str) -> tuple[Ends, Link] | None:
        """Return the link that the job's data take to the site; None if nothing has to be sent."""
        link = upload_link(self.network, self.sites, state.job, site)
        return None if link is None else ((state.job.data_site or site, site), link)

    def preemption_scope(self, state: JobState) -> PreemptionScope:
        """Return for how many windows at a time the job may preempt others now."""
        if not self.may_preempt(state):
            return PreemptionScope.NONE
        record = state.placement
        if self._is_proven(state) and not (record.failures or record.failed_preemptions):
            return PreemptionScope.ALL
        return PreemptionScope.NONE if state.awaits_place else PreemptionScope.ONE

    def may_preempt(self, state: JobState) -> bool:
        """Return whether the job may preempt others now, or could if none of its pods waited for a place."""
        record = state.placement
        if record.paused or (not record.placed and state.job.namespace in self.failed_preemptions.restrained):
            return False
        return self._is_proven(state) or state.job.admission is Admission.UNPROVEN

    def _is_proven(self, state: JobState) -> bool:
        return state.job.admission is Admission.PASSED or not self.requires_admission

    def shortage(self, state: JobState) -> Shortage | None:
        """Return the limit that keeps the job from one more worker (a gang: from all) and the helpers that it lacks."""
        if not self.quotas.by_namespace:
            return None
        return self.quotas.shortage(state.job, state.job.min_available, state.missing_shapes)

    def shortages(self, state: JobState) -> tuple[Shortage, ...]:
        """Return all limits that keep the job from one more worker, as `shortage` returns the first."""
        return tuple(self.quotas.shortages(state.job, state.job.min_available, state.missing_shapes))

    def bind(self, entry: QueuedChunk) -> None:
        """Put a chunk into the queues of the slots that it is bound to."""
        entry.state.entries[entry.chunk] = entry
        if entry.home.node is not None:
            node = self.nodes[entry.home.node]
            for slot in entry.home.slots:
                insort(node.queues[slot], entry, key=lambda queued: queued.key)

    def unbind(self, entries: Iterable[QueuedChunk]) -> None:
        """Take chunks out of their queues, because they are done, moved or removed."""
        for entry in entries:
            entry.state.entries.pop(entry.chunk, None)
            node = self.nodes.get(entry.home.node or "")
            for slot in entry.home.slots if node else ():
                assert node is not None
                if slot < len(node.queues) and entry in node.queues[slot]:
                    node.queues[slot].remove(entry)

    # ---- windows and reservations: nothing else opens, closes or ends a window, or reserves room on a node

    def enter_window(self, state: JobState, run: TrackedWindow, now: float) -> None:
        """Add an open or closing window to what its job, node, quotas and tenant have.

        A closing window (of an earlier planner) counts against quotas until its pod has ended, but reserves nothing
        before it is overdue.
        """
        if run.requests is UNKNOWN_REQUESTS:
            run.requests = state.job.worker.requests
        state.enter(run)
        if state.busy_since is None:
            state.busy_since = run.window.start
        self.quotas.take(state.job, run.window.attempt, run.requests)
        node = self.nodes.get(run.home.node or "")
        if node is not None:
            self._enter_node(node, state, run)
        if not run.closing:
            self._count_share(state, run, 1, now)

    def close_window(
        self, state: JobState, run: TrackedWindow, now: float, why: str = "", preempted_by: str = ""
    ) -> NodeState | None:
        """Mark an open window as closing and release its reservation; returns the node that has more room, if any.

        Args:
            state: Its job.
            run: The window.
            now: Clock, in seconds.
            why: Why it closes, as in `Window`.
            preempted_by: Job for which it makes way, or a foreign pod, as in `Window`; empty for another reason.
        """
        run.reopens_as = run.phase
        self._set_phase(state, run, WindowPhase.CLOSING)
        run.window = replace(run.window, state=WindowState.CLOSING, preempted_by=preempted_by, why=why)
        run.closed = now
        node = self.nodes.get(run.home.node or "")
        if node is not None:
            node.closing_runs[(state.job.key, run.window.attempt)] = run
            node.release(run.requests)
        self._count_share(state, run, -1, now)
        return node

    def reopen_window(self, state: JobState, run: TrackedWindow, now: float) -> NodeState | None:
        """Mark a closing window as open, with its reservation; returns its node, which may now be overbooked."""
        self._set_phase(state, run, run.reopens_as)
        run.window, run.closed = replace(run.window, state=WindowState.OPEN, preempted_by="", why=""), None
        node = self.nodes.get(run.home.node or "")
        if node is not None:
            node.closing_runs.pop((state.job.key, run.window.attempt), None)
            if not run.overdue:
                node.reserve(run.requests)
        run.overdue = False
        self._count_share(state, run, 1, now)
        return node

    def note_overdue(self, run: TrackedWindow) -> NodeState | None:
        """Reserve the room of a closing window again, whose pod has not stopped; returns the node."""
        node = self.nodes.get(run.home.node or "")
        if node is not None and not run.reserves:
            node.reserve(run.requests)
        run.overdue = True
        return node

    def enlarge_window(self, state: JobState, run: TrackedWindow, requests: Resources, now: float) -> NodeState | None:
        """Reserve what admission has added to the pod of a window; returns the node if it has less room now."""
        before = run.requests
        run.requests = before.larger(requests)
        self.quotas.give(state.job.key, run.window.attempt)
        self.quotas.take(state.job, run.window.attempt, run.requests)
        if self.shares.counted and not run.closing:
            self.shares.change(state.job.tenant, run.requests - before, now)
        node = self.nodes.get(run.home.node or "")
        if node is None or not run.reserves:
            return None
        node.reserve(run.requests - before)
        return node

    def enlarge_server(self, state: JobState, server: Server, requests: Resources) -> NodeState | None:
        """Reserve what admission has added to a parameter server or chief; returns the node with less room."""
        before, server.requests = server.requests, server.requests.larger(requests)
        self.quotas.give(state.job.key, server.planned.attempt)
        self.quotas.take(state.job, server.planned.attempt, server.requests, server.shape_in(state.job))
        node = self.nodes.get(server.planned.node or "")
        if node is not None:
            node.reserve(server.requests - before)
        return node

    def note_window(self, state: JobState, run: TrackedWindow, reached: WindowPhase) -> None:
        """Note how far a window's pod is, unless it is known to be further; a closing window stays closing."""
        progress = run.reopens_as if run.closing else run.phase
        if PROGRESS[reached] <= PROGRESS[progress]:
            return
        if run.closing:
            run.reopens_as = reached
        else:
            self._set_phase(state, run, reached)

    def end_window(self, state: JobState, run: TrackedWindow, now: float, *, moves: bool = False) -> NodeState | None:
        """Remove a window from what its job, node, quotas and tenant have; returns the node that has more room, if any.

        Args:
            state: Its job.
            run: The window.
            now: Clock, in seconds.
            moves: The pod has not ended; it turned out to be on another node, where its window is entered next.
        """
        closing, reserves = run.closing, run.reserves
        if not moves:
            self._set_phase(state, run, WindowPhase.ENDED)
        state.leave(run)
        node = self.nodes.get(run.home.node or "")
        freed_node = None
        if node is not None and node.runs.pop((state.job.key, run.window.attempt), None) is not None:
            node.closing_runs.pop((state.job.key, run.window.attempt), None)
            if reserves:
                node.release(run.requests)
            freed_node = node
        if not closing:
            self._count_share(state, run, -1, now)
        self.quotas.give(state.job.key, run.window.attempt)
        return freed_node

    def add_node(self, node: NodeState) -> None:
        """Enter a node, with the windows and servers that were planned for it before it (re)appeared.

        Windows at a site that creates nodes on demand have the node of their pod only by name. When the site is changed
        to one with planned nodes, they reserve room there.
        """
        name = node.node.name
        self.nodes[name] = node
        for state in self.jobs.values():
            for server in state.servers:
                if server.planned.node == name:
                    node.reserve(server.requests)
            for run in state.runs.values():
                if run.home.node is None and run.window.node == name:
                    run.home = run.home._replace(node=name)
                if run.home.node == name:
                    self._enter_node(node, state, run)

    def add_server(self, state: JobState, server: Server) -> None:
        """Give a parameter server or chief its place: add it to what its job, node and quotas have."""
        state.servers.append(server)
        self.quotas.take(state.job, server.planned.attempt, server.requests, server.shape_in(state.job))
        node = self.nodes.get(server.planned.node or "")
        if node is not None:
            node.reserve(server.requests)

    def remove_server(self, state: JobState, server: Server) -> None:
        """Remove a parameter server or chief from what its job, node and quotas have."""
        state.servers = [placed for placed in state.servers if placed is not server]
        self.quotas.give(state.job.key, server.planned.attempt)
        node = self.nodes.get(server.planned.node or "")
        if node is not None:
            node.release(server.requests)

    def has_place(self, state: JobState, planned: PlannedServer) -> bool:
        """Return whether the planned node of a parameter server or chief takes its pod, or its site creates nodes."""
        if planned.node is None:
            return self.is_unlimited(planned.site)
        shape = state.job.chief if planned.is_chief else state.job.server
        nodes = (self.nodes.get(name) for name in (planned.node, *planned.fallbacks))
        return shape is None or any(node is not None and node.misfit(shape) is None for node in nodes)

    def _set_phase(self, state: JobState, run: TrackedWindow, phase: WindowPhase) -> None:
        if self.validate and phase not in WINDOW_TRANSITIONS[run.phase]:
            window = f"{state.job.key}: window {run.window.attempt}"
            raise PhaseError(f"{window} goes from {run.phase.value} to {phase.value}")
        run.phase = phase

    def _enter_node(self, node: NodeState, state: JobState, run: TrackedWindow) -> None:
        node.runs[(state.job.key, run.window.attempt)] = (state, run)
        if run.closing:
            node.closing_runs[(state.job.key, run.window.attempt)] = run
        if run.reserves:
            node.reserve(run.requests)
        if not run.closing and self.health.exclusions:
            self._take_trial(node, state)

    def _take_trial(self, node: NodeState, state: JobState) -> None:
        """Give the trial of a node, if it is on trial, to the job that opens a window there."""
        exclusion = self.health.exclusions.get(node.node.name)
        if exclusion is not None and exclusion.phase is ExclusionPhase.TRIAL and not exclusion.trial_job:
            exclusion.trial_job = state.job.key
            self.set_exclusion_reason(node, exclusion.reason, for_trial=True)

    def _count_share(self, state: JobState, run: TrackedWindow, windows: int, now: float) -> None:
        """Count one more (or, if negative, one less) open window of the job's tenant, if the policy uses shares."""
        if self.shares.counted:
            change = run.requests if windows > 0 else Resources() - run.requests
            self.shares.change(state.job.tenant, change, now)


def allowed(node: NodeState, state: JobState, sites: Collection[str] | None, now: float) -> bool:
    """Return whether a dispatch rule may bind chunks of the job to the (eligible) node."""
    return (
        (sites is None or node.node.site in sites)
        and not state.excludes(node.node.name, now)
        and 0 < state.job.gpus <= len(node.queues)
    )


def _fresh_level(topology: Topology, shape: PodShape, members: int) -> int:
    return topology.fresh_level(shape.requests.gpus * members, FRESH_NODE_GPUS)
