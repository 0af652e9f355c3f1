"""Quantiles of values by linear interpolation between the two nearest ones (Hyndman and Fan's type 7)."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def quantiles(values: Floats, shares: Floats) -> Floats:
    """Return the quantiles of at least one value at these shares, 0 … 1.

    They are those of `np.quantile` to the bit, which imports numpy's masked arrays: 3 % of the time of a short run.
    """
    ordered = np.sort(values)
    places = shares * (len(ordered) - 1)
    below = np.floor(places).astype(np.int64)
    low, high = ordered[below], ordered[np.minimum(below + 1, len(ordered) - 1)]
    part = places - below
    interpolated: Floats = np.where(part < 0.5, low + (high - low) * part, high - (high - low) * (1 - part))
    return interpolated
