"""What completing a job is worth, by the time that it took.

Source: the sigmoid is that of Bao, Peng, Wu and Li, Online Job Scheduling in Distributed Machine Learning Clusters
(OASiS), INFOCOM 2018, arXiv 1801.00936 [P]. [I] the parameters of a job that names none: γ1 = 50 · weight, γ3 = twice
the shortest time in which it could be done, γ2 = 4/γ3.
"""

from dataclasses import dataclass
from math import exp

from tranche.state.entities import JobState

LARGEST_EXPONENT = 700.0
"""exp of more overflows."""


@dataclass(frozen=True, slots=True)
class Utility:
    """u(d) = γ1 / (1 + exp(γ2 (d − γ3))), d the seconds since arrival."""

    priority: float
    """γ1: the most that it can be worth."""
    decay_per_second: float
    """γ2: how sharply it falls."""
    target_seconds: float
    """γ3: when half of it is gone."""

    def at(self, seconds: float) -> float:
        """What a completion after so many seconds is worth."""
        exponent = self.decay_per_second * (seconds - self.target_seconds)
        return self.priority / (1.0 + exp(min(exponent, LARGEST_EXPONENT)))


def utility_of(state: JobState) -> Utility:
    """Of a job that names no utility."""
    target = max(2.0 * state.ideal_seconds, 1e-9)
    return Utility(50.0 * state.job.weight, 4.0 / target, target)
