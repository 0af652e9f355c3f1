"""Mutable state of nodes: slots with their queues, windows, and reserved resources; and indexes of nodes.

`Hosts` has the nodes that a shape of pods fits, until a node changes. `FreeNodes` has those with free GPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from tranche.model import Node, PodShape, Resources
from tranche.state.job import JobState, QueuedChunk
from tranche.state.window import TrackedWindow

TOO_SMALL = "are too small"
"""Objection of nodes of which each has too little of a resource."""


class OfNode(Protocol):
    """An object that belongs to one node."""

    @property
    def node(self) -> Node:
        """The node."""


Item = TypeVar("Item", bound=OfNode)


class Hosts(Generic[Item]):
    """Nodes that could take pods of one shape if they ran none of our pods, in order of their names."""

    def __init__(self, nodes: Iterable[Item]) -> None:
        self._nodes = list(nodes)
        self.by_name = {node.node.name: node for node in self._nodes}
        self.by_site: dict[str, list[Item]] = {}
        self.kinds = {(node.node.gpu_kind, node.node.speed) for node in self._nodes}
        """GPU kinds of the nodes, with their declared speeds."""
        self.alike: dict[tuple[str, str, float], list[Item]] = {}
        """Nodes by site, GPU kind and declared speed."""
        for node in self._nodes:
            specification = node.node
            self.by_site.setdefault(specification.site, []).append(node)
            self.alike.setdefault((specification.site, specification.gpu_kind, specification.speed), []).append(node)
        self.by_level: dict[int, list[Hosts[Item]]] = {}
        """The nodes in groups by topology level, from when they are first needed (`level_placement`)."""
        self.one_each: dict[str, list[Item]] = {}
        """A node of each of these kinds, by site."""
        for (site, _, _), nodes_alike in self.alike.items():
            self.one_each.setdefault(site, []).append(nodes_alike[-1])

    def __iter__(self) -> Iterator[Item]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def at(self, site: str) -> list[Item]:
        """Return the nodes of one site, or all nodes for ""."""
        return self.by_site.get(site, []) if site else self._nodes


@dataclass(slots=True, eq=False)
class NodeState:
    """A node with the queues of its slots, its windows, and the resources that these reserve."""

    node: Node
    capacity: Resources = Resources()
    """Allocatable resources less those of foreign pods, in use or not."""
    queues: list[list[QueuedChunk]] = field(default_factory=list)
    """Bound chunks by slot, in the order of their keys."""
    runs: dict[tuple[str, int], tuple[JobState, TrackedWindow]] = field(default_factory=dict)
    """Open and closing windows by (job key, attempt)."""
    closing_runs: dict[tuple[str, int], TrackedWindow] = field(default_factory=dict)
    """Closing windows by (job key, attempt)."""
    free_gpus: int = 0
    """Number of GPUs of `capacity` that are not reserved."""
    free_room: FreeRoom | None = None
    """Index in which the node enters itself while `free_gpus` > 0 (see `FreeNodes`)."""
    exclusion_reason: str = ""
    """Why no pod of ours starts there now, although the node itself would take it; empty if they may."""
    learned_factor: float = 1.0
    """Learned time of a mini-batch on this node over that on other nodes of its kind."""
    pace: float = 1.0
    """Time of a mini-batch on this node over that on the kind of node to which specifications refer."""
    _reserved: Resources = Resources()

    @property
    def reserved(self) -> Resources:
        """Requests of open and overdue windows, parameter servers and chiefs on the node."""
        return self._reserved

    def reserve(self, requests: Resources) -> None:
        """Reserve room for a pod; only the bookkeeping of `ClusterState` calls this."""
        self._reserved = amount = self._reserved + requests
        if self.capacity.gpus - amount.gpus != self.free_gpus:
            self.note_room()

    def release(self, requests: Resources) -> None:
        """Give back what was reserved for a pod; only the bookkeeping of `ClusterState` calls this."""
        self._reserved = amount = self._reserved - requests
        if self.capacity.gpus - amount.gpus != self.free_gpus:
            self.note_room()

    @property
    def slots(self) -> int:
        """Number of GPUs that are not taken by foreign pods."""
        return max(0, self.node.allocatable.gpus - self.node.foreign.gpus)

    def __post_init__(self) -> None:
        self.set_node(self.node)

    def set_node(self, node: Node) -> None:
        """Replace the specification of the node."""
        self.node = node
        self.capacity = node.allocatable - node.foreign
        if self._reserved.gpu_resource != self.capacity.gpu_resource:  # only amounts count after such a change
            self._reserved = replace(self._reserved, gpu_resource=self.capacity.gpu_resource)
        self.learn(self.learned_factor)
        self.note_room()

    def learn(self, seconds: float) -> None:
        """Set the learned time of a mini-batch on this node over that on other nodes of its kind."""
        self.learned_factor, self.pace = seconds, seconds / self.node.speed

    def note_room(self) -> None:
        """Update the number of free GPUs, and the node's entry in `free_room`."""
        before, self.free_gpus = self.free_gpus, self.capacity.gpus - self._reserved.gpus
        if self.free_room is not None:
            self.free_room.gpus += max(0, self.free_gpus) - max(0, before)
            self.free_room.note(self)

    def has_room(self, request: Resources) -> bool:
        """Return whether the request fits beside the reserved resources (`Resources.fits`)."""
        capacity, used = self.capacity, self.reserved
        return (
            (request.gpus + used.gpus <= capacity.gpus or not request.gpus)
            and (request.cpu + used.cpu <= capacity.cpu or not request.cpu)
            and (request.memory + used.memory <= capacity.memory or not request.memory)
            and (request.pods + used.pods <= capacity.pods or not request.pods)
        )

    def keeps(self, requests: Resources) -> bool:
        """Return whether the reserved amounts of the resources that a pod on the node requests fit its capacity."""
        capacity, used = self.capacity, self.reserved
        return (
            (used.gpus <= capacity.gpus or not requests.gpus)
            and (used.cpu <= capacity.cpu or not requests.cpu)
            and (used.memory <= capacity.memory or not requests.memory)
            and (used.pods <= capacity.pods or not requests.pods)
        )

    @property
    def takes_pods(self) -> bool:
        """Whether pods are placed on the node at all: it is ready, and neither cordoned nor excluded."""
        return self.node.ready and not self.node.unschedulable and not self.exclusion_reason

    def objection(self, shape: PodShape) -> str | None:
        """Return why no such pod is placed on the node even without our pods; None if it may be."""
        return "are excluded" if self.exclusion_reason else self.misfit(shape)

    def misfit(self, shape: PodShape) -> str | None:
        """Return why the node could not take such a pod even without our pods, as a predicate; None if it could."""
        if not self.node.ready:
            return "are not ready"
        if self.node.unschedulable:
            return "are cordoned"
        reason = shape.constraints.objection(self.node.name, self.node.labels, self.node.taints)
        if reason is None and not shape.requests.fits(self.capacity):
            name = shape.requests.gpu_resource
            return TOO_SMALL if name == self.capacity.gpu_resource or not shape.requests.gpus else f"offer no {name}"
        if reason is None and shape.constraints.extended:
            short = (name for name, amount in shape.constraints.extended if self.node.extended.get(name, 0) < amount)
            reason = next((f"offer too little {name}" for name in short), None)
        return reason

    def entries(self) -> list[QueuedChunk]:
        """Return all chunks bound to this node, each once, in the order of their keys."""
        distinct = {id(entry): entry for queue in self.queues for entry in queue}
        return sorted(distinct.values(), key=lambda entry: entry.key)


