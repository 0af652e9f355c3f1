"""Aggregation of the gradients of one round: the weighted mean, and two rules that bound the harm of single gradients.

Gradients are rows (n × size), and weights are the parts of the batch, b_i/B. A plain median beside these weights would
contradict them, so both robust rules are weighted [I].
"""

from collections.abc import Callable

import numpy as np

from numpy_ps.models import Array

CUT = 0.2
"""Weight that the trimmed mean cuts from each end of every coordinate."""

Rule = Callable[[Array, Array], Array]
"""Function of gradients (n × size) and weights (n), which returns one gradient (size)."""


def mean(gradients: Array, weights: Array) -> Array:
    """Return the weighted mean; a single gradient can move it anywhere."""
    result: Array = weights @ gradients / weights.sum()
    return result


def median(gradients: Array, weights: Array) -> Array:
    """Return the weighted median of each coordinate: the least value whose cumulated weight is at least half."""
    order = np.argsort(gradients, 0, kind="stable")
    ordered = np.take_along_axis(gradients, order, 0)
    reached = np.cumsum(weights[order], 0) >= weights.sum() / 2 * (1 - 1e-12)
    result: Array = np.take_along_axis(ordered, reached.argmax(0)[None], 0)[0]
    return result


def trimmed_mean(gradients: Array, weights: Array, cut: float = CUT) -> Array:
    """Return the weighted mean of each coordinate without a part `cut` (below ½) of the weight at each end."""
    order = np.argsort(gradients, 0, kind="stable")
    ordered = np.take_along_axis(gradients, order, 0)
    whole = weights.sum()
    above = np.cumsum(weights[order], 0)
    kept_weights = np.clip(above, cut * whole, (1 - cut) * whole)
    kept_weights[1:] -= kept_weights[:-1].copy()
    kept_weights[0] -= cut * whole
    kept = np.where(kept_weights > 1e-12 * whole, ordered, 0.0)  # 0 times a value that is not finite is not 0
    result: Array = (kept_weights * kept).sum(0) / ((1 - 2 * cut) * whole)
    return result


RULES: dict[str, Rule] = {"mean": mean, "median": median, "trimmed-mean": trimmed_mean}
"""Rules by the name in spec.communication.aggregation."""
