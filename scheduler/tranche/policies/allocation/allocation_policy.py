"""What the policies share that distribute all workers anew at each arrival and completion.

Ours [I]: they also distribute anew when nodes change, and when a job has fewer chunks left than workers. Only workers
on nodes are distributed: at an unlimited site nothing is scarce, and what completes there sooner starts there, as under
every policy. What the distribution leaves unused goes to jobs that it leaves out, one worker each, so that no GPU is
idle while a job could use it.
"""

from abc import abstractmethod
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from tranche.policies.allocation.draft import Draft
from tranche.policies.base import PooledPolicy, Rank
from tranche.state.cluster import ClusterState
from tranche.state.entities import JobState


@dataclass(frozen=True, slots=True)
class DistributingPolicy(PooledPolicy):
    """Jobs get the workers that the last distribution gave them; those left out rank behind all others."""

    preemptive: ClassVar[bool] = True
    distributes: ClassVar[bool] = True
    rebuilds: ClassVar[bool] = False
    """The last distribution is not in status."""

    @abstractmethod
    def allocate_workers(self, cluster: ClusterState, now: float) -> Draft:
        """Who is to have how many workers, and which windows go on."""

    def tier(self, state: JobState, cluster: ClusterState) -> float:
        """Behind all others, those who were left out."""
        return 1.0 if state.granted == 0 else 0.0

    def rank(self, state: JobState, cluster: ClusterState, now: float) -> Rank:
        """The order of the distribution."""
        return (float(state.place), 0.0)

    def min_remaining_to_preempt(self, state: JobState, seconds: float, victim: JobState, now: float) -> float:
        """Never: only the distribution stops workers."""
        return inf
