"""A long backlog of changes is worked off in its order, and only the leader takes reports."""

import asyncio
import time
from collections.abc import Callable

import pytest

from support.live_controller import Stopwatch
from tranche.live.controller import Controller
from tranche.live.informers import Informers
from tranche.live.planner_config import PlannerConfig
from tranche.live.planner_inbox import Backlog, Change
from tranche.metrics.scheduler import Metrics
from tranche.model import ChunkRequest, Report
from tranche.planner_api.receiver import NotLeadingError, PlannerReceiver


def turns_of_others(changes: int, seconds_each: float) -> tuple[list[str], int, int]:
    """Return the changes in the order of processing, the turns that others had until then, and the changes left."""
    now, heard, turns = [0.0], list[str](), [0]

    def hear(change: Change) -> None:
        now[0] += seconds_each
        heard.append(change[1])

    async def other() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    async def work() -> int:
        backlog = Backlog(hear, lambda: now[0])
        backlog.extend(("pods", str(number), None, None) for number in range(changes))
        task = asyncio.create_task(other())
        await backlog.catch_up()
        task.cancel()
        left = len(backlog)
        backlog.apply_all()
        return left

    left = asyncio.run(work())
    return heard, turns[0], left


def test_others_have_a_turn_after_every_two_milliseconds_of_work() -> None:
    heard, turns, left = turns_of_others(99, 1 / 1024)
    assert heard == [str(number) for number in range(99)]
    assert turns == 33
    assert left == 0


def test_endless_backlog_runs_without_yielding_after_one_second() -> None:
    heard, turns, left = turns_of_others(300, 1 / 128)
    assert heard == [str(number) for number in range(300)]
    assert turns == 128
    assert left == 300 - 128


class Lease:
    """Leadership that begins and pauses when the test says so."""

    def __init__(self) -> None:
        self.annotations: dict[str, str] = {}
        self.held = False
        self.free = asyncio.Event()

    async def take(self, largest_term: Callable[[], int]) -> int:
        await self.free.wait()
        self.held = True
        return largest_term() + 1

    async def keep(self) -> None:
        await asyncio.Event().wait()

    async def release(self) -> None:
        self.held = False


def test_reports_are_taken_only_while_the_lease_is_held() -> None:
    async def scenario() -> None:
        lease, watches = Lease(), Informers(None)  # type: ignore[arg-type]
        planner = PlannerConfig("chunk").planner()
        controller = Controller(None, watches, planner, Metrics(), clock=time.time, stopwatch=Stopwatch())  # type: ignore[arg-type]
        receiver = PlannerReceiver(controller.reports, controller.chunk_requests)

        async def assert_refused() -> None:
            with pytest.raises(NotLeadingError):
                await receiver.take(Report("default/cats", 1))
            with pytest.raises(NotLeadingError):
                await receiver.ask(ChunkRequest("default/cats", 1, 1))

        async def turns() -> None:
            for _ in range(20):
                await asyncio.sleep(0)

        for _, watch in watches:
            watch._synced.set()
        running = asyncio.create_task(controller.run(lease))  # type: ignore[arg-type]
        await turns()
        await assert_refused()
        lease.free.set()
        await turns()
        assert not running.done()
        assert await receiver.take(Report("default/cats", 1))
        lease.held = False  # a stall, longer than the Lease
        await assert_refused()
        lease.held = True  # a renewal
        assert await receiver.take(Report("default/cats", 1))
        running.cancel()
        await asyncio.wait([running])
        await assert_refused()

    asyncio.run(scenario())
