"""Times without reconciles, in which requests that can wait compete with no pod."""

import asyncio
from collections.abc import Callable

BUSY_SECONDS = 0.1
"""Interval of the checks whether reconciles are running."""
PATIENCE_SECONDS = 5.0
"""Longest wait for running reconciles."""


async def wait_until_idle(busy: Callable[[], bool], clock: Callable[[], float], since: float) -> None:
    """Wait until no reconcile is running, at most until `PATIENCE_SECONDS` after `since`.

    Args:
        busy: Returns whether a reconcile is running.
        clock: Monotonic clock of the event loop, in seconds.
        since: Time from which the request could be sent, by this clock.
    """
    while busy() and clock() < since + PATIENCE_SECONDS:
        await asyncio.sleep(BUSY_SECONDS)
