"""Estimates of sizes from completed jobs and from overruns."""

from math import exp

import pytest

from tranche.estimate import OVERRUN, UNKNOWN_SIGMA, Sizes, estimated_total
from tranche.estimate.job_size import MAX_SIZES, MAX_TEMPLATES


def test_a_template_needs_the_median_of_its_last_jobs() -> None:
    sizes = Sizes()
    for size in [1e9] * MAX_SIZES + [10.0, 20.0, 30.0] * 7:
        sizes.add("t", size)
    assert sizes.predict("t") == 20.0
    assert sizes.predict("other") is None


def test_sizes_without_template_predict_nothing() -> None:
    sizes = Sizes()
    sizes.add("", 10.0)
    assert sizes.predict("") is None


def test_sizes_keep_only_the_latest_templates() -> None:
    sizes = Sizes()
    for number in range(MAX_TEMPLATES):
        sizes.add(str(number), 1.0)
    sizes.add("0", 1.0)
    sizes.add("new", 1.0)
    assert sizes.predict("0") == 1.0
    assert sizes.predict("1") is None


@pytest.mark.parametrize(
    ("attained", "total"), [(0.0, 100.0), (100.0, 100.0), (100.0 * OVERRUN, 200.0), (201.0, 200.0), (1000.0, 1600.0)]
)
def test_estimated_total_doubles_until_it_exceeds_attained(attained: float, total: float) -> None:
    assert estimated_total(100.0, attained) == total


def test_sigma_of_a_template_narrows_with_equal_jobs() -> None:
    sizes, found = Sizes(), []
    assert sizes.sigma("t") == UNKNOWN_SIGMA
    for _ in range(MAX_SIZES):
        sizes.add("t", 50.0)
        found.append(sizes.sigma("t"))
    assert found == sorted(found, reverse=True)
    assert found[0] == pytest.approx(2**0.5)  # 2·1²/2 · (1 + 1)
    assert found[-1] == pytest.approx((2 / 21 * 1.05) ** 0.5)


def test_sigma_of_a_template_approaches_its_spread() -> None:
    sizes = Sizes()
    for number in range(MAX_SIZES):
        sizes.add("t", exp(3.0 * (-1) ** number))
    assert sizes.sigma("t") == pytest.approx(((2 + 20 * 9) / 21 * 1.05) ** 0.5)
