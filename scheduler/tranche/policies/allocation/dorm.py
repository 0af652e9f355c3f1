"""Dorm-like: the cluster as full as possible, shares near those of DRF, few running jobs changed at a time.

Source: named after Dorm (Sun, Wen, Duong, Yan, 2017), which was not read; OASiS (INFOCOM 2018, arXiv 1801.00936)
describes it in one sentence as a comparator [P]: utilisation is maximized under constraints of fairness and of
adjustment cost. The programme is ours [I]: on arrival and completion, maximize ``Σ_j Σ_r d_jr n_j / C_r`` subject to
the capacities, 1 ≤ n_j ≤ most, ``Σ_j |share_j − DRF share_j| ≤ slack · jobs · mean DRF share``, and at most
``⌈changes · running⌉`` running jobs with another n_j. It is solved greedily by gain, since no solver is installed with
the product: every waiting job gets one worker, then workers move from the job furthest above its DRF share to the one
furthest below, until the second limit holds; what is free then goes to the greatest gain that keeps it. If no such
distribution is found, the limit of changes is given up first, then that of shares.
"""

from dataclasses import dataclass, field
from math import ceil, inf
from typing import ClassVar

from tranche.policies.allocation.allocation_policy import DistributingPolicy
from tranche.policies.allocation.draft import Draft, node_runs
from tranche.policies.base import PolicyTraits, PooledPolicy
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState

NEARLY = 1e-9
"""Tolerance as a part of a share: rounding may exceed a limit by this."""


@dataclass(frozen=True, slots=True)
class Dorm(DistributingPolicy):
    """Greatest utilisation within limits of unfairness and of changes to running jobs."""

    name: ClassVar[str] = "dorm"
    source: ClassVar[str] = (
        "Dorm-like [I]: utilisation within limits of fairness and change, after one sentence of OASiS [P], greedy"
    )
    traits: ClassVar[PolicyTraits] = PolicyTraits(
        precedence_reason="whose share is further below its fair one, or which came earlier",
        uses_weights=True,
        preemptive=True,
        allocates_workers=True,
    )

    slack: float = 0.2
    """Largest distance of shares from those of DRF, summed over jobs, in mean DRF shares a job."""
    changes: float = 0.2
    """Largest part of the running jobs whose number of workers may change at a time."""

    def __post_init__(self) -> None:
        PooledPolicy.__post_init__(self)
        if not (0 <= self.slack < inf and 0 <= self.changes < inf):
            raise ValueError("dorm needs finite slack ≥ 0 and changes ≥ 0")

    def allocate_workers(self, cluster: ClusterState, now: float) -> Draft:
        """Return an allocation within both limits; else within that of shares; else as near to that as was found."""
        fair = fair_units(Draft(cluster, now))
        first = self._attempt(Draft(cluster, now), fair, limited=True)
        if first.unfairness() <= first.most_unfair + NEARLY:
            return first.draft
        second = self._attempt(Draft(cluster, now), fair, limited=False)
        return second.draft if second.unfairness() < first.unfairness() - NEARLY else first.draft

    def _attempt(self, draft: Draft, fair: dict[str, int], *, limited: bool) -> "Attempt":
        running = {state.job.key: len(node_runs(state)) for state in draft.jobs if node_runs(state)}
        budget = ceil(self.changes * len(running) - NEARLY) if limited else inf
        attempt = Attempt(draft, fair, running, budget)
        attempt.most_unfair = self.slack * sum(fair[s.job.key] * draft.dominant(s) for s in draft.jobs)
        attempt.keep()
        attempt.begin()
        attempt.even_out()
        attempt.fill()
        return attempt


def fair_units(draft: Draft) -> dict[str, int]:
    """Return each job's units under DRF between jobs: the next goes to the least dominant share over weight [I]."""
    growing = list(draft.jobs)
    while growing:
        neediest = min(growing, key=lambda s: (draft.units(s) * draft.dominant(s) / s.job.weight, s.arrival))
        if not draft.add(neediest):
            growing.remove(neediest)
    return {state.job.key: draft.units(state) for state in draft.jobs}


