"""Shortest remaining service first: remaining time × GPUs, preemptive.

Source: Gu et al., Tiresias: A GPU Cluster Manager for Distributed Deep Learning, NSDI 2019 (SRSF).
"""

from dataclasses import dataclass
from typing import ClassVar

from tranche.policies.base import PooledPolicy, Rank
from tranche.state.cluster import ClusterState
from tranche.state.entities import JobState


@dataclass(frozen=True, slots=True)
class Srsf(PooledPolicy):
    """Least remaining GPU-seconds first; a running job makes way for one with less left."""

    name: ClassVar[str] = "srsf"
    source: ClassVar[str] = (
        "Shortest remaining service (time × GPUs) first, preemptive (Gu et al., Tiresias, NSDI 2019)"
    )
    preemptive: ClassVar[bool] = True
    behind: ClassVar[str] = "which has less work left"

    def rank(self, state: JobState, cluster: ClusterState, now: float) -> Rank:
        """The rest of the job in GPU-seconds."""
        return (state.worker_seconds(now) * state.job.gpus, 0.0)

    def rank_decrease_per_second(self, state: JobState, now: float) -> float:
        """GPU-seconds of rest that pass in a second."""
        return state.training_rate(now) * state.job.gpus
