"""LWF-κ: a job goes to its own n least loaded GPUs if n ≤ κ, else to the least loaded nodes.

Source: the simulator of the authors of Communication Contention Aware Scheduling of Multiple Deep Learning Training
Jobs, Wang, Shi, Wang, Chu, arXiv 2002.10105 [C]; of the paper, only the abstract was read [P]. The placement rule is
that of the code. κ = 1 consolidates all jobs but those of one worker; with ``kappa=inf`` the rule is pure least work.

There, jobs share a GPU by its memory, and each is bound as soon as memory for all of its workers is free [C]. Here GPUs
are exclusive [I]: a gang is bound when it arrives, with the work bound to a slot, in seconds, as the slot's load. Every
slot has a queue, the least remaining service of the whole job first (SRSF), and a gang starts when all of its slots are
free. All queues have the same order with the same tie-break, and nothing that runs is stopped, so the first gang in the
order waits for running workers only: gangs never wait for each other in a circle. ``placement=random`` binds to slots
drawn at random, as a comparator.
Worked numbers: docs/reference/systems/lwf.md.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import fmean
from typing import ClassVar, Generic, Literal, NamedTuple, TypeVar

from tranche.model import Resources
from tranche.policies.base import Placement, PolicyTraits
from tranche.policies.binding.slot_dispatch import Group, SlotDispatch, SlotOrder
from tranche.policies.seeded_choice import uniform
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.topology_fit import members_in

Place = TypeVar("Place")


class Loaded(NamedTuple, Generic[Place]):
    """A GPU, or the group of GPUs of one worker, with its load."""

    load: float
    """L_g: work bound to it, in seconds."""
    node: str
    number: int
    """Number within its node."""
    place: Place


def least_loaded(candidates: Iterable[Loaded[Place]], workers: int, kappa: float) -> list[Place]:
    """Return the places of the workers of a job, in order; an empty list if there are too few candidates.

    Args:
        candidates: GPUs, or groups of GPUs, that can take a worker.
        workers: Number n of workers.
        kappa: κ: up to this number of workers take the least loaded GPUs of all nodes; more take whole nodes, those
            with the least mean load first.
    """
    ordered = sorted(candidates, key=lambda candidate: (candidate.load, candidate.node, candidate.number))
    if workers > kappa:
        by_node: dict[str, list[Loaded[Place]]] = {}
        for candidate in ordered:
            by_node.setdefault(candidate.node, []).append(candidate)
        means = {node: fmean(candidate.load for candidate in group) for node, group in by_node.items()}
        ordered = [
            candidate for node in sorted(means, key=lambda node: (means[node], node)) for candidate in by_node[node]
        ]
    return [candidate.place for candidate in ordered[:workers]] if len(ordered) >= workers else []


@dataclass(frozen=True, slots=True)
class Lwf(SlotDispatch):
    """Least workload first with consolidation above κ workers; gangs are bound on arrival."""

    name: ClassVar[str] = "lwf"
    source: ClassVar[str] = (
        "LWF-κ placement after the authors' simulator (Wang et al., arXiv 2002.10105) [C], with a queue for each slot "
        "of exclusive GPUs [I]"
    )
    traits: ClassVar[PolicyTraits] = PolicyTraits(precedence_reason="which has less service left in its slots")

    order: SlotOrder = "srsf"
    kappa: float = 1.0
    """κ: a job of at most this many workers takes the least loaded slots, a larger one the least loaded nodes; `inf`
    for least work."""
    placement: Literal["load", "random"] = "load"
    """`load`: by the load of the slots. `random`: slots drawn at random."""

    def __post_init__(self) -> None:
        SlotDispatch.__post_init__(self)
        if not self.kappa >= 1:
            raise ValueError(f"kappa of policy {self.name} is at least 1, not {self.kappa:g}")
        if self.placement not in ("load", "random"):
            raise ValueError(f"{self.name} knows the placements load and random, not {self.placement!r}")

    @property
    def draws(self) -> bool:
        """Whether the seed decides: with the placement `random`."""
        return self.placement == "random"

    def pick(self, groups: Sequence[Group], cluster: ClusterState, state: JobState, chunk: int, placed: int) -> Group:
        """Return the least loaded group: each chunk is a job of one worker."""
        return self._choose(groups, cluster.seed, state, 1, chunk)[0]

    def dispatch(
        self,
        cluster: ClusterState,
        state: JobState,
        chunks: Sequence[int],
        now: float,
        sites: Collection[str] | None = None,
    ) -> tuple[list[Placement], bool]:
        """Bind the chunks one after the other, or all members of a gang at once.

        A gang that requires a topology level goes to the group of that level whose slots are free first [I]. One that
        would complete sooner on fresh nodes of an unlimited site goes there as a whole [I].
        """
        if not state.job.is_gang:
            return SlotDispatch.dispatch(self, cluster, state, chunks, now, sites)
        groups = _within_capacity(self.groups(cluster, state, now, sites), state.job.worker.requests, len(chunks))
        within = _by_required_level(groups, cluster, state)
        choices = [self._choose(of_level, cluster.seed, state, len(chunks), 0) for of_level in within]
        chosen = min(filter(None, choices), key=_load, default=[])
        key = self.queue_key(state, 0, state.nominal_batch_seconds)  # one key in all queues
        level = cluster.places.level_of([group.node.node for group in chosen])
        placed = [
            replace(self.place_on_node(cluster, state, chunk, group, now, level), key=key.of_chunk(chunk))
            for chunk, group in zip(chunks, chosen, strict=False)
        ]
        cost = max((placement.cost for placement in placed), default=inf)
        clouds = self.clouds(cluster, state, sites)
        fresh = [self.place_in_cloud(cluster, state, chunks[0], site, now, colocated=True) for site in clouds]
        best = min(fresh, key=lambda placement: placement.cost, default=None)
        if best is None or cost <= best.cost:
            return placed, state.colocated
        return [replace(best, chunk=chunk, key=key.of_chunk(chunk)) for chunk in chunks], True

    def _choose(self, groups: Sequence[Group], seed: int, state: JobState, workers: int, chunk: int) -> list[Group]:
        """Return a group for each of the workers by the option `placement`; an empty list if there are too few."""
        if self.placement == "load":
            loaded = [Loaded(group.wait, group.node.node.name, group.slots[0], group) for group in groups]
            return least_loaded(loaded, workers, self.kappa)
        drawn = sorted(
            groups, key=lambda group: uniform(seed, state.job.uid, chunk, group.node.node.name, group.slots[0])
        )
        return drawn[:workers] if len(drawn) >= workers else []


def _by_required_level(groups: Sequence[Group], cluster: ClusterState, state: JobState) -> list[list[Group]]:
    """Return the groups of slots by group of the topology level that the gang requires; all together without one."""
    if not state.job.required_level:
        return [list(groups)]
    return cluster.by_required_level(state, groups, lambda group: group.node.node)


def _load(chosen: Sequence[Group]) -> tuple[float, float]:
    """Return the work bound to the fullest slots of a gang, and to all of them, in seconds."""
    return max(group.wait for group in chosen), sum(group.wait for group in chosen)


def _within_capacity(groups: Iterable[Group], request: Resources, most: int) -> list[Group]:
    """Return the least loaded groups of each node, as many as the node can run at the same time."""
    by_node: dict[str, list[Group]] = {}
    for group in groups:
        by_node.setdefault(group.node.node.name, []).append(group)
    least_waiting: list[Group] = []
    for of_node in by_node.values():
        room = members_in(of_node[0].node.capacity, request, most)
        least_waiting += sorted(of_node, key=lambda group: (group.wait, group.slots))[:room]
    return least_waiting
