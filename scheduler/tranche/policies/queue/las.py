"""Least attained service first, in classes that double: for jobs whose length nobody knows.

Source: two-dimensional LAS of Tiresias (Gu et al., NSDI 2019); classes at powers of two instead of a few
queues are the multi-level feedback of Nuyens and Wierman, The foreground-background queue, Perf. Eval. 65(3), 2008.
[I] the first class and the factor.
"""

from dataclasses import dataclass
from math import log
from typing import ClassVar

from tranche.policies.base import PooledPolicy, Rank
from tranche.state.cluster import ClusterState
from tranche.state.entities import JobState

NEARLY = 1e-6
"""GPU-seconds by which rounding may keep a job below a limit that it has reached."""


@dataclass(frozen=True, slots=True)
class Las(PooledPolicy):
    """Least attained GPU-seconds first, by classes first·factor^i; in a class the earlier submission."""

    name: ClassVar[str] = "las"
    source: ClassVar[str] = "Least attained service (GPU-seconds) first, classes of powers of two (Tiresias, NSDI 2019)"
    preemptive: ClassVar[bool] = True
    behind: ClassVar[str] = "which has attained less service"

    first: float = 1024.0
    """GPU-seconds of the first class."""
    factor: float = 2.0

    def __post_init__(self) -> None:
        PooledPolicy.__post_init__(self)
        if not (self.first > 0 and self.factor > 1):
            raise ValueError("las needs first > 0 and factor > 1")

    def level(self, state: JobState, cluster: ClusterState, now: float) -> int:
        """How many class limits the job has passed."""
        attained = state.attained_gpu_seconds(now) + NEARLY
        return 0 if attained < self.first else 1 + int(log(attained / self.first) / log(self.factor) + 1e-12)

    def rank(self, state: JobState, cluster: ClusterState, now: float) -> Rank:
        """The class."""
        return (float(state.level), 0.0)

    def next_rank_change(self, state: JobState, cluster: ClusterState, now: float) -> float | None:
        """When the job, if it runs on, reaches the next limit."""
        return state.reaches(self.first * self.factor**state.level, now)
