"""Shortest remaining time first, preemptive.

Source: Schrage, A proof of the optimality of the shortest remaining processing time discipline, Operations Research
16(3), 1968, recalled and not read [R]; for clusters of GPUs, the schedule shortest of the authors' simulator of
Tiresias (Gu et al., NSDI 2019) [C].
"""

from dataclasses import dataclass
from typing import ClassVar

from tranche.policies.base import PolicyTraits, PooledPolicy, Rank
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.remaining_work import ledger_seconds


@dataclass(frozen=True, slots=True)
class Srtf(PooledPolicy):
    """Least remaining time first; a running job makes way for one with less left."""

    name: ClassVar[str] = "srtf"
    source: ClassVar[str] = "Shortest remaining time first, preemptive (Schrage 1968, recalled [R])"
    traits: ClassVar[PolicyTraits] = PolicyTraits(precedence_reason="which has less time left", preemptive=True)

    def rank(self, state: JobState, cluster: ClusterState, now: float) -> Rank:
        """Return the remaining seconds of the job on all its workers."""
        return (ledger_seconds(state, now) / state.job.width, 0.0)

    def rank_decrease_per_second(self, state: JobState, now: float) -> float:
        """Return the decrease of remaining seconds per second."""
        return state.training_rate(now) / state.job.width
