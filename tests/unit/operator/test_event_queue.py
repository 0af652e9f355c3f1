"""Events are written when no reconcile runs, and at most one in a while of one job and reason, without a loss."""

import asyncio
from datetime import datetime
from itertools import pairwise

import pytest

from support.operator_objects import NOW, training_job
from support.virtual_time_loop import JumpingLoop, run
from tranche.kube.api.resources import TrainingJob
from tranche.runtime.report_pace import DOUBLING_SECONDS, PATIENCE_SECONDS
from tranche_operator.queue import event_queue
from tranche_operator.queue.event_queue import GAP_SECONDS, EventQueue
from tranche_operator.reconcile.actions import EmitEvent
from tranche_operator.reconcile.event_merge import SPACING_SECONDS

JOB = training_job()
Written = list[tuple[float, str, int]]
"""Time, message and number of occurrences of each written event."""
Given = list[tuple[float, EmitEvent]]
"""Events with the times at which they are emitted."""


def event(number: int, reason: str = "") -> EmitEvent:
    return EmitEvent("Normal", reason or f"Reason{number}", f"message {number}")


def opened(site: str) -> EmitEvent:
    return EmitEvent("Normal", "WindowOpened", f"a worker at site {site}", starts=((site, 1),))


def written(given: Given, busy_until: float = 0.0, seconds: float = 2 * SPACING_SECONDS) -> Written:
    found: Written = []

    async def serve(loop: JumpingLoop) -> None:
        async def write(job: TrainingJob, one: EmitEvent, at: datetime, count: int) -> None:
            assert (job, at) == (JOB, NOW)
            await asyncio.sleep(0.01)
            found.append((loop.time(), one.message, count))

        events = EventQueue(write, lambda: NOW, loop.time, lambda: loop.time() < busy_until)
        serving = asyncio.ensure_future(events.serve())
        for at, one in given:
            await asyncio.sleep(max(0.0, at - loop.time()))
            await events.emit(JOB, one)
        await asyncio.sleep(seconds)
        serving.cancel()

    run(serve)
    return found


def test_few_events_are_written_in_order_while_pods_start() -> None:
    found = written([(0.0, event(number)) for number in range(400)], busy_until=10.0)
    early = [message for at, message, _ in found if at < 10.0]
    assert 50 <= len(early) <= 10.0 / GAP_SECONDS
    assert early == [f"message {number}" for number in range(len(early))]
    assert len(found) == 400
    assert max(at for at, _, _ in found) < 12.0


def test_late_events_are_written_ever_faster_while_pods_start() -> None:
    found = written([(0.0, event(number)) for number in range(2000)], busy_until=1000.0, seconds=900.0)
    ends = [PATIENCE_SECONDS + DOUBLING_SECONDS * number for number in range(3)]
    counts = [sum(earlier < at <= later for at, _, _ in found) for earlier, later in pairwise((0.0, *ends))]
    assert counts[0] <= PATIENCE_SECONDS / GAP_SECONDS
    assert 1.5 * counts[1] <= counts[2] <= 3 * counts[1]
    assert len(found) == 2000
    assert max(at for at, _, _ in found) < ends[-1] + 3 * DOUBLING_SECONDS


def test_a_full_event_queue_drops_further_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_queue, "MAX_WAITING", 2)
    found = written([(0.0, event(number)) for number in range(3)], busy_until=0.1)
    assert [message for _, message, _ in found] == ["message 0", "message 1"]


def test_two_windows_a_second_are_three_events_a_minute() -> None:
    given = [(0.5 * number, opened("cloud" if number % 2 else "edge-a")) for number in range(120)]
    found = written(given)
    assert len(found) == 1 + 60.0 / SPACING_SECONDS
    assert [message for _, message, _ in found[:2]] == [
        "a worker at site edge-a",
        "39 workers start: 20 at cloud, 19 at edge-a",
    ]
    assert sum(count for _, _, count in found) == 120, "an opening is in no event"
    times = [at for at, _, _ in found]
    assert all(later - earlier > SPACING_SECONDS - 0.1 for earlier, later in pairwise(times))


def test_event_after_a_pause_is_written_at_once() -> None:
    found = written([(0.0, opened("cloud")), (SPACING_SECONDS + 1, opened("edge-a"))])
    assert [message for _, message, _ in found] == ["a worker at site cloud", "a worker at site edge-a"]
    assert found[1][0] - SPACING_SECONDS - 1 < 0.2


def test_second_preemption_within_the_spacing_is_not_lost() -> None:
    found = written([(0.0, event(0, "Preempting")), (1.0, event(1, "Preempting")), (2.0, event(2, "Preempting"))])
    assert [(message, count) for _, message, count in found] == [("message 0", 1), ("message 1; message 2", 2)]


@pytest.mark.parametrize("reason", ["Completed", "Failed"])
def test_end_of_a_job_is_written_at_once(reason: str) -> None:
    found = written([(0.0, event(0, reason)), (1.0, event(1, reason)), (1.5, opened("cloud"))])
    assert [round(at) for at, _, _ in found] == [0, 1, 2]
