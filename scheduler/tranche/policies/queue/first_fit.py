"""First fit: arrival order, and each worker on the first node with room.

Source: first fit of bin packing (Johnson, Near-optimal bin packing algorithms, 1973), recalled and not read [R]; [I]
the order of arrival.
"""

from dataclasses import dataclass
from typing import ClassVar

from tranche.policies.base import PolicyTraits, PooledPolicy, Rank
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState


@dataclass(frozen=True, slots=True)
class FirstFit(PooledPolicy):
    """Like fifo-skip, but nodes are taken in the order of their names and not by the best fit."""

    name: ClassVar[str] = "first-fit"
    source: ClassVar[str] = "First in, first out, each worker on the first node with room (Johnson 1973, recalled [R])"
    traits: ClassVar[PolicyTraits] = PolicyTraits(precedence_reason="which came earlier", first_fit=True)

    def rank(self, state: JobState, cluster: ClusterState, now: float) -> Rank:
        """Return the same rank for all jobs: ties go to the earlier submission."""
        return (0.0, 0.0)
