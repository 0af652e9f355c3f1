"""Base class of the policies that allocate all workers again at each arrival and completion.

Ours [I]: they also allocate again when nodes change, and when a job has fewer chunks left than workers. Only workers
on nodes are allocated: an unlimited site has no shortage, and a job that completes there sooner starts there, as under
every policy. What the allocation leaves unused goes to jobs that it leaves out, one worker each, so that no GPU is
idle while a job could use it.
"""

from abc import abstractmethod
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from tranche.policies.allocation.draft import Draft
from tranche.policies.base import PooledPolicy, Rank
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState


@dataclass(frozen=True, slots=True)
class DistributingPolicy(PooledPolicy):
    """Allocation of workers to jobs, in whose order they run; jobs without workers rank behind all others.

    Subclasses set the trait `allocates_workers`.
    """

    uses_tiers: ClassVar[bool] = False

    @abstractmethod
    def allocate_workers(self, cluster: ClusterState, now: float) -> Draft:
        """Return the number of workers that each job may have, and the windows that go on."""

    def tier(self, state: JobState, cluster: ClusterState) -> float:
        """Return 1 for jobs that the allocation left out, else 0."""
        return 1.0 if state.granted == 0 else 0.0

    def rank(self, state: JobState, cluster: ClusterState, now: float) -> Rank:
        """Return the job's place in the order of the allocation."""
        return (float(state.place), 0.0)

    def min_remaining_to_preempt(self, state: JobState, seconds: float, victim: JobState, now: float) -> float:
        """Return inf: only the allocation stops workers."""
        return inf
