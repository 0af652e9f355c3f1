"""Event loop in a separate thread, for callers such as notebooks that already run an event loop."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
CLOSING_ITERATIONS = 3
"""Loop iterations in which closed connections release their sockets."""


class LoopThread:
    """Runs coroutines for synchronous callers."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tranche-client", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result; an interrupt of the caller cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """Stop the thread; repeated calls have no effect."""
        if self._thread.is_alive():
            self.call(_iterate_loop(CLOSING_ITERATIONS))
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


async def _iterate_loop(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
