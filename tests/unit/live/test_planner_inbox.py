"""A long backlog of changes is worked off in its order, and others have their turns meanwhile."""

import asyncio

from tranche.live.planner_inbox import Backlog, Change


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
        backlog.work_off()
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
