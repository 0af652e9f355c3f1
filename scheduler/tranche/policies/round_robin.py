"""Round robin: chunks go to the slots in turn.

Source: the baseline "RR" of JSAC'22, section VI. [I] the turn goes on from job to job; a restarted planner begins
again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tranche.policies.dispatching import Group, SlotDispatch
from tranche.policies.jobs import JobState
from tranche.policies.states import ClusterState


@dataclass(frozen=True, slots=True)
class RoundRobin(SlotDispatch):
    """The next slot."""

    name: ClassVar[str] = "round-robin"
    source: ClassVar[str] = "Chunks to the slots in turn, first in, first out there (baseline of IEEE JSAC 40(8), 2022)"

    def pick(self, groups: Sequence[Group], cluster: ClusterState, state: JobState, chunk: int, placed: int) -> Group:
        """One after the other."""
        return groups[(cluster.dispatched + placed) % len(groups)]
