"""Tests of the intervals around planned times, on outcomes whose distribution is known."""

from math import exp, log

import pytest

from tranche.estimate import ForecastErrors
from tranche.estimate.forecast_error import WIDEST, ScoreBounds
from tranche.model import Interval
from tranche.simulation.named_random import lognormal


def _share_inside(factors: list[float], sigma: float = 1.0) -> float:
    """Return the share of jobs of 100 s inside the interval given at submission, each done before the next one."""
    errors = ForecastErrors()
    for number, factor in enumerate(factors):
        now = 1e4 * number
        errors.planned(f"j{number}", now, now, now + 100.0, sigma)
        errors.completed(f"j{number}", now + 100.0 * factor)
    return errors.verdicts["inside"] / errors.verdicts.total()


def test_first_interval_is_that_of_a_log_normal_size() -> None:
    interval = ForecastErrors().completion(10.0, 110.0, 1.0)
    widest = 1.2815516
    assert (interval.earliest, interval.latest) == pytest.approx((10 + 100 * exp(-widest), 10 + 100 * exp(widest)))


def test_interval_narrows_with_the_rest_and_ends_with_it() -> None:
    errors = ForecastErrors()
    widths = [(i.latest - i.earliest) for i in (errors.completion(now, 100.0, 1.0) for now in (0.0, 50.0, 99.0))]
    assert widths == sorted(widths, reverse=True)
    assert errors.completion(100.0, 100.0, 1.0) == errors.completion(200.0, 100.0, 1.0) == Interval(100.0, 100.0)


@pytest.mark.parametrize("spread", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("bias", [0.8, 1.0, 1.25])
def test_intervals_contain_80_percent_of_log_normal_outcomes(spread: float, bias: float) -> None:
    factors = [bias * lognormal(spread, 5, number) for number in range(2000)]
    assert _share_inside(factors[:400]) == pytest.approx(0.8, abs=0.1)
    assert _share_inside(factors) == pytest.approx(0.8, abs=0.05)


def test_exact_plans_narrow_the_interval() -> None:
    errors = ForecastErrors()
    for number in range(300):
        errors.planned(f"j{number}", 0.0, 0.0, 100.0, 1.0)
        errors.completed(f"j{number}", 100.0)
    interval = errors.completion(0.0, 100.0, 1.0)
    assert interval == Interval(100.0, 100.0)


def test_job_of_uncertain_size_gets_a_wider_interval() -> None:
    errors = ForecastErrors()
    known, unknown = errors.completion(0.0, 100.0, 0.5), errors.completion(0.0, 100.0, 2.0)
    assert unknown.earliest < known.earliest < 100.0 < known.latest < unknown.latest


def test_bounds_keep_the_planned_time_inside_and_are_limited() -> None:
    bounds = ScoreBounds()
    for _ in range(2000):
        bounds.observe(50.0)
    assert (bounds.low, bounds.high) == (0.0, WIDEST)


def test_only_the_first_plan_of_a_job_counts() -> None:
    errors = ForecastErrors()
    errors.planned("j", 0.0, 50.0, 100.0, 1.0)
    errors.planned("j", 60.0, 70.0, 1000.0, 1.0)
    errors.started("j", 50.0)
    errors.started("j", 500.0)
    assert errors.starts.high == pytest.approx(1.28155 - 0.01, abs=1e-4)
    assert errors.completed("j", 100.0) == "inside"
    assert errors.completed("j", 100.0) is None


@pytest.mark.parametrize(("at", "verdict"), [(20.0, "early"), (100.0, "inside"), (400.0, "late")])
def test_completion_is_judged_by_the_first_interval(at: float, verdict: str) -> None:
    errors = ForecastErrors()
    errors.planned("j", 0.0, 0.0, 100.0, 1.0)
    assert errors.completed("j", at) == verdict


def test_forgotten_and_immediate_jobs_teach_nothing() -> None:
    errors = ForecastErrors()
    errors.planned("removed", 0.0, 10.0, 100.0, 1.0)
    errors.forget("removed")
    errors.planned("brief", 0.0, 0.0, 0.5, 1.0)
    assert (errors.completed("removed", 5.0), errors.completed("brief", 50.0)) == (None, None)
    assert errors.bounds() == {}


def test_successor_recalls_bounds_and_ignores_wrong_ones() -> None:
    errors, successor = ForecastErrors(), ForecastErrors()
    errors.planned("j", 0.0, 0.0, 100.0, 1.0)
    errors.completed("j", 900.0)
    successor.recall(errors.bounds() | {"other.low": 1.0})
    assert successor.bounds() == errors.bounds()
    assert errors.completions.high == pytest.approx(-errors.completions.low + 0.1)
    successor.recall({"completion.low": 3.0, "completion.high": log(1e9)})
    assert successor.bounds() == errors.bounds()
