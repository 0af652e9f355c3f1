"""Nodes as the planner knows them: slots with their queues, windows, and what is reserved."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tranche.model import Node, PodShape, Resources
from tranche.policies.hosts import Hosts
from tranche.policies.jobs import JobState, QueuedChunk
from tranche.policies.runs import TrackedWindow


@dataclass(slots=True, eq=False)
class NodeState:
    """One node: its slots with their queues, its windows, and what they reserve."""

    node: Node
    capacity: Resources = Resources()
    """What is there for us, in use or not."""
    queues: list[list[QueuedChunk]] = field(default_factory=list)
    """By slot, in order of the keys."""
    runs: dict[tuple[str, int], tuple[JobState, TrackedWindow]] = field(default_factory=dict)
    """Windows by (job, attempt)."""
    leaving: dict[tuple[str, int], TrackedWindow] = field(default_factory=dict)
    """Those of them that are closing."""
    free_gpus: int = 0
    """Of `capacity`, in use by nobody."""
    free_nodes: dict[str, "NodeState"] | None = None
    """Where the node enters itself while `free_gpus` > 0."""
    learnt: float = 1.0
    """Seconds of a mini-batch here, relative to other nodes of its kind."""
    pace: float = 1.0
    """The same relative to the kind that jobs are measured on."""
    _reserved: Resources = Resources()

    @property
    def reserved(self) -> Resources:
        """Requests of open windows and of parameter servers."""
        return self._reserved

    @reserved.setter
    def reserved(self, amount: Resources) -> None:
        self._reserved = amount
        if self.capacity.gpus - amount.gpus != self.free_gpus:
            self.note_room()

    @property
    def slots(self) -> int:
        """GPUs that are not taken by foreign pods."""
        return max(0, self.node.allocatable.gpus - self.node.foreign.gpus)

    def __post_init__(self) -> None:
        self.set_node(self.node)

    def set_node(self, node: Node) -> None:
        """The node changed."""
        self.node = node
        self.capacity = node.allocatable - node.foreign
        self.learn(self.learnt)
        self.note_room()

    def learn(self, seconds: float) -> None:
        """Believe that a mini-batch takes so long here, relative to other nodes of its kind."""
        self.learnt, self.pace = seconds, seconds / self.node.speed

    def note_room(self) -> None:
        """Count the free GPUs anew."""
        self.free_gpus = self.capacity.gpus - self._reserved.gpus
        if self.free_nodes is not None:
            if self.free_gpus > 0:
                self.free_nodes[self.node.name] = self
            else:
                self.free_nodes.pop(self.node.name, None)

    def has_room(self, request: Resources) -> bool:
        """Whether the request fits beside what is reserved."""
        whole, used = self.capacity, self.reserved
        return (
            request.gpus + used.gpus <= whole.gpus
            and request.cpu + used.cpu <= whole.cpu
            and request.memory + used.memory <= whole.memory
            and request.pods + used.pods <= whole.pods
        )

    def objection(self, shape: PodShape) -> str | None:
        """Why the node could not take such a pod even if it ran nothing of ours, or None."""
        if not self.node.ready:
            return "not ready"
        if self.node.unschedulable:
            return "cordoned"
        reason = shape.constraints.objection(self.node.name, self.node.labels, self.node.taints)
        if reason is None and not shape.requests.fits(self.capacity):
            return "too small"
        return reason

    def entries(self) -> list[QueuedChunk]:
        """All chunks bound to this node, each once, in their order."""
        seen = {id(entry): entry for queue in self.queues for entry in queue}
        return sorted(seen.values(), key=lambda entry: entry.key)


class FreeNodes:
    """Nodes with GPUs that nobody has reserved, by site; the nodes themselves keep it up to date."""

    def __init__(self, nodes: Iterable[NodeState]) -> None:
        self._at: dict[str, dict[str, NodeState]] = {}
        self._nodes: dict[str, list[NodeState]] = {}
        for node in nodes:
            self._nodes.setdefault(node.node.site, []).append(node)
            node.free_nodes = self._at.setdefault(node.node.site, {})
            node.note_room()

    def any_at(self, site: str) -> bool:
        """Whether there is one at the site (anywhere, with "")."""
        return bool(self._at.get(site)) if site else any(self._at.values())

    def nodes_at(self, site: str) -> list[NodeState]:
        """All nodes of the site, full ones too."""
        return self._nodes.get(site, [])

    def gpus(self) -> dict[str, int]:
        """How many GPUs are free at each site with nodes."""
        return {site: sum([node.free_gpus for node in free.values()]) for site, free in self._at.items()}

    def of(self, hosts: Hosts[NodeState], site: str) -> list[NodeState]:
        """Those among the hosts at the site (anywhere, with ""), by name."""
        places = (self._at.get(site, {}),) if site else tuple(self._at.values())
        all_there = hosts.at(site)
        if 4 * sum(map(len, places)) > len(all_there):
            return [node for node in all_there if node.free_gpus > 0]
        names = sorted(name for free in places for name in free if name in hosts.by_name)
        return [hosts.by_name[name] for name in names]
