"""What the watches have reported and the planner has not heard of yet; heard in its order, with turns for others."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

Change = tuple[str, str, Any, Any]
"""Kind, key, old object, new object."""
BURST_SECONDS = 0.002
"""After so much work on changes the loop serves others …"""
PATIENCE_SECONDS = 1.0
"""… unless it has done so for so long: all must have been heard before timers are looked at."""


class Backlog(deque[Change]):
    """Changes, the oldest first."""

    def __init__(self, hear: Callable[[Change], None], stopwatch: Callable[[], float]) -> None:
        """There are none yet.

        Args:
            hear: Called with one after the other.
            stopwatch: Monotonic seconds.
        """
        super().__init__()
        self._hear = hear
        self._stopwatch = stopwatch

    def work_off(self) -> None:
        """All of them at once."""
        while self:
            self._hear(self.popleft())

    async def catch_up(self) -> None:
        """All of them, or as many as there is patience for, while others have their turns."""
        began = breath = self._stopwatch()
        while self and breath - began < PATIENCE_SECONDS:
            self._hear(self.popleft())
            if self._stopwatch() - breath >= BURST_SECONDS:
                await asyncio.sleep(0)
                breath = self._stopwatch()
