"""Control of Python's garbage collector so that full collections do not stall the event loop.

A full collection traverses all objects, which takes 0.1 s or more for a large cluster, and Python starts one when their
number has grown by a quarter. Therefore automatic full collections are disabled; instead, existing objects are frozen
periodically and only new objects are traversed. Collections of new objects are rarer than by default, since one
decoded object of the API has hundreds of parts: in a burst of jobs, this saves 5 % of the CPU time of the scheduler.
"""

import asyncio
import gc
from collections.abc import Awaitable, Callable

PAUSE_SECONDS = 10.0
ROUNDS = 360
"""Number of rounds after which one full collection finds frozen objects that have become cyclic garbage."""
NEVER = 1_000_000_000
YOUNG = 10_000
"""Number of new objects that start a collection of these."""
MIDDLE = 5
"""Number of such collections after which the next one includes their survivors, which takes some milliseconds."""


async def freeze_periodically(
    synced: Awaitable[None], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> None:
    """Collect and freeze periodically, forever.

    Args:
        synced: Completes when the long-lived objects exist.
        sleep: Waits for a number of seconds.
    """
    await synced
    gc.set_threshold(YOUNG, MIDDLE, NEVER)
    rounds = 0
    while True:
        if rounds % ROUNDS == 0:
            gc.unfreeze()
        gc.collect()
        gc.freeze()
        rounds += 1
        await sleep(PAUSE_SECONDS)
