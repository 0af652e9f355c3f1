"""Delay of the event loop: how late it continues a task whose time has come, and so begins with a request."""

import asyncio
from collections.abc import Callable

INTERVAL_SECONDS = 0.1


async def observe_delays(observe: Callable[[float], None]) -> None:
    """Measure the delay at each interval, forever.

    Args:
        observe: Receives the delay in seconds.
    """
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + INTERVAL_SECONDS
        await asyncio.sleep(INTERVAL_SECONDS)
        observe(max(0.0, loop.time() - due))
