"""Quantiles: those of numpy to the bit."""

import numpy as np
import pytest

from tranche.simulation.analysis.quantile import quantiles


@pytest.mark.parametrize("count", [1, 2, 3, 60, 61, 1000, 15_802])
def test_quantiles_equal_those_of_numpy_to_the_bit(count: int) -> None:
    drawn = np.random.default_rng(count)
    for values in (drawn.uniform(0.0, 1e7, count), np.round(drawn.uniform(0.0, 50.0, count))):
        for shares in (np.array([0.5, 0.95, 0.99]), np.linspace(0.0, 1.0, 501)):
            assert quantiles(values, shares).tobytes() == np.quantile(values, shares).tobytes()
