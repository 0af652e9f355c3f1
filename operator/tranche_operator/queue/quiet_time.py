"""Times without reconciles and starts of pods, in which requests that can wait compete with no pod."""

import asyncio
from collections.abc import Callable

POLL_SECONDS = 0.1
"""Interval at which a wait checks whether something is busy."""
START_SECONDS = 2.0
"""Time after the binding or start of a pod during which others are expected to start."""
PATIENCE_SECONDS = 5.0
"""Longest wait of a clean-up for running reconciles."""


async def wait_until_idle(
    busy: Callable[[], bool], clock: Callable[[], float], since: float, patience_seconds: float = PATIENCE_SECONDS
) -> None:
    """Wait until nothing is busy, at most until `patience_seconds` after `since`.

    Args:
        busy: Returns whether reconciles run or, for some requests, pods start.
        clock: Monotonic clock of the event loop, in seconds.
        since: Time from which the request could be sent, by this clock.
        patience_seconds: Longest wait.
    """
    while busy() and clock() < since + patience_seconds:
        await asyncio.sleep(POLL_SECONDS)
