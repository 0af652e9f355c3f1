"""Preemptive dispatching and scheduling of chunks at the edge and in the cloud: the published algorithm, corrected.

Source: Preemptive Scheduling for Distributed Machine Learning Jobs in Edge-Cloud Networks, N. Wang, R. Zhou, L. Jiao,
R. Zhang, B. Li, Z. Li, IEEE JSAC 40(8):2411-2425, 2022, doi 10.1109/JSAC.2022.3180772, eq. (1) and (5), Alg. 1-5,
Table I. Marks: [P] printed in the paper, [I] ours. Formulas and worked numbers: docs/explanation/algorithms.md.

[P] Chunk density as static order, dispatch cost Q of eq. (5), ζ and the unlimited cloud, parameter servers kept or
chosen at random among the feasible hosts. [I] Job weights; workers of g > 1 GPUs as fixed groups of g slots on one
node, where density counts g × seconds; a finite cloud is a site with queues. With weight 1, g = 1 and no finite cloud,
none of these act.

Five corrections of the print:

1. Alg. 2, lines 21-24, places a chunk on the worker of the least stored key even if the refreshed key is no longer the
   least. Here keys are refreshed until the least one is fresh, so each chunk goes where Q is least.
   ``refresh=printed`` places as the print does; it is for comparison only.
2. Alg. 2, line 18, refreshes the key of the cloud with the first chunk, which gives ζ = 1 by Alg. 3. Once a chunk is at
   the edge, ζ is 0, so the key of the cloud counts the exchange with the parameter server.
3. Alg. 4, line 5, delays a preempted chunk by its own length. Eq. (5) and the schedule need the length of the chunk
   that is inserted.
4. If the cloud wins only at chunk d > 1, "all chunks" means d … D_j, and ζ stays 0; chunks before d stay at the edge.
5. Alg. 5 does not test whether the host of a parameter server is free, which constraint (2f) needs. Only free hosts are
   chosen.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace, nsmallest
from math import inf
from typing import ClassVar, Literal

from tranche.policies.base import BindingPolicy, Placement, PolicyTraits
from tranche.policies.binding.slot_projection import project_node
from tranche.state.cluster import ClusterState, allowed
from tranche.state.job import JobState, QueuedChunk, QueueKey
from tranche.state.node import NodeState
from tranche.state.window import SlotBinding


@dataclass(slots=True)
class SlotLoad:
    """Load of one slot's queue for an arriving chunk at t0, when its data would be there."""

    slot: int
    wait: float
    """Σ p̂ of chunks at least as dense, in seconds; the arriving job's own chunks are added as they are placed."""
    lighter: float
    """Σ w/D of less dense chunks."""
    share: float
    """The same, with the weight of each chunk divided among all of its slots."""


Behind = dict[tuple[int, ...], float]
"""Σ w/D of the less dense chunks of a node, by their slots."""


@dataclass(slots=True, eq=False)
class Candidate:
    """A node or an unlimited site, and the cost of placing the next chunk there."""

    site: str
    node: str | None
    seconds_per_batch: float
    seconds: float
    transfer: float
    key: QueueKey
    loads: list[SlotLoad]
    behind: Behind
    width: int
    weight: float
    """w/D of the arriving job."""

    def group(self) -> list[SlotLoad]:
        """Return the slots of least Q for the next chunk, one for each GPU of a worker; ties go to smaller slots.

        [I] for several GPUs, not all sets are compared, but one for each limit of the wait: the slots of least `share`.
        """
        if self.width == 1:
            return [min(self.loads, key=lambda load: (self._queue_cost(load.wait, load.lighter), load.slot))]
        least: tuple[float, list[int]] = (inf, [])
        best: list[SlotLoad] = []
        for limit in {load.wait for load in self.loads}:
            within = [load for load in self.loads if load.wait <= limit]
            group = nsmallest(self.width, within, key=lambda load: (load.share, load.slot))
            if group and len(group) == self.width:
                group.sort(key=lambda load: load.slot)
                queued = self._queue_cost(max(load.wait for load in group), self._lighter(group))
                if (cost := (queued, [load.slot for load in group])) < least:
                    least, best = cost, group
        return best

    def cost(self) -> float:
        """Return Q of eq. (5), in seconds: transfer, wait, own work, and the delay put on less dense chunks."""
        group = self.group()
        wait = max((load.wait for load in group), default=0.0)
        return self._queue_cost(self.transfer + wait + self.seconds, self._lighter(group))

    def _lighter(self, group: Sequence[SlotLoad]) -> float:
        """Return Σ w/D of the less dense chunks that need any of the slots, each counted once."""
        if len(group) == 1:
            return group[0].lighter
        taken = {load.slot for load in group}
        return sum(weight for slots, weight in self.behind.items() if not taken.isdisjoint(slots))

    def _queue_cost(self, wait: float, lighter: float) -> float:
        return self.weight * wait + self.seconds * lighter


