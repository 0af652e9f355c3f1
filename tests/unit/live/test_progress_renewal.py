"""Progress in the status of a running job is renewed while nothing else changes."""

import asyncio
from collections.abc import Mapping
from math import inf

from support.live_controller import NOW, resource, taken_over, written
from tranche.live.progress_renewal import ProgressRenewal
from tranche.live.settings import ControllerSettings
from tranche.planner import WorkerStarted


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
