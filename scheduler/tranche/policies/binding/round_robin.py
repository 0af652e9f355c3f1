"""Round robin: chunks go to the slots in turn.

Source: a baseline of every load balancing study; OASiS (Bao, Peng, Wu, Li, INFOCOM 2018, arXiv 1801.00936, section
V-A) places the workers of its comparators FIFO, DRF and RRH in this way [P]. [I] the turn goes on from job to job; a
restarted planner begins again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tranche.policies.binding.slot_dispatch import Group, SlotDispatch
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState


@dataclass(frozen=True, slots=True)
class RoundRobin(SlotDispatch):
    """The next slot."""

    name: ClassVar[str] = "round-robin"
    source: ClassVar[str] = (
        "Chunks to the slots in turn, first in, first out there [I]; the placement of OASiS' comparators (INFOCOM 2018)"
    )

    def pick(self, groups: Sequence[Group], cluster: ClusterState, state: JobState, chunk: int, placed: int) -> Group:
        """Return the group after the last one."""
        return groups[(cluster.dispatched + placed) % len(groups)]
