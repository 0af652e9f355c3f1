"""Delay of the event loop."""

import asyncio

import pytest

from support.virtual_time_loop import JumpingLoop, run
from tranche.runtime.loop_delay import INTERVAL_SECONDS, observe_delays


def test_delay_is_the_time_for_which_the_loop_is_busy() -> None:
    found: list[float] = []

    async def main(loop: JumpingLoop) -> None:
        def compute() -> None:
            loop.now += 3.0

        task = asyncio.create_task(observe_delays(found.append))
        loop.call_later(1.5 * INTERVAL_SECONDS, compute)
        await asyncio.sleep(3.0 + 3.5 * INTERVAL_SECONDS)
        task.cancel()

    run(main)
    assert found == [pytest.approx(delay, abs=1e-9) for delay in (0.0, 3.0 - INTERVAL_SECONDS / 2, 0.0)]
