"""A reference that cannot be deployed: one pool of all GPUs, data everywhere at once, the least work left first.

Source: ours [I]: SRPT over jobs, as if all sites were one and data moved for nothing. What late binding to sites gives
away to it is what data movement costs.
"""

from dataclasses import dataclass
from typing import ClassVar

from tranche.policies.base import QueuePolicy, Rank
from tranche.state.cluster import ClusterState
from tranche.state.entities import JobState


@dataclass(frozen=True, slots=True)
class SrptPool(QueuePolicy):
    """Least remaining GPU-seconds first, on any free GPU, with every preemption and every move free of charge."""

    name: ClassVar[str] = "srpt-pool"
    source: ClassVar[str] = "ours [I]: a reference with free data moves, for the simulator only"
    preemptive: ClassVar[bool] = True
    free_moves: ClassVar[bool] = True
    rebuilds: ClassVar[bool] = False
    behind: ClassVar[str] = "which has less work left"

    def rank(self, state: JobState, cluster: ClusterState, now: float) -> Rank:
        """The rest of the job in GPU-seconds."""
        return (state.worker_seconds(now) * state.job.gpus, 0.0)

    def rank_decrease_per_second(self, state: JobState, now: float) -> float:
        """GPU-seconds of rest that pass in a second."""
        return state.training_rate(now) * state.job.gpus
