"""Base class of the simple dispatch rules: each chunk is bound at arrival to slots that the rule picks."""

from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from tranche.policies.base import BindingPolicy, Placement, PolicyTraits
from tranche.state.cluster import ClusterState, allowed
from tranche.state.job import JobState, QueueKey
from tranche.state.node import NodeState
from tranche.state.remaining_work import ledger_seconds
from tranche.state.window import SlotBinding

SlotOrder = Literal["arrival", "density", "srsf"]


@dataclass(slots=True, eq=False)
class Group:
    """Slots of one node for one worker."""

    node: NodeState
    slots: tuple[int, ...]
    wait: float
    """Work bound to the fullest of the slots, in seconds."""


@dataclass(frozen=True, slots=True)
class SlotDispatch(BindingPolicy):
    """A dispatch rule that binds chunks one by one by `pick`; each slot runs its queue by the option `order`.

    A chunk that would complete sooner on a fresh worker of an unlimited site than in the slots that `pick` gives,
    behind all work bound to them, goes there [I]. If all chunks of the job do, they train beside their parameter
    server (ζ = 1). Counting only denser work ahead, where the densest chunk runs first, gave a higher average JCT on
    the preset ``jsac-cloud``: chunks that arrive later are often denser.
    """

    order: SlotOrder = "arrival"
    """Order of the queue of each slot: `arrival`; `density`, the weight of a job over its work; `srsf`, least remaining
    service of the job."""
    traits: ClassVar[PolicyTraits] = PolicyTraits(
        precedence_reason="which is before it in the queue of its slot",
        preemptive=True,
        supports_gangs=False,
    )

    def __post_init__(self) -> None:
        if self.order not in get_args(SlotOrder):
            raise ValueError(f"{self.name} knows the orders {', '.join(get_args(SlotOrder))}, not {self.order!r}")

    @property
    def uses_weights(self) -> bool:
        """Whether the option `order` is density, which is proportional to the weight."""
        return self.order == "density"

    @abstractmethod
    def pick(self, groups: Sequence[Group], cluster: ClusterState, state: JobState, chunk: int, placed: int) -> Group:
        """Return the group of slots that gets the chunk.

        Args:
            groups: Groups with enough slots, at least one, by node and slot.
            cluster: Everything else that runs and waits.
            state: The arriving job.
            chunk: Number of the chunk.
            placed: Number of the job's chunks that this dispatch has placed before it.
        """

    def queue_key(self, state: JobState, chunk: int, seconds_per_batch: float) -> QueueKey:
        """Return a key by the option `order`: arrival, the density of JSAC'22, or the remaining service of the job."""
        value = 0.0
        if self.order == "density":
            value = -state.density(seconds_per_batch)
        elif self.order == "srsf":
            value = ledger_seconds(state, state.job.submitted) * max(1, state.job.gpus)
        return QueueKey(value, state.job.submitted, state.job.key, chunk)

    def dispatch(
        self,
        cluster: ClusterState,
        state: JobState,
        chunks: Sequence[int],
        now: float,
        sites: Collection[str] | None = None,
    ) -> tuple[list[Placement], bool]:
        """Bind the chunks one after the other."""
        groups, clouds = self.groups(cluster, state, now, sites), self.clouds(cluster, state, sites)
        placements: list[Placement] = []
        for chunk in chunks if groups or clouds else ():
            placed = min(
                (self.place_in_cloud(cluster, state, chunk, site, now) for site in clouds), key=_cost, default=None
            )
            if groups:
                group = self.pick(groups, cluster, state, chunk, len(placements))
                bound = self.place_on_node(cluster, state, chunk, group, now)
                if placed is None or bound.cost <= placed.cost:
                    placed = bound
                    group.wait += state.job.batches_per_chunk_total * bound.batch_seconds
            assert placed is not None
            placements.append(placed)
        homes = {placed.home.site for placed in placements}
        if len(placements) == len(chunks) and len(homes) == 1 and homes.issubset(clouds) and not state.entries:
            site = homes.pop()
            if cluster.could_colocate(state, site):
                return [self.place_in_cloud(cluster, state, chunk, site, now, colocated=True) for chunk in chunks], True
        return placements, state.colocated

    def groups(self, cluster: ClusterState, state: JobState, now: float, sites: Collection[str] | None) -> list[Group]:
        """Return groups of slots that can take a worker of the job, by node and slot."""
        width = max(1, state.job.gpus)
        groups: list[Group] = []
        for node in cluster.eligible(state.job.worker):
            if allowed(node, state, sites, now):
                waits = [sum(entry.remaining_seconds(now) for entry in queue) for queue in node.queues]
                ordered = (
                    sorted(range(len(waits)), key=lambda slot: (waits[slot], slot)) if width > 1 else range(len(waits))
                )
                for first in range(0, len(waits) - width + 1, width):
                    slots = tuple(sorted(ordered[first : first + width]))
                    groups.append(Group(node, slots, max(waits[slot] for slot in slots)))
        return groups

    def clouds(self, cluster: ClusterState, state: JobState, sites: Collection[str] | None) -> list[str]:
        """Return the unlimited sites among `sites` (None: all) that can take workers of the job."""
        return [site for site in cluster.clouds_for(state) if sites is None or site in sites]

    def place_on_node(
        self,
        cluster: ClusterState,
        state: JobState,
        chunk: int,
        group: Group,
        now: float,
        level: int | None = None,
    ) -> Placement:
        """Bind a chunk to the slots of the group, behind all work bound to them.

        `level` is the topology level of a gang of which it is a member.
        """
        node = group.node.node
        per_batch = cluster.batch_seconds(state, node.site, colocated=False, node=node.name, level=level)
        transfer, seconds = cluster.transfer_seconds(state, node.site), state.job.batches_per_chunk_total * per_batch
        key = self.queue_key(state, chunk, per_batch)
        cost = (max(transfer, group.wait) + seconds) / state.job.chunks
        return Placement(chunk, SlotBinding(node.site, node.name, group.slots), key, now + transfer, per_batch, cost)

    def place_in_cloud(
        self, cluster: ClusterState, state: JobState, chunk: int, site: str, now: float, *, colocated: bool = False
    ) -> Placement:
        """Place a chunk on a fresh worker of an unlimited site."""
        per_batch = cluster.batch_seconds(state, site, colocated=colocated or state.colocated)
        transfer, seconds = cluster.transfer_seconds(state, site), state.job.batches_per_chunk_total * per_batch
        cost = (transfer + cluster.sites[site].start_seconds + seconds) / state.job.chunks
        return Placement(
            chunk, SlotBinding(site, None), self.queue_key(state, chunk, per_batch), now + transfer, per_batch, cost
        )


def _cost(placed: Placement) -> float:
    return placed.cost
