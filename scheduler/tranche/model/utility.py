"""Utility of completing a job, by the time that it took.

Source: the sigmoid is that of Bao, Peng, Wu and Li, Online Job Scheduling in Distributed Machine Learning Clusters
(OASiS), INFOCOM 2018, arXiv 1801.00936 [P].
"""

from dataclasses import dataclass
from math import exp

LARGEST_EXPONENT = 700.0
"""Largest argument of exp; a larger one overflows."""
UTILITY_OF_WEIGHT = 50.0
"""Largest utility, by weight, of a job that declares none."""


@dataclass(frozen=True, slots=True)
class Utility:
    """u(d) = γ1 / (1 + exp(γ2 (d − γ3))), d the seconds since arrival."""

    priority: float
    """γ1: the largest utility."""
    decay_per_second: float
    """γ2: steepness of the decrease, per second."""
    target_seconds: float
    """γ3: time at which half of the utility is left, in seconds since arrival."""

    def at(self, seconds: float) -> float:
        """Return the utility of a completion that many seconds after arrival."""
        exponent = self.decay_per_second * (seconds - self.target_seconds)
        return self.priority / (1.0 + exp(min(exponent, LARGEST_EXPONENT)))
