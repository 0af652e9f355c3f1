"""Themis-like: the job with the greatest ratio of its completion time to that alone on the cluster comes first.

Source: reconstructed [R] after Mahajan et al., Themis, NSDI 2020, recalled and not read: finish-time fairness ``ρ =
(elapsed + remaining at the present share) / duration alone``; what is free goes to the greatest ρ, and workers hold a
GPU for a lease. [I] the lease, 20 minutes from the start of a worker's window, after which it may be stopped for a job
whose ρ is greater than that of the victim without the worker; a job without workers is taken to have one, or all of its
gang; alone, it would have its most workers; ρ counts in steps of 10 %, so that the number of times that a waiting job
is ranked again grows with the logarithm of its wait; jobs of one step run by arrival. Themis' auctions, in which jobs
may hide what they know, are not here.
"""

from dataclasses import dataclass
from math import floor, inf, isfinite, log
from typing import ClassVar

from tranche.policies.base import PolicyTraits, PooledPolicy, Rank
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.window import TrackedWindow

STEP = 1.1
"""Factor between two steps of ρ."""
NEARLY = 1e-6
"""Tolerance in steps or seconds: a timer may fire this much too early by rounding."""
SHORTEST_STEP_SECONDS = 1.0
"""Least time between two changes of a waiting job's rank."""
MAX_STEPS = 100
"""Largest number of steps: a factor of 13,780."""


@dataclass(frozen=True, slots=True)
class Themis(PooledPolicy):
    """Greatest ratio of completion time to that alone first; running workers are safe for a lease."""

    name: ClassVar[str] = "themis"
    source: ClassVar[str] = (
        "Themis-like [R]: finish-time fairness with leases, reconstructed, recalled and not read (Mahajan et al., 2020)"
    )
    traits: ClassVar[PolicyTraits] = PolicyTraits(
        precedence_reason="which is further behind the completion time that it would have alone",
        preemptive=True,
    )

    lease: float = 1200.0
    """Time for which a worker is not stopped for another job, in seconds."""

    def __post_init__(self) -> None:
        PooledPolicy.__post_init__(self)
        if not (self.lease >= 0 and isfinite(self.lease)):
            raise ValueError("themis needs a finite lease ≥ 0")

    def rank(self, state: JobState, cluster: ClusterState, now: float) -> Rank:
        """Return the negative number of steps of ρ: the greatest ρ runs first."""
        return (-float(_steps(fairness_of(state, now))), 0.0)

    def level(self, state: JobState, cluster: ClusterState, now: float) -> int:
        """Return the number of workers whose leases are over, which may have to make way."""
        return sum(not self._is_leased(run, now) for run in state.runs.values())

    def next_rank_change(self, state: JobState, cluster: ClusterState, now: float) -> float | None:
        """Return when the next lease is over or ρ has risen by a step, whichever is first."""
        ends = [run.window.start + self.lease for run in state.runs.values() if self._is_leased(run, now)]
        step = _steps(fairness_of(state, now))
        rate = 1.0 - state.training_rate(now) / _share(state)
        if rate > NEARLY and step < MAX_STEPS:
            seconds = (STEP ** (step + 1) - fairness_of(state, now)) * max(state.ideal_seconds, NEARLY) / rate
            ends.append(now + max(SHORTEST_STEP_SECONDS, seconds))
        return min(ends, default=None)

    def min_remaining_to_preempt(self, state: JobState, seconds: float, victim: JobState, now: float) -> float:
        """Return -inf if the waiting job's priority class, or in the same one its ρ, is the greater one; else inf."""
        if state.job.priority != victim.job.priority:
            return -inf if state.job.priority > victim.job.priority else inf
        return -inf if _steps(fairness_of(state, now)) > _steps(fairness_of(victim, now)) else inf

    def may_preempt_window(self, state: JobState, victim: JobState, run: TrackedWindow, now: float) -> bool:
        """Return whether the lease is over and ρ of the victim without the window is still the smaller one.

        So the greatest ρ falls. A job of a higher priority class does not wait for leases.
        """
        if state.job.priority > victim.job.priority:
            return True
        after = fairness_of(victim, now, fewer=1)
        return not self._is_leased(run, now) and _steps(fairness_of(state, now)) > _steps(after)

    def _is_leased(self, run: TrackedWindow, now: float) -> bool:
        return now < run.window.start + self.lease - NEARLY


def finish_time_fairness(elapsed: float, remaining: float, alone: float) -> float:
    """Return ρ from the time since arrival, the time left at the present share, and the duration alone, in seconds."""
    return (elapsed + remaining) / max(alone, NEARLY)


def fairness_of(state: JobState, now: float, *, fewer: int = 0) -> float:
    """Return ρ of a job now, or as it would be with `fewer` workers less."""
    remaining = max(0.0, state.worker_seconds(now)) / _share(state, fewer)
    return finish_time_fairness(max(0.0, now - state.job.submitted), remaining, state.ideal_seconds)


def _share(state: JobState, fewer: int = 0) -> int:
    """Return the number of the job's workers less `fewer`, but at least the number that it would start with."""
    return max(state.job.min_available, sum(not run.closing for run in state.runs.values()) - fewer)


def _steps(ratio: float) -> int:
    return max(-MAX_STEPS, min(MAX_STEPS, floor(log(max(ratio, STEP**-MAX_STEPS)) / log(STEP) + NEARLY)))
