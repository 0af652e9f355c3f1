"""First in, first out, where every job that fits starts: backfilling without reservations.

Source: the unreserved form of backfilling (Lifka, The ANL/IBM SP scheduling system, JSSPP 1995), recalled and not read
[R]; it may starve wide jobs.
"""

from dataclasses import dataclass
from typing import ClassVar

from tranche.policies.base import PolicyTraits, PooledPolicy, Rank
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState


@dataclass(frozen=True, slots=True)
class FifoSkip(PooledPolicy):
    """Arrival order; a job that does not fit is passed over."""

    name: ClassVar[str] = "fifo-skip"
    source: ClassVar[str] = "First in, first out, every job that fits starts (backfilling without reservations)"
    traits: ClassVar[PolicyTraits] = PolicyTraits(precedence_reason="which came earlier")

    def rank(self, state: JobState, cluster: ClusterState, now: float) -> Rank:
        """Return the same rank for all jobs: ties go to the earlier submission."""
        return (0.0, 0.0)
