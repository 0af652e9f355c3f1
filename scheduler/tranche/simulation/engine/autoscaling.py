"""Nodes that an autoscaler makes when a pod waits for one, and removes when they have been idle: in virtual time.

A real autoscaler's node serves more than one pod: one that has room when a pod comes is used at once, and only a pod
that finds none waits for a new one. So two starts at an unlimited site may differ by the whole time that a node takes.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from math import inf


@dataclass(frozen=True, slots=True)
class Autoscaling:
    """What an autoscaler makes at one site."""

    gpus: int = 1
    """Of each node."""
    idle_seconds: float = inf
    """After so long without pods a node goes."""


@dataclass(slots=True)
class Machine:
    """One node."""

    ready: float
    """When its first pod starts, by the clock of the simulation in seconds."""
    gpus: dict[Hashable, int] = field(default_factory=dict)
    """That its pods hold."""
    idle_since: float = inf


@dataclass(slots=True)
class Machines:
    """The nodes of one site."""

    kind: Autoscaling
    made: int = 0
    """Nodes so far."""
    _machines: list[Machine] = field(default_factory=list)
    _pods: dict[Hashable, Machine] = field(default_factory=dict)

    def take(self, pod: Hashable, gpus: int, now: float, node_seconds: float) -> float:
        """Find a node for a pod, the fullest that has room, or have one made.

        Args:
            pod: Anything that tells it from others.
            gpus: That it needs; at least one of a new node is its own.
            now: Clock in seconds.
            node_seconds: From the order of a node to the start of its first pod.

        Returns:
            When the pod may start: `now` on a node that is there, later on one that is coming.
        """
        self._machines = [one for one in self._machines if now - one.idle_since < self.kind.idle_seconds]
        having = [one for one in self._machines if gpus <= self.kind.gpus - sum(one.gpus.values())]
        machine = max(having, key=lambda one: (one.ready <= now, sum(one.gpus.values())), default=None)
        if machine is None:
            machine = Machine(now + node_seconds)
            self._machines.append(machine)
            self.made += 1
        machine.gpus[pod], machine.idle_since = gpus, inf
        self._pods[pod] = machine
        return max(now, machine.ready)

    def give(self, pod: Hashable, now: float) -> None:
        """The pod is over; one that never took a node changes nothing."""
        machine = self._pods.pop(pod, None)
        if machine is not None:
            del machine.gpus[pod]
            if not machine.gpus:
                machine.idle_since = max(now, machine.ready)

    @property
    def pods(self) -> set[Hashable]:
        """Those that have a node."""
        return set(self._pods)
