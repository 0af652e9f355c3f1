"""First in, first out: the baseline that every user compares with.

Strict: the head of the queue takes the next free slots, and the jobs behind it wait even if they would fit. Nothing is
preempted. A chunked job counts as served when all its chunks have a worker.
"""

from dataclasses import dataclass
from typing import ClassVar

from tranche.policies.interfaces import PolicyTraits, PooledPolicy, Rank
from tranche.policies.jobs import JobState
from tranche.policies.states import ClusterState


@dataclass(frozen=True, slots=True)
class Fifo(PooledPolicy):
    """Arrival order, head-of-line blocking, no preemption."""

    name: ClassVar[str] = "fifo"
    source: ClassVar[str] = "First in, first out with head-of-line blocking (the default of most cluster schedulers)"
    traits: ClassVar[PolicyTraits] = PolicyTraits(precedence_reason="which came earlier", head_of_line_blocking=True)

    def rank(self, state: JobState, cluster: ClusterState, now: float) -> Rank:
        """Return the same rank for all jobs: ties go to the earlier submission."""
        return (0.0, 0.0)
