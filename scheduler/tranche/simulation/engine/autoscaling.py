"""Autoscaler in virtual time: creates a node when a pod needs one, and removes nodes that have been idle.

A real autoscaler's node serves more than one pod: a pod uses an existing node with free GPUs at once, and waits for a
new one only if there is none. So two starts at an unlimited site may differ by the whole time that a node takes.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from math import inf


@dataclass(frozen=True, slots=True)
class Autoscaling:
    """Autoscaler settings of one site."""

    gpus: int = 1
    """GPUs of each node."""
    idle_seconds: float = inf
    """Time without pods after which a node is removed, in seconds."""


@dataclass(slots=True)
class Machine:
    """Node that the autoscaler created."""

    ready: float
    """Time when its first pod starts, in seconds of the simulation's clock."""
    gpus: dict[Hashable, int] = field(default_factory=dict)
    """GPUs that its pods hold, by pod."""
    idle_since: float = inf


@dataclass(slots=True)
class Machines:
    """Nodes of one site."""

    kind: Autoscaling
    created: int = 0
    """Number of nodes created so far."""
    _machines: list[Machine] = field(default_factory=list)
    _pods: dict[Hashable, Machine] = field(default_factory=dict)

    def take(self, pod: Hashable, gpus: int, now: float, node_seconds: float) -> float:
        """Assign a pod to the fullest node that has room, or to a new node; return when the pod may start.

        Args:
            pod: Identity of the pod.
            gpus: GPUs that the pod needs; it gets at least one of a new node.
            now: Clock in seconds.
            node_seconds: Time from the request of a node to the start of its first pod.

        Returns:
            When the pod may start: `now` on an existing node, later on a node that is being created.
        """
        self._machines = [machine for machine in self._machines if now - machine.idle_since < self.kind.idle_seconds]
        with_room = [machine for machine in self._machines if gpus <= self.kind.gpus - sum(machine.gpus.values())]
        machine = max(with_room, key=lambda machine: (machine.ready <= now, sum(machine.gpus.values())), default=None)
        if machine is None:
            machine = Machine(now + node_seconds)
            self._machines.append(machine)
            self.created += 1
        machine.gpus[pod], machine.idle_since = gpus, inf
        self._pods[pod] = machine
        return max(now, machine.ready)

    def give(self, pod: Hashable, now: float) -> None:
        """Release the GPUs of a pod that has ended; a pod without a node changes nothing."""
        machine = self._pods.pop(pod, None)
        if machine is not None:
            del machine.gpus[pod]
            if not machine.gpus:
                machine.idle_since = max(now, machine.ready)

    @property
    def pods(self) -> set[Hashable]:
        """Pods that have a node."""
        return set(self._pods)