@dataclass(slots=True, eq=False)
class Attempt:
    """A greedy search for an allocation."""

    draft: Draft
    fair: dict[str, int]
    running: dict[str, int]
    """Number of open windows by job."""
    budget: float
    """Number of these jobs that may change."""
    most_unfair: float = 0.0
    before: dict[str, int] = field(default_factory=dict)
    """Units of running jobs before any change."""

    def keep(self) -> None:
        """Keep all running workers."""
        for state in self.draft.jobs:
            while self.draft.workers(state) < self.running.get(state.job.key, 0) and self.draft.add(state):
                pass
            if state.job.key in self.running:
                self.before[state.job.key] = self.draft.units(state)

    def begin(self) -> None:
        """Give every waiting job one unit, in order of arrival; jobs furthest above their fair shares make room."""
        for state in self.draft.jobs:
            if state.job.key in self.running or self.draft.units(state):
                continue
            donors: list[JobState] = []
            while not self.draft.add(state):
                richest = self._richest()
                if richest is None or not self.draft.remove(richest):
                    for donor in reversed(donors):
                        self.draft.add(donor)
                    break
                donors.append(richest)

    def even_out(self) -> None:
        """Move workers from the job furthest above its fair share to the one furthest below, until the limit holds."""
        while (before := self.unfairness()) > self.most_unfair + NEARLY:
            richest = self._richest()
            if richest is None or not self.draft.remove(richest):
                return
            able = (s for s in self._changeable() if s is not richest and self._excess(s) < 0)
            below = sorted(able, key=lambda s: (self._excess(s), s.arrival))
            grown = next((state for state in below if self.draft.add(state)), None)
            if self.unfairness() >= before - NEARLY:
                if grown is not None:
                    self.draft.remove(grown)
                self.draft.add(richest)
                return

    def fill(self) -> None:
        """Give what is free to the greatest gain in use, while the limit of shares holds or is exceeded no further."""
        growing = list(self.draft.jobs)
        while growing:
            state = min(growing, key=lambda s: (-self.draft.part(s), self._excess(s), s.arrival))
            before = self.unfairness()
            able = self.draft.units(state) > 0 and self._may_change(state)
            grown = able and self.draft.add(state)
            if grown and self.unfairness() > max(before, self.most_unfair) + NEARLY:
                self.draft.remove(state)
                grown = False
            if not grown:
                growing.remove(state)

    def unfairness(self) -> float:
        """Return Σ |share − DRF share|."""
        return sum(abs(self._excess(state)) for state in self.draft.jobs)

    def changed(self) -> set[str]:
        """Return the running jobs whose number of workers differs from that before."""
        units = {state.job.key: self.draft.units(state) for state in self.draft.jobs}
        return {key for key, count in self.before.items() if units[key] != count}

    def _excess(self, state: JobState) -> float:
        return (self.draft.units(state) - self.fair[state.job.key]) * self.draft.dominant(state)

    def _may_change(self, state: JobState) -> bool:
        changed = self.changed() if state.job.key in self.before and self.budget < inf else set()
        return state.job.key not in self.before or state.job.key in changed or len(changed) < self.budget

    def _changeable(self) -> list[JobState]:
        changed = self.changed()
        free = len(changed) < self.budget
        return [s for s in self.draft.jobs if free or s.job.key not in self.before or s.job.key in changed]

    def _richest(self) -> JobState | None:
        """Return the job furthest above its fair share, of those that may lose a worker and keep one."""
        able = [s for s in self._changeable() if self.draft.units(s) > max(1, self.draft.least[s.job.key])]
        able = [state for state in able if self._excess(state) > 0]
        return max(able, key=lambda s: (self._excess(s), s.arrival), default=None)
