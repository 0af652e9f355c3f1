"""Estimates of sizes from completed jobs and from overruns."""

import pytest

from tranche.estimate import OVERRUN, Sizes, believed_total
from tranche.estimate.job_size import KEPT, TEMPLATES


def test_a_template_needs_the_median_of_its_last_jobs() -> None:
    sizes = Sizes()
    for size in [1e9] * KEPT + [10.0, 20.0, 30.0] * 7:
        sizes.add("t", size)
    assert sizes.predict("t") == 20.0
    assert sizes.predict("other") is None


def test_sizes_without_template_predict_nothing() -> None:
    sizes = Sizes()
    sizes.add("", 10.0)
    assert sizes.predict("") is None


def test_sizes_keep_only_the_latest_templates() -> None:
    sizes = Sizes()
    for number in range(TEMPLATES):
        sizes.add(str(number), 1.0)
    sizes.add("0", 1.0)
    sizes.add("new", 1.0)
    assert sizes.predict("0") == 1.0
    assert sizes.predict("1") is None


@pytest.mark.parametrize(
    ("attained", "total"), [(0.0, 100.0), (100.0, 100.0), (100.0 * OVERRUN, 200.0), (201.0, 200.0), (1000.0, 1600.0)]
)
def test_believed_total_doubles_until_it_exceeds_attained(attained: float, total: float) -> None:
    assert believed_total(100.0, attained) == total
