"""Means with confidence intervals by Student's t, exact for whole degrees of freedom, without a library."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, stdev

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """Mean over values."""

    mean: float
    half_width: float | None
    """Half width of the 95 % confidence interval; None for fewer than two values."""
    count: int

    def __str__(self) -> str:
        return f"{self.mean:.3f}" if self.half_width is None else f"{self.mean:.3f} ± {self.half_width:.3f}"


def estimate(values: Sequence[float], *, resampled: bool = False) -> Estimate:
    """Return the mean, with the 95 % confidence interval of the mean of normal values.

    Args:
        values: Independent values, or those of resampled data.
        resampled: Whether each value is that of data that were resampled from the same data. Then their standard
            deviation is the standard error of the figure of these data, and more of them make it no smaller (Efron and
            Tibshirani, An Introduction to the Bootstrap, 1993, chapter 6, recalled).

    Raises:
        ValueError: there is no value.
    """
    if not values:
        raise ValueError("no values to take the mean of")
    if len(values) < 2:
        return Estimate(fmean(values), None, len(values))
    error = stdev(values) if resampled else stdev(values) / math.sqrt(len(values))
    return Estimate(fmean(values), t_quantile(len(values) - 1) * error, len(values))


@cache
def t_quantile(degrees: int) -> float:
    """Return the t with P(|T| ≤ t) = `CONFIDENCE`, by bisection of the closed form, to 1e-9 relative."""
    low, high = 0.0, 1.0
    while central_probability(high, degrees) < CONFIDENCE:
        high *= 2
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        if central_probability(middle, degrees) < CONFIDENCE:
            low = middle
        else:
            high = middle
    return high


def central_probability(t: float, degrees: int) -> float:
    """Return P(|T| ≤ t) of Student's t with whole degrees of freedom: Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(degrees))
    cosine_squared = math.cos(angle) ** 2
    odd = degrees % 2 == 1
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for k in range(degrees // 2):
        total += term
        term *= cosine_squared * ((2 * k + 2) / (2 * k + 3) if odd else (2 * k + 1) / (2 * k + 2))
    if not odd:
        return math.sin(angle) * total
    return 2 / math.pi * (angle + math.sin(angle) * total)
