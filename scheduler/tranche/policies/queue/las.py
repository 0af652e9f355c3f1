"""Least attained service first, in classes that double: for jobs of unknown length.

Source: two-dimensional LAS of the simulator that the authors of Tiresias (Gu et al., NSDI 2019) published [C]; classes
at powers of two instead of a few queues are the multi-level feedback of Nuyens and Wierman, The foreground-background
queue, Perf. Eval. 65(3), 2008 [R]. [I] the first class and the factor.
"""

from dataclasses import dataclass
from math import log
from typing import ClassVar

from tranche.policies.base import PolicyTraits, PooledPolicy, Rank
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.remaining_work import NEARLY


@dataclass(frozen=True, slots=True)
class Las(PooledPolicy):
    """Least attained GPU-seconds first, by classes first·factor^i; in a class the earlier submission."""

    name: ClassVar[str] = "las"
    source: ClassVar[str] = (
        "Least attained service (GPU-seconds) first, after the authors' simulator of Tiresias [C] (Gu et al., NSDI "
        "2019), in classes that double [I]"
    )
    traits: ClassVar[PolicyTraits] = PolicyTraits(precedence_reason="which has attained less service", preemptive=True)

    first: float = 1024.0
    """GPU-seconds of the first class."""
    factor: float = 2.0
    """Ratio of the limits of a class and the one before."""

    def __post_init__(self) -> None:
        PooledPolicy.__post_init__(self)
        if not (self.first > 0 and self.factor > 1):
            raise ValueError("las needs first > 0 and factor > 1")

    def level(self, state: JobState, cluster: ClusterState, now: float) -> int:
        """Return the number of class limits that the job has passed."""
        return self.level_at(state.attained_gpu_seconds(now))

    def level_at(self, gpu_seconds: float) -> int:
        """Return the class of a job that has attained this service."""
        attained = gpu_seconds + NEARLY
        return 0 if attained < self.first else 1 + int(log(attained / self.first) / log(self.factor) + 1e-12)

    def rank(self, state: JobState, cluster: ClusterState, now: float) -> Rank:
        """Return the class."""
        return (float(state.level), 0.0)

    def next_rank_change(self, state: JobState, cluster: ClusterState, now: float) -> float | None:
        """Return when the job reaches the next limit if it runs on."""
        return state.reaches(self.first * self.factor**state.level, now)
