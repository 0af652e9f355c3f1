"""Policy selector: the order of the queue under which the last completed jobs would have had the least average JCT.

Source: ASET-like and Improper-RL-like. After the abstracts of ASET (arXiv 2301.13618), which chooses among policies by
the state of the cluster, and of Improper reinforcement learning (arXiv 2105.00210), which combines given policies in a
simulator [P]. [I] nothing is learned beforehand: the last completed jobs are replayed on the present GPUs in a model of
the queue under each member (`order_replay`), from ten completed jobs on, whenever their number has grown by a fifth,
together with those that were submitted before the last of them and have not completed.
One of two usual members decides before that, and unless another one was better by a margin. So the choice follows from
completed jobs and nodes alone. After a restart the planner reads the completed TrainingJobs again, and chooses alike as
long as none was deleted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from statistics import fmean
from typing import ClassVar

from tranche.policies.base import PolicyTraits, PooledPolicy, Rank
from tranche.policies.queue.order_replay import ORDERS, average_jct_seconds
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.remaining_work import completed_job
from tranche.state.tenant_usage import CompletedJob, last_review

FEWEST = 10
"""Number of completed jobs from which they are replayed; fewer say nothing about an order."""
GROWTH = 1.2
"""Growth of that number after which they are replayed again, as a factor."""


@dataclass(frozen=True, slots=True)
class Selector(PooledPolicy):
    """Order of the policy that would have been the best one for the last completed jobs."""

    name: ClassVar[str] = "selector"
    source: ClassVar[str] = (
        "ASET-like and Improper-RL-like, ours [I]: the policy that is the best one in a replay of completed jobs"
    )
    traits: ClassVar[PolicyTraits] = PolicyTraits(
        precedence_reason="which the chosen policy puts first", preemptive=True
    )

    members: str = "srsf+las+srtf+fifo-skip"
    """Policies to choose from, joined by `+`: two or more of fifo-skip, las, sjf, srsf and srtf. The first one is usual
    where most completed jobs (before the first completion, most unfinished ones) declare their sizes, the second one
    where they do not."""
    jobs: float = 2000.0
    """Number of completed jobs that are replayed, the last ones, and at most as many that have not completed."""
    margin: float = 0.02
    """Share of the usual policy's average JCT by which that of another one must be less for a change to it."""

    def __post_init__(self) -> None:
        PooledPolicy.__post_init__(self)
        names = self.members.split("+")
        unknown = [name for name in names if name not in ORDERS]
        if unknown or len(set(names)) < max(2, len(names)):
            raise ValueError(f"selector chooses among different ones of {', '.join(ORDERS)}, not {self.members!r}")
        if not (1 <= self.jobs < inf and 0 <= self.margin < 1):
            raise ValueError("selector needs finite jobs of at least 1, and a margin of at least 0 and less than 1")

    def rank_epoch(self, cluster: ClusterState) -> int:
        """Return the number of the member that decides."""
        count = last_review(cluster.history.observed, 1, GROWTH)
        if not count:
            return _usual(state.job.size_declared for state in cluster.jobs.values() if state.active)
        return cluster.history.derive(self.name, count, partial(self._review, cluster), cluster.total_gpus)

    def _review(self, cluster: ClusterState, completed: Sequence[CompletedJob], gpus: int) -> int:
        last = completed[-int(self.jobs) :]
        return self.best(last, unfinished(cluster, completed)[-int(self.jobs) :], gpus)

    def best(self, completed: Sequence[CompletedJob], waiting: Sequence[CompletedJob], gpus: int) -> int:
        """Return the number of the member that is the best one for these jobs.

        Args:
            completed: Completed jobs.
            waiting: Jobs that have not completed. One whose size is not declared is taken to be as long as the
                completed ones are on average: without these jobs, those that an order starves would not count.
            gpus: Number of GPUs of the cluster.
        """
        usual = _usual(job.size_declared for job in completed)
        if len(completed) < FEWEST:
            return usual
        mean = fmean(job.gpu_seconds / job.gpus for job in completed)
        assumed = [
            job._replace(gpu_seconds=job.nominal_gpu_seconds if job.size_declared else mean * job.gpus)
            for job in waiting
        ]
        averages = [average_jct_seconds([*completed, *assumed], gpus, name) for name in self.members.split("+")]
        shortest = min(averages)
        return averages.index(shortest) if shortest < (1 - self.margin) * averages[usual] else usual

    def chosen(self, state: JobState) -> PooledPolicy:
        """Return the policy by which the job was ranked."""
        return ORDERS[self.members.split("+")[state.rank_epoch]]

    def rank(self, state: JobState, cluster: ClusterState, now: float) -> Rank:
        """Return the rank of the chosen policy."""
        return self.chosen(state).rank(state, cluster, now)

    def precedence_reason(self, first: JobState, second: JobState, cluster: ClusterState, now: float) -> str:
        """Return the reason of the chosen policy."""
        return self.chosen(first).precedence_reason(first, second, cluster, now)

    def rank_decrease_per_second(self, state: JobState, now: float) -> float:
        """Return the decrease of the rank of the chosen policy."""
        return self.chosen(state).rank_decrease_per_second(state, now)

    def level(self, state: JobState, cluster: ClusterState, now: float) -> int:
        """Return the level of the chosen policy."""
        return self.chosen(state).level(state, cluster, now)

    def next_rank_change(self, state: JobState, cluster: ClusterState, now: float) -> float | None:
        """Return when the rank of the chosen policy changes."""
        return self.chosen(state).next_rank_change(state, cluster, now)

    def min_remaining_to_preempt(self, state: JobState, seconds: float, victim: JobState, now: float) -> float:
        """Return the bound of the chosen policy; inf if that policy stops no worker."""
        chosen = self.chosen(state)
        return chosen.min_remaining_to_preempt(state, seconds, victim, now) if chosen.traits.preemptive else inf


def _usual(declared: Iterable[bool]) -> int:
    """Return the number of the usual member for jobs, of each of which it is given whether it declares its size."""
    flags = list(declared)
    return int(2 * sum(flags) < len(flags))


def unfinished(cluster: ClusterState, completed: Sequence[CompletedJob]) -> list[CompletedJob]:
    """Return the jobs submitted before the last one of these, and not completed with them, in order of submission.

    Jobs that have completed since count as well, so that a planner that restarts later finds the same ones.
    """
    until = max((job.submitted for job in completed), default=-inf)
    active = (completed_job(state, 0.0) for state in cluster.jobs.values() if state.active)
    jobs = [job for job in (*cluster.history.completed[len(completed) :], *active) if job.submitted <= until]
    return sorted(jobs, key=lambda job: job.submitted)
