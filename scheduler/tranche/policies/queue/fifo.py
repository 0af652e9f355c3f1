"""First in, first out: the baseline that every user compares with.

Strict: the head of the queue takes the next free slots, and the jobs behind it wait even if they would fit. Nothing is
preempted. A chunked job counts as served when all its chunks have a worker. With ``workers=30`` it is the comparator of
OASiS (INFOCOM 2018) [P], which gives each job a fixed number of workers from 1 to 30; [I] best fit places them, where
OASiS goes round all servers, and a job that uses fewer workers has these.
"""

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from tranche.policies.base import PolicyTraits, PooledPolicy, Rank
from tranche.policies.seeded_choice import uniform
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState


@dataclass(frozen=True, slots=True)
class Fifo(PooledPolicy):
    """Arrival order, head-of-line blocking, no preemption."""

    name: ClassVar[str] = "fifo"
    source: ClassVar[str] = "First in, first out with head-of-line blocking (the default of most cluster schedulers)"
    traits: ClassVar[PolicyTraits] = PolicyTraits(precedence_reason="which came earlier", head_of_line_blocking=True)

    workers: float = 0.0
    """Each chunked job has a number of workers on nodes that is drawn uniformly from 1 to this number; 0: as many as it
    can use."""

    def __post_init__(self) -> None:
        PooledPolicy.__post_init__(self)
        if not (self.workers >= 0 and self.workers.is_integer()):
            raise ValueError(f"fifo needs a whole number of workers, at least 0, not {self.workers:g}")

    @property
    def draws(self) -> bool:
        """Whether the seed decides: with the option `workers`."""
        return self.workers > 0

    def worker_limit(self, state: JobState, cluster: ClusterState) -> int | None:
        """Return the number of workers drawn for the job by seed and uid."""
        drawn = uniform(cluster.seed, "workers", state.job.uid)
        return ceil(self.workers * drawn) if self.workers else None

    def rank(self, state: JobState, cluster: ClusterState, now: float) -> Rank:
        """Return the same rank for all jobs: ties go to the earlier submission."""
        return (0.0, 0.0)
