"""What a planner has learnt of the cluster and no object says: handed to the planner that takes over.

What it has learnt of one job is in the job's ledger (`tranche.model.JobProgress`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import exp, log
from typing import TypeVar

from tranche.estimate import link_between
from tranche.planner.context import PlannerContext
from tranche.state.cluster import ClusterState

One = TypeVar("One")
MOST = 200
"""Links and nodes that are handed on, each: those that differ most from what was promised."""
NEAR = 0.02
"""What differs by a smaller logarithm is not worth handing on."""


@dataclass(frozen=True, slots=True)
class LinkMemory:
    """How long uploads from one site to another really take."""

    origin: str
    target: str
    promised: float
    """Bits per second that were promised then; with another promise, what was measured says nothing."""
    factor: float
    """Measured over promised time."""


@dataclass(frozen=True, slots=True)
class Memory:
    """All of it; a planner that has learnt nothing has an empty one."""

    links: list[LinkMemory] = field(default_factory=list)
    nodes: dict[str, float] = field(default_factory=dict)
    """Measured over expected seconds of a mini-batch."""
    start_seconds: float | None = None
    """From the opening of a window to its first mini-batch, over all jobs."""
    save_seconds: float | None = None
    """From being told to stop to the end, over all jobs."""


def memory_of(cluster: ClusterState) -> Memory:
    """What the planner knows now."""
    return Memory(
        links=[
            LinkMemory(*ends, _promised(cluster, *ends), _digits(exp(learnt)))
            for ends, learnt in _largest(cluster.uploads.corrections.items())
        ],
        nodes={
            name: _digits(exp(mean))
            for name, mean in _largest((name, one.mean) for name, one in cluster.speed_model.nodes.items())
        },
        start_seconds=cluster.restarts.start_seconds,
        save_seconds=cluster.restarts.save_seconds,
    )


def recall(context: PlannerContext, memory: Memory) -> None:
    """Begin with what an earlier planner knew of the sites and nodes that are there; before its jobs are taken over."""
    cluster = context.cluster
    for one in memory.links:
        if _promised(cluster, one.origin, one.target) == one.promised and one.factor > 0:
            cluster.uploads.corrections[one.origin, one.target] = log(one.factor)
    for name, factor in memory.nodes.items() if context.policy.traits.uses_learned_estimates else ():
        node = cluster.nodes.get(name)
        if node is not None and factor > 0:
            cluster.speed_model.recall_node(name, factor)
            node.learn(factor)
    cluster.restarts.start_seconds, cluster.restarts.save_seconds = memory.start_seconds, memory.save_seconds


def _promised(cluster: ClusterState, origin: str, target: str) -> float:
    return link_between(cluster.network, cluster.sites, origin, target).bits_per_second


def _largest(learnt: Iterable[tuple[One, float]]) -> list[tuple[One, float]]:
    """Those that say most, by name."""
    worth = [one for one in learnt if abs(one[1]) >= NEAR]
    return sorted(sorted(worth, key=lambda one: -abs(one[1]))[:MOST], key=lambda one: str(one[0]))


def _digits(value: float) -> float:
    return float(f"{value:.6g}")
