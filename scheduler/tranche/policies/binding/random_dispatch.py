"""Random dispatch: every chunk to a slot drawn uniformly.

Source: the memoryless baseline of every load balancing study (Mitzenmacher, The power of two choices, IEEE TPDS 12(10),
2001, recalled and not read [R]).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tranche.policies.binding.slot_dispatch import Group, SlotDispatch
from tranche.policies.seeded_choice import choose
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState


@dataclass(frozen=True, slots=True)
class RandomDispatch(SlotDispatch):
    """Any slot, by the seed."""

    name: ClassVar[str] = "random"
    source: ClassVar[str] = (
        "Each chunk to a slot drawn at random, first in, first out there (Mitzenmacher 2001, d = 1, recalled [R])"
    )

    @property
    def draws(self) -> bool:
        """Whether the seed decides: always."""
        return True

    def pick(self, groups: Sequence[Group], cluster: ClusterState, state: JobState, chunk: int, placed: int) -> Group:
        """Return a group drawn uniformly by the seed."""
        return choose(groups, cluster.seed, state.job.uid, chunk)