HeapItem = tuple[float, float, str, str, Candidate]
"""Cost, transfer, site and node (ties go to the smaller Δ, then by name), and the candidate."""


@dataclass(frozen=True, slots=True)
class ChunkFaithful(BindingPolicy):
    """The JSAC'22 algorithm: no moves, no restart cost, static density, random parameter servers."""

    name: ClassVar[str] = "chunk-faithful"
    source: ClassVar[str] = (
        "Wang et al., Preemptive Scheduling for Distributed Machine Learning Jobs in Edge-Cloud Networks, "
        "IEEE JSAC 40(8):2411-2425, 2022, Alg. 1-5 [P], with five corrections"
    )
    traits: ClassVar[PolicyTraits] = PolicyTraits(
        precedence_reason="whose chunks are denser",
        preemptive=True,
        uses_weights=True,
        supports_gangs=False,
    )

    refresh: Literal["fresh", "printed"] = "fresh"
    """fresh: each chunk goes to the worker of least Q; printed: to that of the least stored key, as in the print."""

    def __post_init__(self) -> None:
        if self.refresh not in ("fresh", "printed"):
            raise ValueError(f"refresh of policy {self.name} is fresh or printed, not {self.refresh!r}")

    def precedence_reason(self, first: JobState, second: JobState, cluster: ClusterState, now: float) -> str:
        """Return what puts the first job before the second: weight, density or arrival."""
        densities = [state.density(state.nominal_batch_seconds) for state in (first, second)]
        plain = [density / state.job.weight for density, state in zip(densities, (first, second), strict=True)]
        if first.job.weight > second.job.weight and plain[0] <= plain[1]:
            return f"which has more weight ({first.job.weight:g})"
        return "which came earlier" if densities[0] == densities[1] else self.traits.precedence_reason

    def queue_key(self, state: JobState, chunk: int, seconds_per_batch: float) -> QueueKey:
        """Return a key by which the densest chunk runs first; ties go to the earlier submission."""
        return QueueKey(-state.density(seconds_per_batch), state.job.submitted, state.job.key, chunk)

    def dispatch(
        self,
        cluster: ClusterState,
        state: JobState,
        chunks: Sequence[int],
        now: float,
        sites: Collection[str] | None = None,
    ) -> tuple[list[Placement], bool]:
        """Bind each chunk to the worker of least Q (Alg. 1-3), keys refreshed lazily; ζ = 1 if the cloud is best."""
        nodes = [
            _node_candidate(self, cluster, state, node, now)
            for node in cluster.eligible(state.job.worker)
            if allowed(node, state, sites, now)
        ]
        clouds = [site for site in cluster.clouds_for(state) if sites is None or site in sites]
        colocated = False
        heap = [_item(node) for node in nodes]
        apart = [_item(_cloud_candidate(self, cluster, state, c, colocated=False)) for c in clouds]
        choices = heap + apart
        hosts = [site for site in clouds if state.colocated or cluster.could_colocate(state, site)]
        if hosts:
            together = min(_item(_cloud_candidate(self, cluster, state, c, colocated=True)) for c in hosts)
            colocated = state.colocated or (sites is None and (not heap or together < min(heap)))
            choices = [together] if colocated else choices
        heapify(choices)
        return self._place(choices, chunks, now), colocated

    def _place(self, heap: list[HeapItem], chunks: Sequence[int], now: float) -> list[Placement]:
        placements: list[Placement] = []
        for chunk in chunks:
            if not heap:
                break
            cost, best = self._cheapest(heap)
            if best.node is None:  # once the cloud wins, the rest goes there too
                heap = [_item(best)]
            group = best.group()
            home = SlotBinding(best.site, best.node, tuple(sorted(load.slot for load in group)))
            key = best.key.of_chunk(chunk)
            placements.append(Placement(chunk, home, key, now + best.transfer, best.seconds_per_batch, cost))
            for load in group:
                load.wait += best.seconds
        return placements

    def _cheapest(self, heap: list[HeapItem]) -> tuple[float, Candidate]:
        """Return Q and the candidate for the next chunk; the keys of the heap never exceed the costs."""
        first = heap[0]
        while (fresh := _item(first[-1])) != first:
            heapreplace(heap, fresh)
            if self.refresh == "printed":
                return fresh[0], fresh[-1]
            first = heap[0]
        return first[0], first[-1]


