"""Dally-like: gangs wait for close places, but no longer than their delay timers; the most delayed job goes first.

Source: design ours [I] after the abstract of GPU Cluster Scheduling for Network-Sensitive Deep Learning, arXiv
2401.16492: delay scheduling for consolidation, network-sensitive preemption, and a tuner of the timers. Of the paper,
only the abstract was read; all formulas are ours.
A gang declines places wider than its narrowest topology level until its timers, which add up, are over. Jobs behind it
are served meanwhile. Order, moves and preemption: `tranche.policies.locality.most_delayed`.
Worked numbers: docs/reference/systems/dally-like.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tranche.policies.base import PolicyTraits, PooledPolicy
from tranche.policies.locality.delay_timer import accepts, deadlines, effective_timers, next_deadline, size_class
from tranche.policies.locality.most_delayed import TRAITS, MostDelayed, batches_left, level_seconds
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState


@dataclass(frozen=True, slots=True)
class Dally(MostDelayed):
    """Delay timers by class of jobs and topology level, set by observation."""

    name: ClassVar[str] = "dally-like"
    source: ClassVar[str] = "Dally-like [I]: design ours after the abstract of arXiv 2401.16492"
    traits: ClassVar[PolicyTraits] = TRAITS

    timers: str = "auto"
    """`auto`: the mean of the last observed waits for capacity at a level. Else fixed timers in seconds, of the
    narrowest level of the cluster and the next wider ones; the last one counts for all wider levels, as in
    `timers=100/50`."""

    def __post_init__(self) -> None:
        PooledPolicy.__post_init__(self)
        if self.timers != "auto" and not all(timer >= 0 for timer in self._fixed()):
            raise ValueError(f"{self.name} needs timers=auto or timers ≥ 0, not {self.timers!r}")

    def _fixed(self) -> Sequence[float]:
        try:
            return [float(part) for part in self.timers.split("/")]
        except ValueError:
            raise ValueError(f"{self.name} needs timers=auto or timers ≥ 0, not {self.timers!r}") from None

    def seconds_to_accept(self, state: JobState, cluster: ClusterState, level: int, waited: float) -> float:
        """Return the rest of the timers of the narrower levels, none of them above what the job gains there."""
        first, widest = cluster.narrowest_level(state), cluster.places.topology.widest
        if level <= first:
            return 0.0
        narrower = range(first, widest)
        if self.timers == "auto":
            number = size_class(state.job_gpus)
            timers = [cluster.locality.waits.timer(number, lower) for lower in narrower]
        else:
            fixed = self._fixed()
            timers = [fixed[min(lower, len(fixed) - 1)] for lower in narrower]
        seconds = [level_seconds(state, cluster, each) for each in range(first, widest + 1)]
        limits = deadlines(effective_timers(timers, seconds, batches_left(state, state.idle_since)))
        offered = level - first
        return 0.0 if accepts(offered, limits, waited) else next_deadline(offered, limits, waited)
