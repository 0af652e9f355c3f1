"""Online preemptive scheduling of PS/worker jobs in edge-cloud networks, as published.

Source: Wang, Zhou, Jiao, Zhang, Li, Li, IEEE JSAC 40(8):2411-2425, 2022, doi 10.1109/JSAC.2022.3180772, Alg. 1-5; the
reading of its pseudo-code is algorithms.md 1.2. Marks: [P] printed in the paper, [I] ours.

[P] chunk density as static order, dispatch cost Q of equation (5), ζ and the unlimited cloud, parameter server kept or
chosen at random among the feasible ones. [I] workers of g > 1 GPUs as rigid groups of g slots on one node, where
density counts g × seconds; a finite cloud is a site with queues. With g = 1 and no finite cloud nothing of ours acts.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import ClassVar

from tranche.policies.interfaces import BindingPolicy, Placement
from tranche.policies.jobs import JobState
from tranche.policies.nodes import NodeState
from tranche.policies.runs import Home, Key
from tranche.policies.states import ClusterState, allowed


@dataclass(slots=True)
class SlotLoad:
    """What one slot's queue means for an arriving chunk at the time when its data would be there."""

    slot: int
    wait: float
    """Σ p̂ of chunks at least as dense, seconds; the arriving job's own chunks are added as they are placed."""
    lighter: float
    """Σ weights of less dense chunks."""


@dataclass(slots=True, eq=False)
class Candidate:
    """One node (or unlimited site) and the cost of placing the next chunk there."""

    site: str
    node: str | None
    seconds_per_batch: float
    seconds: float
    transfer: float
    key: Key
    loads: list[SlotLoad]
    width: int

    def group(self) -> list[SlotLoad]:
        """The slots that the next chunk would take: those of the shortest wait, then of the least delay to others."""
        return sorted(self.loads, key=lambda load: (load.wait + self.seconds * load.lighter, load.slot))[: self.width]

    def cost(self, weight: float) -> float:
        """Q of equation (5), in seconds: transfer, wait, own work, and the delay put on less dense chunks."""
        group = self.group()
        wait = max((load.wait for load in group), default=0.0)
        return weight * (self.transfer + wait + self.seconds) + self.seconds * sum(load.lighter for load in group)


HeapItem = tuple[float, str, str, Candidate]
"""Cost, site and node (ties go by name), and what they are the cost of."""


@dataclass(frozen=True, slots=True)
class ChunkFaithful(BindingPolicy):
    """The JSAC'22 algorithm: no moves, no restart cost, static density, random parameter servers."""

    name: ClassVar[str] = "chunk-faithful"
    source: ClassVar[str] = (
        "Wang et al., Online preemptive scheduling of PS/worker jobs, IEEE JSAC 40(8), 2022, Alg. 1-5"
    )
    behind: ClassVar[str] = "whose chunks are denser"

    def key(self, state: JobState, chunk: int, seconds_per_batch: float) -> Key:
        """Densest first; ties first come, first served."""
        return (-state.density(seconds_per_batch), state.job.submitted, state.job.key, chunk)

    def dispatch(
        self,
        cluster: ClusterState,
        state: JobState,
        chunks: Sequence[int],
        now: float,
        sites: Collection[str] | None = None,
    ) -> tuple[list[Placement], bool]:
        """Alg. 1-3: every chunk to the worker of least Q, keys refreshed lazily; ζ = 1 if the cloud is cheapest."""
        nodes = [
            _node_candidate(self, cluster, state, node, now)
            for node in cluster.eligible(state.job.worker)
            if allowed(node, state, sites, now)
        ]
        clouds = [site.name for site in cluster.unlimited_sites() if sites is None or site.name in sites]
        weight = state.job.weight / state.job.chunks
        colocated = False
        heap = [_item(node, weight) for node in nodes]
        if clouds:
            together = min(_item(_cloud_candidate(self, cluster, state, c, colocated=True), weight) for c in clouds)
            colocated = state.colocated or (sites is None and (not heap or together < min(heap)))
            apart = [_item(_cloud_candidate(self, cluster, state, c, colocated=False), weight) for c in clouds]
            heap = [together] if colocated else heap + apart
        heapify(heap)
        return self._place(heap, chunks, now, weight), colocated

    def _place(self, heap: list[HeapItem], chunks: Sequence[int], now: float, weight: float) -> list[Placement]:
        placements: list[Placement] = []
        for chunk in chunks:
            if not heap:
                break
            while (fresh := _item(heap[0][-1], weight)) != heap[0]:
                heapreplace(heap, fresh)
            cost, _, _, best = heap[0]
            if best.node is None:  # once the cloud wins, the rest goes there too
                heap = heap[:1]
            group = best.group()
            home = Home(best.site, best.node, tuple(sorted(load.slot for load in group)))
            key = (*best.key[:3], chunk)
            placements.append(Placement(chunk, home, key, now + best.transfer, best.seconds_per_batch, cost))
            for load in group:
                load.wait += best.seconds
        return placements


def _item(candidate: Candidate, weight: float) -> HeapItem:
    return (candidate.cost(weight), candidate.site, candidate.node or "", candidate)


def _node_candidate(
    policy: ChunkFaithful, cluster: ClusterState, state: JobState, node: NodeState, now: float
) -> Candidate:
    site = node.node.site
    per_batch = cluster.batch_seconds(state, site, colocated=False, node=node.node.name)
    transfer = cluster.transfer_seconds(state, site)
    key = policy.key(state, 0, per_batch)
    loads = [_load(node, slot, key, now, transfer) for slot in range(len(node.queues))]
    seconds = state.job.batches_per_chunk_total * per_batch
    return Candidate(site, node.node.name, per_batch, seconds, transfer, key, loads, max(1, state.job.gpus))


def _cloud_candidate(
    policy: ChunkFaithful, cluster: ClusterState, state: JobState, site: str, *, colocated: bool
) -> Candidate:
    per_batch = cluster.batch_seconds(state, site, colocated=colocated)
    seconds = state.job.batches_per_chunk_total * per_batch
    key = policy.key(state, 0, per_batch)
    return Candidate(site, None, per_batch, seconds, cluster.transfer_seconds(state, site), key, [], 0)


def _load(node: NodeState, slot: int, key: Key, now: float, transfer: float) -> SlotLoad:
    """The slot's queue as it will be when the data have come: its first `transfer` seconds of work are done then."""
    wait = lighter = 0.0
    budget = transfer
    for entry in node.queues[slot]:
        rest = entry.remaining_seconds(now)
        worked = min(rest, budget)
        budget -= worked
        if worked and worked == rest:
            continue
        if entry.key[0] <= key[0]:
            wait += rest - worked
        else:
            lighter += entry.state.job.weight / entry.state.job.chunks
    return SlotLoad(slot, wait, lighter)
