"""Queue of watch changes that the planner has not handled yet, processed in order in bursts."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

Change = tuple[str, str, Any, Any]
"""Kind, key, old object, new object."""
BURST_SECONDS = 0.002
"""Time spent on changes before yielding to the event loop, in seconds."""
PATIENCE_SECONDS = 1.0
"""Maximum time spent in bursts; then the rest is processed without yielding, because timers need all changes."""


class Backlog(deque[Change]):
    """Queue of changes, oldest first."""

    def __init__(self, apply: Callable[[Change], None], stopwatch: Callable[[], float]) -> None:
        """Create an empty queue.

        Args:
            apply: Called with each change.
            stopwatch: Monotonic seconds.
        """
        super().__init__()
        self._apply = apply
        self._stopwatch = stopwatch

    def work_off(self) -> None:
        """Apply all changes without yielding."""
        while self:
            self._apply(self.popleft())

    async def catch_up(self) -> None:
        """Apply changes in bursts until the queue is empty or `PATIENCE_SECONDS` have passed."""
        began = breath = self._stopwatch()
        while self and breath - began < PATIENCE_SECONDS:
            self._apply(self.popleft())
            if self._stopwatch() - breath >= BURST_SECONDS:
                await asyncio.sleep(0)
                breath = self._stopwatch()
