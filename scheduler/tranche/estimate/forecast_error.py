"""Intervals around planned starts and completions, from the errors of earlier plans.

The score of a plan is log((actual - planned_at) / (planned - planned_at)) / σ, where `planned_at` is the time of the
job's first plan and σ the standard deviation of the logarithm of its size, or UNKNOWN_SIGMA for a start. Two bounds
follow the 10 % and the 90 % quantile of the scores: each score moves a bound by a fixed step towards it, so that in
the long run a tenth of the scores lies beyond each bound, whatever their distribution is [D of quantile tracking:
Angelopoulos, Candès and Tibshirani, Conformal PID control for time series prediction, 2023, recalled, not read; the
score, the step and the start are ours, I]. An interval costs two exponentials, and no plan is simulated twice.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp, log
from statistics import NormalDist
from typing import Literal

from tranche.estimate.job_size import UNKNOWN_SIGMA
from tranche.model import Interval

OUTSIDE_SHARE = 0.1
"""Share of the outcomes that lie before an interval, and as much after it."""
STEP = 0.1
"""Change of a bound by a score beyond it, in standard deviations, divided by 1 - OUTSIDE_SHARE; chosen on two logs."""
EXACT = 1e-9
"""Distance of a score beyond a bound up to which it counts as a rounding error."""
WIDEST = 6.0
"""Largest absolute value of a bound, so that outliers cannot move it without limit."""
SHORTEST_SECONDS = 1.0
"""Shortest time from a plan to a planned time from which a score is computed."""
MAX_PLANS = 100_000
"""Number of first plans that are kept, the latest ones."""

Verdict = Literal["inside", "early", "late"]


@dataclass(slots=True)
class ScoreBounds:
    """Bounds between which 80 % of the scores lie; at first those of a standard normal variable."""

    low: float = NormalDist().inv_cdf(OUTSIDE_SHARE)
    high: float = -NormalDist().inv_cdf(OUTSIDE_SHARE)

    def observe(self, score: float) -> None:
        """Move both bounds by the score of one outcome."""
        low = self.low + STEP * (OUTSIDE_SHARE - (score < self.low - EXACT))
        high = self.high - STEP * (OUTSIDE_SHARE - (score > self.high + EXACT))
        self.low, self.high = max(-WIDEST, min(0.0, low)), min(WIDEST, max(0.0, high))


@dataclass(frozen=True, slots=True)
class FirstPlan:
    """First planned times of a job, in seconds of the planner's clock."""

    planned_at: float
    """Time of the plan."""
    start: float
    completion: float
    sigma: float
    interval: Interval
    """Interval of the completion."""


@dataclass(slots=True)
class ForecastErrors:
    """Errors of first plans, and the intervals that follow from them."""

    starts: ScoreBounds = field(default_factory=ScoreBounds)
    completions: ScoreBounds = field(default_factory=ScoreBounds)
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    """Completed jobs by the place of their completion in their first interval."""
    _plans: dict[str, FirstPlan] = field(default_factory=dict)
    _waiting: set[str] = field(default_factory=set)
    """Jobs that have not started, and whose first planned start was after the plan itself."""

    def planned(self, job: str, now: float, start: float, completion: float, sigma: float) -> None:
        """Record the plan of a job, unless it has one already."""
        if job in self._plans:
            return
        self._plans[job] = FirstPlan(now, start, completion, sigma, self.completion(now, completion, sigma))
        if start - now >= SHORTEST_SECONDS:
            self._waiting.add(job)
        if len(self._plans) > MAX_PLANS:
            self.forget(next(iter(self._plans)))

    def started(self, job: str, at: float) -> None:
        """Learn from the start of a job's first worker."""
        if job in self._waiting:
            self._waiting.discard(job)
            plan = self._plans[job]
            self.starts.observe(_score(plan.planned_at, plan.start, at, UNKNOWN_SIGMA))

    def completed(self, job: str, at: float) -> Verdict | None:
        """Learn from the completion of a job; return where it lies in the first interval, None if it has no score."""
        plan = self._plans.get(job)
        self.forget(job)
        if plan is None or plan.completion - plan.planned_at < SHORTEST_SECONDS:
            return None
        self.completions.observe(_score(plan.planned_at, plan.completion, at, plan.sigma))
        verdict = plan.interval.verdict(at)
        self.verdicts[verdict] += 1
        return verdict

    def forget(self, job: str) -> None:
        """Forget a job that was removed."""
        self._plans.pop(job, None)
        self._waiting.discard(job)

    def start(self, now: float, planned: float) -> Interval:
        """Return the interval of a planned start."""
        return _interval(self.starts, now, planned, UNKNOWN_SIGMA)

    def completion(self, now: float, planned: float, sigma: float) -> Interval:
        """Return the interval of a planned completion of a job; sigma is that of the logarithm of its size."""
        return _interval(self.completions, now, planned, sigma)

    def bounds(self) -> dict[str, float]:
        """Return what was learned, by name; empty if nothing was."""
        by_name = {"start": self.starts, "completion": self.completions}
        if all(score_bounds == ScoreBounds() for score_bounds in by_name.values()):
            return {}
        return {
            f"{name}.{side}": getattr(score_bounds, side)
            for name, score_bounds in by_name.items()
            for side in ("low", "high")
        }

    def recall(self, bounds: Mapping[str, float]) -> None:
        """Restore what an earlier planner has learned; unknown names and values out of range are ignored."""
        for name, score_bounds in (("start", self.starts), ("completion", self.completions)):
            low, high = bounds.get(f"{name}.low", score_bounds.low), bounds.get(f"{name}.high", score_bounds.high)
            if -WIDEST <= low <= 0.0 <= high <= WIDEST:
                score_bounds.low, score_bounds.high = low, high


def _score(planned_at: float, planned: float, actual: float, sigma: float) -> float:
    shortest = SHORTEST_SECONDS * 1e-3
    return log(max(shortest, actual - planned_at) / max(shortest, planned - planned_at)) / sigma


def _interval(bounds: ScoreBounds, now: float, planned: float, sigma: float) -> Interval:
    seconds_left = max(0.0, planned - now)
    if not seconds_left:
        return Interval(planned, planned)
    return Interval(now + seconds_left * exp(bounds.low * sigma), now + seconds_left * exp(bounds.high * sigma))
