"""Python's garbage collector, so tended that it does not stall the loop.

A full collection looks at all that is held, 0.1 s and more of a large cluster, and Python makes one whenever that has
grown by a quarter. So it makes none by itself: what is there is set aside, and only what is new is looked at.
"""

import asyncio
import gc
from collections.abc import Awaitable, Callable

PAUSE_SECONDS = 10.0
ROUNDS = 360
"""After so many everything is looked at, once: what was set aside and has become garbage in rings is found then."""
NEVER = 1_000_000_000


async def freeze_periodically(
    synced: Awaitable[None], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> None:
    """Collect for ever, from when all that stays is there.

    Args:
        synced: Done then.
        sleep: For some seconds.
    """
    await synced
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, NEVER)
    rounds = 0
    while True:
        if rounds % ROUNDS == 0:
            gc.unfreeze()
        gc.collect()
        gc.freeze()
        rounds += 1
        await sleep(PAUSE_SECONDS)
