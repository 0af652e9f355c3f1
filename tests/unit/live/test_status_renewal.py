"""Progress and planned times in the status of a job are renewed while nothing else changes."""

import asyncio
from collections.abc import Mapping
from math import inf

from support.live_controller import NOW, resource, taken_over, written
from tranche.live.settings import ControllerSettings
from tranche.live.status_renewal import EstimateRenewal, ProgressRenewal
from tranche.model import JobPlan
from tranche.planner import WorkerStarted
from tranche.planner.forecast.estimates import Estimate


def test_progress_of_a_long_chunk_is_written_again() -> None:
    controller = asyncio.run(taken_over(resource("a", "1h")))
    moments = [NOW]
    controller.clock = lambda: moments[0]
    (first, *_) = controller.planner.cluster.jobs["default/a"].runs
    controller.handle(WorkerStarted("default/a", first, NOW))
    while controller._forecasts.next_due < inf:
        controller.step()
    assert written(controller, "a")["progress"]["trained"] == "0 %"
    controller.writer._builds.clear()
    moments[0] += 9.0
    controller.step()
    assert not controller.writer._builds, "too early"
    moments[0] += 891.0
    controller.step()
    status = written(controller, "a")
    assert status["plan"]["explanation"].endswith("chunks done, about 12 % trained")
    assert (status["progress"]["trained"], status["progress"]["estimated"]) == ("12 %", True)


def outdated(renewal: ProgressRenewal, shares: Mapping[str, float], start: int, end: int) -> list[str]:
    found = [renewal.outdated(shares.get, float(second)) for second in range(start, end)]
    return [key for key in found if key]


def test_renewals_are_at_most_one_a_second_and_by_turns() -> None:
    renewal = ProgressRenewal(ControllerSettings(progress_seconds=60.0, progress_share=0.01))
    for key in ("a", "b", "still", "over"):
        renewal.note(key, 0.0, 0.0)
    shares = {"a": 0.5, "b": 0.5, "still": 0.005}
    assert outdated(renewal, shares, 0, 60) == []
    assert [renewal.outdated(shares.get, 60.0), renewal.outdated(shares.get, 60.5)] == ["a", ""]
    renewal.note("a", 0.5, 60.6)
    assert outdated(renewal, shares, 61, 121) == ["b"]
    assert outdated(renewal, shares, 121, 130) == ["b"], "b was not written: its status is still outdated"


def plan_behind(other: str) -> JobPlan:
    return JobPlan(1, "waits", estimated_start=100.0, estimated_completion=200.0, waits_behind=other)


def test_explanations_that_name_a_changed_job_are_renewed_once() -> None:
    announced = EstimateRenewal(ControllerSettings())
    behind = {key: Estimate(100.0, 200.0, behind=other) for key, other in (("a", "x"), ("b", "x"), ("c", "y"))}
    for key, other in (("a", "x"), ("b", "y"), ("c", "y")):
        announced.note(key, plan_behind(other))
    assert not list(announced.outdated(behind, 0.0))
    announced.job_changed("x")
    assert not list(announced.outdated({}, 0.0)), "no forecast is complete"
    assert list(announced.outdated(behind, 0.0)) == ["a", "b"], "a named it, and b names it now"
    list(announced.outdated(behind, 0.0))
    assert not list(announced.outdated(behind, 0.0))
