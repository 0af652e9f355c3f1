"""Nodes as the planner knows them: slots with their queues, windows, and what is reserved."""

from __future__ import annotations

from dataclasses import dataclass, field

from tranche.model import Node, PodShape, Resources
from tranche.policies.jobs import Entry, JobState
from tranche.policies.runs import Run


@dataclass(slots=True, eq=False)
class NodeState:
    """One node: its slots with their queues, its windows, and what they reserve."""

    node: Node
    capacity: Resources = Resources()
    """What is there for us, in use or not."""
    queues: list[list[Entry]] = field(default_factory=list)
    """By slot, in order of the keys."""
    runs: dict[tuple[str, int], tuple[JobState, Run]] = field(default_factory=dict)
    """Windows by (job, attempt)."""
    leaving: dict[tuple[str, int], Run] = field(default_factory=dict)
    """Those of them that are closing."""
    free_gpus: int = 0
    """Of `capacity`, in use by nobody."""
    free_nodes: dict[str, NodeState] | None = None
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

    def entries(self) -> list[Entry]:
        """All chunks bound to this node, each once, in their order."""
        seen = {id(entry): entry for queue in self.queues for entry in queue}
        return sorted(seen.values(), key=lambda entry: entry.key)
