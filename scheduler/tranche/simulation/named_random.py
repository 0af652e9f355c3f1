"""Random numbers by name: the same seed and names always give the same number, regardless of earlier draws."""

from math import exp
from statistics import NormalDist

from tranche.policies.seeded_choice import uniform

_NORMAL = NormalDist()


def lognormal(sigma: float, seed: int, *names: object) -> float:
    """Return a factor with median 1 whose logarithm has the standard deviation `sigma`."""
    return exp(sigma * _NORMAL.inv_cdf(uniform(seed, *names))) if sigma else 1.0
