"""Tiresias-G: the discretized two-dimensional Gittins index, from the service that completed jobs needed.

Source: named after Tiresias-G (Gu et al., NSDI 2019), which was not read. The simulator that its authors published
ranks jobs by P/E of their attained service, largest first, from a history of jobs, with one Δ of 3,250 GPU-seconds, and
counts whole services in E [C]. The index here is the usual one of Gittins [R]: ``G(a) = sup_Δ P(S − a ≤ Δ | S > a) /
E[min(S − a, Δ) | S > a]``, S the service (GPUs × time) of a job. [I] it is computed at geometric levels of attained
service, with Δ from one level to a later one, and history is that of this cluster so far: until ten jobs have completed
all jobs rank alike. After a restart the planner reads the history from completed TrainingJobs again.
Worked numbers: docs/explanation/algorithms.md, "The others".
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

from tranche.policies.base import PolicyTraits, PooledPolicy, Rank
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.remaining_work import NEARLY
from tranche.state.tenant_usage import CompletedJob, last_review

LEVELS = 40
FIRST = 64.0
"""GPU-seconds of the first level; each level is √2 times the one before, so the last is at 64 · 2^20."""
FEWEST = 10
"""Number of completed jobs from which the index is computed."""
GROWTH = 1.1
"""Growth of the history after which the index is computed again, as a factor."""
LIMITS = (0.0, *(FIRST * 2 ** (level / 2) for level in range(LEVELS)))


@dataclass(frozen=True, slots=True)
class Gittins(PooledPolicy):
    """Largest Gittins index first, by levels of attained GPU-seconds."""

    name: ClassVar[str] = "gittins"
    source: ClassVar[str] = (
        "Gittins index of attained service from completed jobs [R], as in Tiresias-G (Gu et al., NSDI 2019), not read"
    )
    traits: ClassVar[PolicyTraits] = PolicyTraits(
        precedence_reason="which is likelier to complete soon by the history of this cluster",
        preemptive=True,
        ranks_by_group=True,
    )

    def level(self, state: JobState, cluster: ClusterState, now: float) -> int:
        """Return the number of levels that the job's attained service has passed."""
        return bisect_right(LIMITS, state.attained_gpu_seconds(now) + NEARLY) - 1

    def rank(self, state: JobState, cluster: ClusterState, now: float) -> Rank:
        """Return the negative index of the job's level."""
        revision = self.rank_epoch(cluster)
        if not revision:
            return (0.0, 0.0)
        return (-cluster.history.derive(self.name, revision, indices_of)[state.level], 0.0)

    def rank_group(self, state: JobState) -> str:
        """Return the level: jobs of one level have one index."""
        return str(state.level)

    def next_rank_change(self, state: JobState, cluster: ClusterState, now: float) -> float | None:
        """Return when the job passes the next level if it runs on."""
        return state.reaches(LIMITS[state.level + 1], now) if state.level < LEVELS else None

    def rank_epoch(self, cluster: ClusterState) -> int:
        """Return the number of completed jobs from which the index is computed."""
        return last_review(len(cluster.history), FEWEST, GROWTH)


def indices_of(completed: Sequence[CompletedJob]) -> tuple[float, ...]:
    """Return the Gittins index of each level from completed jobs."""
    return indices(sorted(job.gpu_seconds for job in completed))


def indices(history: Sequence[float]) -> tuple[float, ...]:
    """Return the Gittins index of each level, per GPU-second.

    Args:
        history: Service of completed jobs in GPU-seconds, in ascending order.
    """
    sums = list(accumulate(history, initial=0.0))
    index_by_level = []
    for level, attained in enumerate(LIMITS):
        first = bisect_right(history, attained)
        longer = len(history) - first
        best = 0.0
        for limit in (*LIMITS[level + 1 :], float("inf")):
            last = bisect_right(history, limit) if limit != float("inf") else len(history)
            expected_service = sums[last] - sums[first] - (last - first) * attained
            if last < len(history):
                expected_service += (len(history) - last) * (limit - attained)
            if longer and expected_service > 0:
                best = max(best, (last - first) / expected_service)
        index_by_level.append(best)
    return tuple(index_by_level)
