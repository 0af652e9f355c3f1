"""A reference that cannot be deployed: one pool of all GPUs, data everywhere at once, the least work left first.

Source: ours [I]: SRPT over jobs, as if all sites were one and data movement were free. The difference to late binding
to sites is the cost of data movement.
"""

from dataclasses import dataclass
from typing import ClassVar

from tranche.policies.base import PolicyTraits, QueuePolicy, Rank
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState


@dataclass(frozen=True, slots=True)
class SrptPool(QueuePolicy):
    """Least remaining GPU-seconds first, on any free GPU, with every preemption and every move free of charge."""

    name: ClassVar[str] = "srpt-pool"
    source: ClassVar[str] = "ours [I]: a reference with free data moves, for the simulator only"
    traits: ClassVar[PolicyTraits] = PolicyTraits(
        precedence_reason="which has less work left",
        preemptive=True,
        recoverable=False,
        free_data_movement=True,
    )

    def rank(self, state: JobState, cluster: ClusterState, now: float) -> Rank:
        """Return the remaining GPU-seconds of the job."""
        return (state.worker_seconds(now) * state.job.gpus, 0.0)

    def rank_decrease_per_second(self, state: JobState, now: float) -> float:
        """Return the decrease of remaining GPU-seconds per second."""
        return state.training_rate(now) * state.job.gpus
