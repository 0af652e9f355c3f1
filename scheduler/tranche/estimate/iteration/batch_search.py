"""Grid search over the global batch and the smallest part of it, LOFT-like: one candidate per period, kept if it pays.

Source: see `tranche.estimate.iteration.batch_size`. [P, abstract] The search is adaptive and keeps the accuracy. The
grid, the order and the two conditions are ours [I]: the global batch times 0.9, 1 and 1.1 (if the job allows that), and
smallest parts of 1, B/8n and B/4n samples. Candidates come in the order of modelled seconds per sample. A candidate is
kept if its period took less time per sample and its losses are at most 2 % above the course of the period before.
That course is a power law of the samples seen, fitted by least squares of logarithms, because a straight line through
a loss that flattens would refuse every candidate.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import exp, log

from tranche.estimate.iteration.batch_size import InfeasibleBatchError, SampleTime, slowest_seconds, split

FACTORS = (0.9, 1.0, 1.1)
"""Global batches to try, as multiples of the present one."""
LARGEST_RISE = 1.02
"""Largest mean ratio of a candidate's losses to the course of the period before."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Point of the grid."""

    total: int
    """Global batch B in samples."""
    smallest: int = 1
    """Smallest part of a worker in samples."""


@dataclass(frozen=True, slots=True)
class Period:
    """Measurement of one period of iterations."""

    seconds_per_sample: float
    losses: tuple[tuple[float, float], ...]
    """Pairs of samples seen since the start of the training, and loss; both above 0."""


@dataclass(frozen=True, slots=True)
class BatchSearch:
    """State of the search between two periods; `after` returns the next one."""

    kept: Setting
    """Best setting so far."""
    trial: Setting | None = None
    """Candidate of the present period; None: the kept setting runs."""
    measured: Period | None = None
    """Last period of the kept setting."""
    refused: frozenset[Setting] = field(default_factory=frozenset)
    """Candidates that were tried against the kept setting and reverted."""

    @property
    def setting(self) -> Setting:
        """Setting to run in the present period."""
        return self.trial or self.kept

    def after(self, period: Period, workers: Sequence[SampleTime], *, total_may_change: bool = False) -> "BatchSearch":
        """Return the search after a period of the present setting.

        A reverted candidate is followed by one period of the kept setting, which measures it again.

        Args:
            period: Measurement of the period that has ended.
            workers: Models of the workers, fitted to this period.
            total_may_change: Whether the job allows another global batch.
        """
        if self.trial is not None and not self._pays(period):
            return replace(self, trial=None, refused=self.refused | {self.trial})
        refused: frozenset[Setting] = frozenset() if self.trial is not None else self.refused
        settled = BatchSearch(self.setting, None, period, refused)
        open_to_try = [
            candidate for candidate in candidates(settled.kept, workers, total_may_change) if candidate not in refused
        ]
        return replace(settled, trial=open_to_try[0] if open_to_try else None)

    def _pays(self, period: Period) -> bool:
        before = self.measured
        if before is None or period.seconds_per_sample >= before.seconds_per_sample:
            return False
        return mean_ratio_to_course(before.losses, period.losses) <= LARGEST_RISE


def candidates(kept: Setting, workers: Sequence[SampleTime], total_may_change: bool) -> list[Setting]:
    """Return the feasible points of the grid but `kept`, that with the least modelled seconds per sample first."""
    totals = {round(kept.total * factor) for factor in FACTORS} if total_may_change else {kept.total}
    grid = {
        Setting(total, max(1, smallest))
        for total in totals
        for smallest in (1, total // (8 * len(workers)), total // (4 * len(workers)))
    }
    seconds: dict[Setting, float] = {}
    for setting in grid - {kept}:
        limited = [replace(worker, smallest=max(worker.smallest, setting.smallest)) for worker in workers]
        try:
            sizes = split(limited, setting.total).sizes
        except InfeasibleBatchError:
            continue
        seconds[setting] = slowest_seconds(limited, sizes) / setting.total
    return sorted(seconds, key=lambda setting: (seconds[setting], setting.total, setting.smallest))


def mean_ratio_to_course(before: Sequence[tuple[float, float]], after: Sequence[tuple[float, float]]) -> float:
    """Return the geometric mean of losses over the power law of samples seen that fits the earlier losses.

    It is 1 if either period has no losses.
    """
    if not before or not after:
        return 1.0
    points = [(log(samples), log(loss)) for samples, loss in before]
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread > 0 else 0.0
    return exp(sum(log(loss) - mean_y - slope * (log(samples) - mean_x) for samples, loss in after) / len(after))
