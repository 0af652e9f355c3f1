"""Correction of declared sizes by those that earlier jobs of the namespace turned out to have.

The logarithm of the actual size is a linear function of that of the declared size, whose slope is shrunk towards 1:
if declarations scatter around the truth, a large one is more often too large than too small (regression to the mean).
Ours [I].
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from math import exp, log

MIN_JOBS = 10
"""Completed jobs of a namespace from which declarations are corrected."""
PRIOR = 20.0
"""Weight of a slope of 1, in squared logarithms of declared sizes."""
NAMESPACES = 1000
"""Number of namespaces that are kept: those that completed a job most recently."""
LARGEST = log(20.0)
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
        slope = min(1.0, max(0.0, (covariance + PRIOR) / (variance + PRIOR)))
        shift = mean_y + slope * (x - mean_x) - x
        return exp(max(-LARGEST, min(LARGEST, shift)))


@dataclass(slots=True)
class DeclaredSizes:
    """Declared and actual sizes of completed jobs, by namespace, so that no tenant corrects the jobs of another."""

    _known: OrderedDict[str, _Moments] = field(default_factory=OrderedDict)

    def add(self, namespace: str, declared: float, actual: float) -> None:
        """Record a completed job; both sizes have the same unit."""
        if declared <= 0 or actual <= 0:
            return
        one, x, y = self._known.setdefault(namespace, _Moments()), log(declared), log(actual)
        one.count, one.x, one.y = one.count + 1, one.x + x, one.y + y
        one.xx, one.xy = one.xx + x * x, one.xy + x * y
        self._known.move_to_end(namespace)
        if len(self._known) > NAMESPACES:
            self._known.popitem(last=False)

    def factor(self, namespace: str, declared: float) -> float:
        """Return the expected over the declared size of a new job; 1 while too few jobs have completed."""
        known = self._known.get(namespace)
        return known.factor(log(declared)) if known is not None and known.count >= MIN_JOBS else 1.0
