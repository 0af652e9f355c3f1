"""Correction of declared sizes by those that earlier jobs of the namespace turned out to have.

The logarithm of the actual size is a linear function of that of the declared size, whose slope is shrunk towards 1:
if declarations scatter around the truth, a large one is more often too large than too small (regression to the mean).
Ours [I].
"""

from dataclasses import dataclass, field
from math import exp, log

from tranche.estimate.namespace_measurements import keep

MIN_JOBS = 10
"""Completed jobs of a namespace from which declarations are corrected."""
PRIOR_WEIGHT = 20.0
"""Weight of a slope of 1, in squared logarithms of declared sizes."""
MAX_LOG_CORRECTION = log(20.0)
"""Largest absolute logarithm of a correction."""


@dataclass(slots=True)
class _Moments:
    """Sums over the completed jobs of a namespace, of declared (x) and actual (y) logarithms."""

    count: int = 0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0

    def factor(self, x: float) -> float:
        mean_x, mean_y = self.x / self.count, self.y / self.count
        variance, covariance = self.xx - self.count * mean_x**2, self.xy - self.count * mean_x * mean_y
        slope = min(1.0, max(0.0, (covariance + PRIOR_WEIGHT) / (variance + PRIOR_WEIGHT)))
        shift = mean_y + slope * (x - mean_x) - x
        return exp(max(-MAX_LOG_CORRECTION, min(MAX_LOG_CORRECTION, shift)))


@dataclass(slots=True)
class DeclaredSizes:
    """Declared and actual sizes of completed jobs, by namespace, so that no tenant corrects the jobs of another."""

    _moments: dict[str, _Moments] = field(default_factory=dict)

    def add(self, namespace: str, declared: float, actual: float) -> None:
        """Record a completed job; both sizes have the same unit."""
        if declared <= 0 or actual <= 0:
            return
        moments, x, y = self._moments.get(namespace) or _Moments(), log(declared), log(actual)
        moments.count, moments.x, moments.y = moments.count + 1, moments.x + x, moments.y + y
        moments.xx, moments.xy = moments.xx + x * x, moments.xy + x * y
        keep(self._moments, namespace, moments)

    def factor(self, namespace: str, declared: float) -> float:
        """Return the expected over the declared size of a new job; 1 while too few jobs have completed."""
        moments = self._moments.get(namespace)
        return moments.factor(log(declared)) if moments is not None and moments.count >= MIN_JOBS else 1.0