def _item(candidate: Candidate) -> HeapItem:
    return (candidate.cost(), candidate.transfer, candidate.site, candidate.node or "", candidate)


def _node_candidate(
    policy: ChunkFaithful, cluster: ClusterState, state: JobState, node: NodeState, now: float
) -> Candidate:
    site = node.node.site
    per_batch = cluster.batch_seconds(state, site, colocated=False, node=node.node.name)
    transfer, key = cluster.transfer_seconds(state, site), policy.queue_key(state, 0, per_batch)
    loads, behind = slot_loads(node, key, now, transfer)
    return Candidate(
        site,
        node.node.name,
        seconds_per_batch=per_batch,
        seconds=state.job.batches_per_chunk_total * per_batch,
        transfer=transfer,
        key=key,
        loads=loads,
        behind=behind,
        width=max(1, state.job.gpus),
        weight=state.job.weight / state.job.chunks,
    )


def _cloud_candidate(
    policy: ChunkFaithful, cluster: ClusterState, state: JobState, site: str, *, colocated: bool
) -> Candidate:
    per_batch = cluster.batch_seconds(state, site, colocated=colocated)
    return Candidate(
        site,
        None,
        seconds_per_batch=per_batch,
        seconds=state.job.batches_per_chunk_total * per_batch,
        transfer=cluster.transfer_seconds(state, site),
        key=policy.queue_key(state, 0, per_batch),
        loads=[],
        behind={},
        width=0,
        weight=state.job.weight / state.job.chunks,
    )


def slot_loads(node: NodeState, key: QueueKey, now: float, transfer: float) -> tuple[list[SlotLoad], Behind]:
    """Return the slots' loads at t0 = now + transfer for a chunk with this key, if no other job arrives."""
    loads = [SlotLoad(slot, 0.0, 0.0, 0.0) for slot in range(len(node.queues))]
    behind: Behind = {}
    for entry, seconds_left in _left_at(node, now, now + transfer):
        slots = entry.home.slots
        weight = entry.state.job.weight / entry.state.job.chunks
        if entry.key.value > key.value:
            behind[slots] = behind.get(slots, 0.0) + weight
        for slot in slots:
            if entry.key.value <= key.value:
                loads[slot].wait += seconds_left
            else:
                loads[slot].lighter += weight
                loads[slot].share += weight / len(slots)
    return loads, behind


def _left_at(node: NodeState, now: float, then: float) -> list[tuple[QueuedChunk, float]]:
    """Return the node's chunks that are unfinished then, A(t0), with their remaining seconds p̂."""
    projected = project_node(node, now, then)
    return [(chunk.entry, chunk.rest) for chunk in projected if chunk.rest or not chunk.windows]
