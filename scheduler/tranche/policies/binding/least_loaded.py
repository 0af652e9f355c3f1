"""Least loaded: every chunk to the slot with the least work bound to it.

Source: list scheduling (Graham, Bounds for certain multiprocessing anomalies, 1966), recalled and not read [R]. [I] in
a slot, the densest chunk first (the order of JSAC'22), so that it differs from `chunk-faithful` by its dispatch rule
alone; `order=arrival` makes it first in, first out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tranche.policies.binding.slot_dispatch import Group, SlotDispatch, SlotOrder
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState


@dataclass(frozen=True, slots=True)
class LeastLoaded(SlotDispatch):
    """The slot with the least work."""

    name: ClassVar[str] = "least-loaded"
    source: ClassVar[str] = (
        "List scheduling: each chunk to the least loaded slot (Graham 1966, recalled [R]), densest first there [I]"
    )
    order: SlotOrder = "density"

    def pick(self, groups: Sequence[Group], cluster: ClusterState, state: JobState, chunk: int, placed: int) -> Group:
        """Return the group of least wait; ties go to the first."""
        return min(groups, key=lambda group: group.wait)
