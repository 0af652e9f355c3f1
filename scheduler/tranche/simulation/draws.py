"""Random numbers by name: the same seed and names always give the same number, whatever was drawn before."""

from hashlib import blake2b
from math import exp
from statistics import NormalDist

_NORMAL = NormalDist()


def uniform(seed: int, *names: object) -> float:
    """A number in (0, 1)."""
    digest = blake2b(repr((seed, *names)).encode(), digest_size=8).digest()
    return (int.from_bytes(digest) + 0.5) / 2**64


def lognormal(sigma: float, seed: int, *names: object) -> float:
    """A factor with median 1 whose logarithm has the standard deviation `sigma`."""
    return exp(sigma * _NORMAL.inv_cdf(uniform(seed, *names))) if sigma else 1.0
