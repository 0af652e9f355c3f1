"""Turns of groups in a queue."""

import asyncio

from tranche.runtime.fair_queue import FairQueue


def test_groups_take_turns() -> None:
    async def scenario() -> list[str]:
        queue = FairQueue(per_group=10)
        for item in ("a1", "a2", "a3", "b1", "c1", "c2"):
            queue.put(item[0], item)
        return [(await queue.get())[1] for _ in range(6)]

    assert asyncio.run(scenario()) == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_group_at_its_limit_waits_for_its_own_items() -> None:
    async def scenario() -> None:
        queue = FairQueue(per_group=1)
        for item in ("a1", "a2", "b1"):
            queue.put(item[0], item)
        assert await queue.get() == ("a", "a1")
        assert await queue.get() == ("b", "b1")
        waiting = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        queue.done("b")
        await asyncio.sleep(0)
        assert not waiting.done()
        queue.done("a")
        assert await waiting == ("a", "a2")

    asyncio.run(scenario())


def test_cancelled_waiter_loses_no_item() -> None:
    async def scenario() -> None:
        queue = FairQueue(per_group=1)
        first, second = (asyncio.create_task(queue.get()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        queue.put("a", "a1")
        assert await second == ("a", "a1")

    asyncio.run(scenario())
