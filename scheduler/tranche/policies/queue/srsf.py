"""Shortest remaining service first: remaining time × GPUs, preemptive.

Source: the schedule shortest-gpu of the simulator that the authors of Tiresias (Gu et al., NSDI 2019) published [C];
its name is recalled from that paper, which was not read [R].
"""

from dataclasses import dataclass
from typing import ClassVar

from tranche.policies.base import PolicyTraits, PooledPolicy, Rank
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.remaining_work import ledger_seconds


@dataclass(frozen=True, slots=True)
class Srsf(PooledPolicy):
    """Least remaining GPU-seconds first; a running job makes way for one with less left."""

    name: ClassVar[str] = "srsf"
    source: ClassVar[str] = (
        "Shortest remaining service (time × GPUs) first, preemptive, after the authors' simulator of Tiresias [C] (Gu "
        "et al., NSDI 2019)"
    )
    traits: ClassVar[PolicyTraits] = PolicyTraits(precedence_reason="which has less work left", preemptive=True)

    def rank(self, state: JobState, cluster: ClusterState, now: float) -> Rank:
        """Return the remaining GPU-seconds of the job."""
        return (ledger_seconds(state, now) * state.job.gpus, 0.0)

    def rank_decrease_per_second(self, state: JobState, now: float) -> float:
        """Return the decrease of remaining GPU-seconds per second."""
        return state.training_rate(now) * state.job.gpus
