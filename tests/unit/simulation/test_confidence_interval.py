"""Means and their confidence intervals."""

import math

import pytest

from tranche.simulation.analysis.confidence_interval import central_probability, estimate, t_quantile


@pytest.mark.parametrize(
    ("degrees", "published"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (10, 2.228), (30, 2.042), (100, 1.984)],
)
def test_quantiles_are_those_of_the_printed_tables(degrees: int, published: float) -> None:
    assert t_quantile(degrees) == pytest.approx(published, abs=6e-4)


def test_probability_of_one_degree_is_the_cauchy_distribution() -> None:
    assert central_probability(1.0, 1) == pytest.approx(0.5, abs=1e-12)


def test_probability_of_many_degrees_nears_normal_distribution() -> None:
    assert central_probability(1.959964, 100_000) == pytest.approx(0.95, abs=1e-5)


def test_interval_of_three_values() -> None:
    found = estimate([0.9, 1.0, 1.1])
    assert found.mean == pytest.approx(1.0)
    assert found.half_width == pytest.approx(4.302653 * 0.1 / math.sqrt(3), rel=1e-6)
    assert str(found) == "1.000 ± 0.248"


def test_interval_of_resampled_data_does_not_shrink_with_values() -> None:
    few, many = (estimate([0.9, 1.1] * count, resampled=True).half_width for count in (15, 500))
    assert few is not None
    assert many is not None
    assert many == pytest.approx(1.96 * 0.1, rel=0.01)
    assert many == pytest.approx(few, rel=0.1)


def test_one_value_has_no_interval() -> None:
    found = estimate([0.87])
    assert (found.mean, found.half_width, found.count) == (0.87, None, 1)
    assert str(found) == "0.870"


def test_no_value_is_an_error() -> None:
    with pytest.raises(ValueError, match="no values"):
        estimate([])
