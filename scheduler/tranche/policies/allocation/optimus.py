"""Optimus-like: the next worker goes to the job whose completion it brings forward most, for what it takes.

Source: reconstructed [R] after Peng, Bao, Chen, Wu and Guo, Optimus, EuroSys 2018, recalled and not read: every job
gets one worker, then the next one goes to the greatest ``rem/f(n) − rem/f(n+1)`` per unit of its dominant resource,
rem the work left, f the speed with n workers. [I] workers are distributed at arrivals and completions, not at a fixed
interval; jobs that run keep one worker each, the others get their first in order of arrival; a gang is one unit and
never grows; ``f(n) = n/(1 + contention · n)`` workers, linear by default, since workers of a chunked job train apart
from each other. Parameter servers are as many as the job asks for: Optimus chooses their number, too.
"""

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import isfinite
from typing import ClassVar

from tranche.policies.allocation.allocation_policy import DistributingPolicy
from tranche.policies.allocation.draft import Draft, cloud_workers
from tranche.policies.base import PolicyTraits, PooledPolicy
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState


@dataclass(frozen=True, slots=True)
class Optimus(DistributingPolicy):
    """One worker each, then the next to the greatest marginal gain per unit of dominant resource."""

    name: ClassVar[str] = "optimus"
    source: ClassVar[str] = (
        "Optimus-like [R]: workers by marginal gain, reconstructed, recalled and not read (Peng et al., EuroSys 2018)"
    )
    traits: ClassVar[PolicyTraits] = PolicyTraits(
        precedence_reason="which gains more by another worker, or came earlier",
        preemptive=True,
        allocates_workers=True,
    )

    contention: float = 0.0
    """How much each worker slows the others down at the parameter servers: f(n) = n/(1 + contention · n)."""

    def __post_init__(self) -> None:
        PooledPolicy.__post_init__(self)
        if not (self.contention >= 0 and isfinite(self.contention)):
            raise ValueError("optimus needs a finite contention ≥ 0")

    def speed(self, workers: int) -> float:
        """Return f(n), in workers without contention."""
        return workers / (1.0 + self.contention * workers)

    def gain(self, rest: float, workers: int) -> float:
        """Return by how many seconds another worker brings the completion forward.

        Args:
            rest: Remaining work, in seconds of one worker without contention.
            workers: Number of workers that the job has, at least one.
        """
        return rest / self.speed(workers) - rest / self.speed(workers + 1)

    def allocate_workers(self, cluster: ClusterState, now: float) -> Draft:
        """Give each job one unit, running jobs first, in order of arrival; then more by gain while there is room."""
        draft = Draft(cluster, now)
        for state in sorted(draft.jobs, key=lambda state: not state.runs):
            if not draft.units(state):
                draft.add(state)
        heap = [(self._order(draft, state), state.arrival, state) for state in draft.jobs if draft.units(state)]
        heapify(heap)
        while heap:
            _, arrival, state = heappop(heap)
            if draft.add(state):
                heappush(heap, (self._order(draft, state), arrival, state))
        return draft

    def _order(self, draft: Draft, state: JobState) -> float:
        gain = self.gain(max(0.0, state.worker_seconds(draft.now)), draft.units(state) + cloud_workers(state))
        return -gain / max(draft.dominant(state), 1e-12)
