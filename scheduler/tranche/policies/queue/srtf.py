"""Shortest remaining time first, preemptive.

Source: Schrage, A proof of the optimality of the shortest remaining processing time discipline, Operations Research
16(3), 1968; for clusters of GPUs the baseline SRTF of Tiresias (Gu et al., NSDI 2019).
"""

from dataclasses import dataclass
from typing import ClassVar

from tranche.policies.base import PooledPolicy, Rank
from tranche.state.cluster import ClusterState
from tranche.state.entities import JobState


@dataclass(frozen=True, slots=True)
class Srtf(PooledPolicy):
    """Least remaining time first; a running job makes way for one with less left."""

    name: ClassVar[str] = "srtf"
    source: ClassVar[str] = "Shortest remaining time first, preemptive (Schrage 1968; baseline of Tiresias, NSDI 2019)"
    preemptive: ClassVar[bool] = True
    behind: ClassVar[str] = "which has less time left"

    def rank(self, state: JobState, cluster: ClusterState, now: float) -> Rank:
        """The rest of the job in seconds on all its workers."""
        return (state.worker_seconds(now) / state.job.width, 0.0)

    def rank_decrease_per_second(self, state: JobState, now: float) -> float:
        """Seconds of rest that pass in a second."""
        return state.training_rate(now) / state.job.width
