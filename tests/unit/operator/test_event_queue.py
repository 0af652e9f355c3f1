"""Events are written in their order, when no reconcile runs or after a while."""

import asyncio
from datetime import datetime

import pytest

from support.operator_objects import NOW, training_job
from support.virtual_time_loop import JumpingLoop, run
from tranche.kube.api.resources import TrainingJob
from tranche_operator.queue import event_queue
from tranche_operator.queue.event_queue import EventQueue
from tranche_operator.queue.quiet_time import PATIENCE_SECONDS
from tranche_operator.reconcile.actions import EmitEvent

JOB = training_job()
Written = list[tuple[float, str]]


def event(number: int) -> EmitEvent:
    return EmitEvent("Normal", "WindowOpened", f"worker {number}")


async def serve(loop: JumpingLoop, written: Written, busy_until: float, count: int) -> None:
    async def write(job: TrainingJob, one: EmitEvent, at: datetime) -> None:
        assert (job, at) == (JOB, NOW)
        await asyncio.sleep(0.01)
        written.append((loop.time(), one.message))

    events = EventQueue(write, lambda: NOW, loop.time, lambda: loop.time() < busy_until)
    serving = asyncio.ensure_future(events.serve())
    for number in range(count):
        await events.emit(JOB, event(number))
    await asyncio.sleep(60.0)
    serving.cancel()


def test_events_are_written_in_order_after_the_reconciles() -> None:
    written: Written = []
    run(lambda loop: serve(loop, written, busy_until=2.0, count=3))
    assert [message for _, message in written] == ["worker 0", "worker 1", "worker 2"]
    assert 2.0 <= written[0][0] < 2.2


def test_events_wait_no_longer_than_the_limit() -> None:
    written: Written = []
    run(lambda loop: serve(loop, written, busy_until=1000.0, count=1))
    assert PATIENCE_SECONDS <= written[0][0] < PATIENCE_SECONDS + 0.2


def test_a_full_event_queue_drops_further_events(monkeypatch: pytest.MonkeyPatch) -> None:
    written: Written = []
    monkeypatch.setattr(event_queue, "MOST", 2)
    run(lambda loop: serve(loop, written, busy_until=0.0, count=3))
    assert [message for _, message in written] == ["worker 0", "worker 1"]
