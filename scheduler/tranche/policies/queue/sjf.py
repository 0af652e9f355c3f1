"""Shortest job first, by the time that the job would take alone; nothing that runs is preempted.

Source: Conway, Maxwell, Miller, Theory of Scheduling, 1967 (shortest processing time), recalled and not read [R].
"""

from dataclasses import dataclass
from typing import ClassVar

from tranche.policies.base import PolicyTraits, PooledPolicy, Rank
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.remaining_work import ledger_seconds


@dataclass(frozen=True, slots=True)
class Sjf(PooledPolicy):
    """Shortest expected duration first, without preemption; every job that fits starts."""

    name: ClassVar[str] = "sjf"
    source: ClassVar[str] = "Shortest job first, non-preemptive (Conway, Maxwell, Miller 1967, recalled [R])"
    traits: ClassVar[PolicyTraits] = PolicyTraits(precedence_reason="which is shorter")

    def rank(self, state: JobState, cluster: ClusterState, now: float) -> Rank:
        """Return the remaining seconds of the job on all its workers."""
        return (ledger_seconds(state, now) / state.job.width, 0.0)
