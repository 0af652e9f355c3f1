"""Consolidation without end: a gang waits for the narrowest topology level that could hold it.

Source: ours [I], the comparator of `dally-like` with timers that are never over; all else is as there.
"""

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from tranche.policies.base import PolicyTraits
from tranche.policies.locality.most_delayed import TRAITS, MostDelayed
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState


@dataclass(frozen=True, slots=True)
class Consolidate(MostDelayed):
    """Timers without end: a gang waits for its narrowest feasible level."""

    name: ClassVar[str] = "consolidate"
    source: ClassVar[str] = "Gangs wait for the narrowest topology level that could hold them [I]: beside dally-like"
    traits: ClassVar[PolicyTraits] = TRAITS

    def seconds_to_accept(self, state: JobState, cluster: ClusterState, level: int, waited: float) -> float:
        """Return infinity for all levels wider than the narrowest feasible one."""
        return 0.0 if level <= cluster.narrowest_level(state) else inf