@dataclass(slots=True, eq=False)
class FreeRoom:
    """Nodes of one site with unreserved GPUs."""

    nodes: dict[str, NodeState] = field(default_factory=dict)
    """By name."""
    gpus: int = 0
    """Number of their unreserved GPUs."""

    def note(self, node: NodeState) -> None:
        """Enter the node if it has unreserved GPUs, else remove it."""
        if node.free_gpus > 0:
            self.nodes[node.node.name] = node
        else:
            self.nodes.pop(node.node.name, None)


class FreeNodes:
    """Index of the nodes with unreserved GPUs by site, which the nodes keep up to date."""

    def __init__(self, nodes: Iterable[NodeState]) -> None:
        self._at: dict[str, FreeRoom] = {}
        self._nodes: dict[str, list[NodeState]] = {}
        for node in nodes:
            self._nodes.setdefault(node.node.site, []).append(node)
            room = node.free_room = self._at.setdefault(node.node.site, FreeRoom())
            room.gpus += max(0, node.free_gpus)
            room.note(node)

    def gpus_at(self, site: str) -> int:
        """Return the number of free GPUs at the site, or at all sites for "", whatever their resource."""
        return sum([room.gpus for room in self._rooms(site)])

    def nodes_at(self, site: str) -> list[NodeState]:
        """Return all nodes of the site, also those without free GPUs."""
        return self._nodes.get(site, [])

    def gpus(self) -> Counter[tuple[str, str]]:
        """Return the number of free GPUs by site and name of their resource."""
        free = Counter[tuple[str, str]]()
        for site, room in self._at.items():
            for node in room.nodes.values():
                free[site, node.capacity.gpu_resource] += node.free_gpus
        return free

    def kinds(self) -> set[tuple[str, float]]:
        """Return the GPU kinds of the nodes with free GPUs, with their declared speeds."""
        return {(node.node.gpu_kind, node.node.speed) for room in self._at.values() for node in room.nodes.values()}

    def of(self, hosts: Hosts[NodeState], site: str) -> list[NodeState]:
        """Return the nodes among the hosts with free GPUs at the site, or at any site for "", by name."""
        rooms, all_there = self._rooms(site), hosts.at(site)
        if 4 * sum([len(room.nodes) for room in rooms]) > len(all_there):
            return [node for node in all_there if node.free_gpus > 0]
        names = sorted(name for room in rooms for name in room.nodes if name in hosts.by_name)
        return [hosts.by_name[name] for name in names]

    def _rooms(self, site: str) -> Collection[FreeRoom]:
        if not site:
            return self._at.values()
        return (self._at[site],) if site in self._at else ()
