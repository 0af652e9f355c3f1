"""Intervals of planned starts and completions in plans, what-ifs and for a successor."""

from dataclasses import replace
from math import exp, inf

import pytest

from support.builders import job, node, planner
from tranche.model import JobPlan
from tranche.planner import JobSubmitted, Planner, WorkerEnded, WorkerStarted
from tranche.planner.forecast.steps import run_to_completion
from tranche.planner.forecast.what_if import what_if
from tranche.planner.learned_state import learned_state_of, recall

NORMAL = 1.2815516
"""90 % quantile of a standard normal variable."""


def waiting() -> Planner:
    """Return a planner with one GPU and two jobs of 100 and 200 s, whose forecast is known."""
    p = planner("chunk", [node("n1")])
    p.handle_all([JobSubmitted(job("first", seconds=100.0)), JobSubmitted(job("second", seconds=200.0))], 0.0)
    p.forecast(0.0)
    return p


def completed(p: Planner, at: float) -> None:
    """Complete the first job."""
    attempt = p.plan_of("default/first", 0.0).windows[0].attempt
    p.handle(WorkerStarted("default/first", attempt, 0.0), 0.0)
    p.handle(WorkerEnded("default/first", attempt, "Succeeded", at, {0: inf}), at)


def spread(plan: JobPlan, now: float) -> tuple[float, float]:
    """Return the bounds of the completion, as multiples of the planned remaining time."""
    assert plan.completion_interval is not None
    assert plan.estimated_completion is not None
    left = plan.estimated_completion - now
    return (plan.completion_interval.earliest - now) / left, (plan.completion_interval.latest - now) / left


def test_plan_has_intervals_around_its_times() -> None:
    p = waiting()
    first, second = p.plan_of("default/first", 0.0), p.plan_of("default/second", 0.0)
    assert first.start_interval is not None
    assert (first.start_interval.earliest, first.start_interval.latest) == (0.0, 0.0)
    assert spread(first, 0.0) == spread(second, 0.0) == pytest.approx((exp(-NORMAL), exp(NORMAL)))
    assert second.start_interval is not None
    expected = (100 * exp(-2 * NORMAL), 100 * exp(2 * NORMAL))
    assert (second.start_interval.earliest, second.start_interval.latest) == pytest.approx(expected)


def test_plan_without_a_forecast_has_no_interval() -> None:
    p = planner("chunk", [node("n1")])
    p.handle(JobSubmitted(job("j")), 0.0)
    plan = p.plan_of("default/j", 0.0)
    assert (plan.start_interval, plan.completion_interval) == (None, None)


def test_completions_and_starts_move_later_intervals() -> None:
    p = waiting()
    completed(p, 1000.0)
    errors = p.cluster.forecast_errors
    assert errors.verdicts == {"late": 1}
    assert errors.completions.high == pytest.approx(NORMAL + 0.09)
    assert errors.completions.low == errors.starts.low == pytest.approx(0.01 - NORMAL)
    assert errors.starts.high == pytest.approx(NORMAL - 0.01), "1000 s are in the first interval of a start at 100 s"


def test_size_that_is_unknown_widens_the_interval() -> None:
    p = planner("chunk", [node("n1"), node("n2")])
    for name, declared in (("known", True), ("unknown", False)):
        p.handle(JobSubmitted(replace(job(name, seconds=100.0), size_declared=declared, template="t")), 0.0)
    p.forecast(0.0)
    assert p.cluster.jobs["default/unknown"].size_sigma == 2.0
    assert spread(p.plan_of("default/unknown", 0.0), 0.0) == pytest.approx((exp(-2 * NORMAL), exp(2 * NORMAL)))
    assert spread(p.plan_of("default/known", 0.0), 0.0) == pytest.approx((exp(-NORMAL), exp(NORMAL)))


def test_completed_jobs_of_the_template_narrow_the_interval() -> None:
    p = planner("chunk", [node("n1")])
    for size in (100.0, 110.0, 90.0) * 4:
        p.cluster.history.sizes.add("t whole", size)
    p.handle(JobSubmitted(replace(job("j", seconds=9.0), size_declared=False, template="t")), 0.0)
    assert p.cluster.jobs["default/j"].size_sigma == pytest.approx(0.41, abs=0.01)


def test_declared_sizes_are_corrected_only_if_asked() -> None:
    """Ten jobs took twice as long as declared; so does the next one, by the option."""
    found = {}
    for policy in ("chunk", "chunk:declared=1"):
        p = planner(policy, [node("n1")])
        for number in range(10):
            name, at = f"j{number}", 1000.0 * number
            p.handle(JobSubmitted(job(name, at, seconds=100.0)), at)
            attempt = p.plan_of(f"default/{name}", at).windows[0].attempt
            p.handle(WorkerStarted(f"default/{name}", attempt, at), at)
            p.handle(WorkerEnded(f"default/{name}", attempt, "Succeeded", at + 200.0, {0: inf}), at + 200.0)
        p.handle(JobSubmitted(job("next", 1e5, seconds=100.0)), 1e5)
        found[policy] = p.forecast(1e5)["default/next"].completion - 1e5
    assert found == pytest.approx({"chunk": 100.0, "chunk:declared=1": 200.0})


def test_what_if_has_the_interval_of_the_plan() -> None:
    p = waiting()
    submitted = JobSubmitted(job("asked", seconds=50.0))
    found = run_to_completion(what_if(p.context, p.blank, submitted, 0.0))
    p.handle(submitted, 0.0)
    p.forecast(0.0)
    assert found.completion_interval == p.plan_of("default/asked", 0.0).completion_interval
    assert found.completion_interval is not None


def test_successor_continues_with_the_learnt_bounds() -> None:
    p, successor = waiting(), planner("chunk", [node("n1")])
    completed(p, 1000.0)
    recall(successor.context, learned_state_of(p.cluster, 0.0))
    found = successor.cluster.forecast_errors
    assert found.completions.high == pytest.approx(NORMAL + 0.09, abs=1e-5)
    assert learned_state_of(successor.cluster, 0.0).forecast_bounds == learned_state_of(p.cluster, 0.0).forecast_bounds
