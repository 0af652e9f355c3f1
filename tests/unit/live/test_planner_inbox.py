"""A long backlog of changes is worked off in its order, and only the leader takes reports."""

import asyncio
import time
from collections.abc import Callable, Sequence

import pytest

from support.live_controller import Stopwatch
from tranche.live.controller import Controller
from tranche.live.informers import Informers
from tranche.live.planner_config import PlannerConfig
from tranche.live.planner_inbox import NODES_AT_ONCE, Backlog, Change
from tranche.metrics.scheduler import Metrics
from tranche.model import ChunkRequest, Report
from tranche.planner_api.receiver import NotLeadingError, PlannerReceiver


def turns_of_others(changes: int, seconds_each: float) -> tuple[list[str], int, int]:
    """Return the changes in the order of processing, the turns that others had until then, and the changes left."""
    now, heard, turns = [0.0], list[str](), [0]

    def hear(changes: Sequence[Change]) -> None:
        now[0] += seconds_each
        heard.extend(change[1] for change in changes)

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


def test_long_backlog_leaves_turns_for_the_lease_after_a_second() -> None:
    """A second passes in turns after each change, and then there is one after each 0.2 s."""
    heard, turns, left = turns_of_others(1920, 1 / 128)
    assert heard == [str(number) for number in range(1920)]
    assert turns == 128 + (1920 - 128) // 26
    assert left == 0


def test_changes_that_arrive_after_a_second_do_not_delay_timers() -> None:
    """They are applied with those that come before the next step, so that the queue never keeps the planner."""
    now = [0.0]

    def apply(changes: Sequence[Change]) -> None:
        now[0] += 1 / 128
        backlog.append(("pods", "another", None, None))

    backlog = Backlog(apply, lambda: now[0])
    backlog.extend(("pods", str(number), None, None) for number in range(300))
    asyncio.run(backlog.catch_up())
    assert now[0] == 1.0 + 300 / 128


def test_changes_of_nodes_in_a_row_are_applied_together() -> None:
    applied: list[list[str]] = []
    backlog = Backlog(lambda changes: applied.append([f"{kind} {key}" for kind, key, *_ in changes]), lambda: 0.0)
    kinds = ["nodes", "nodes", "pods", "pods", "nodes"] + ["nodes"] * NODES_AT_ONCE
    backlog.extend((kind, str(number), None, None) for number, kind in enumerate(kinds))
    asyncio.run(backlog.catch_up())
    first = [["nodes 0", "nodes 1"], ["pods 2"], ["pods 3"]]
    assert (applied[:3], [len(one) for one in applied[3:]]) == (first, [NODES_AT_ONCE, 1])


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
