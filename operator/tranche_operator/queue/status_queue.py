"""Queue of jobs whose status may wait, so that a status that only reports delays no pod.

Such a status says that the job waits, or that its pods exist or run. It has to last for a moment, and it is written
while no pods start: if hundreds of jobs start at once, their pods come first, and only a few statuses each second are
written meanwhile. The queue reconciles the job again at that time, because its status may have changed.
"""

import asyncio
from collections.abc import Callable
from itertools import islice

from tranche.runtime.report_pace import reports_per_gap
from tranche_operator.queue.quiet_time import POLL_SECONDS, wait_until_idle

GAP_SECONDS = 0.5
"""Time between two statuses while pods start. Late ones are more at a time."""
BACKLOG = 10
"""Number of waiting statuses for each additional one that is due at the same time."""


class StatusQueue:
    """Jobs whose status waits, in the order of their first request."""

    def __init__(
        self,
        again: Callable[[str], None],
        settle_seconds: float,
        clock: Callable[[], float],
        busy: Callable[[], bool],
    ) -> None:
        """Store the arguments; nothing becomes due before `serve`.

        Args:
            again: Called with the key of a job whose status is due.
            settle_seconds: Time for which a status must last.
            clock: Monotonic clock of the event loop, in seconds.
            busy: Returns whether pods start.
        """
        self._again = again
        self._settle_seconds = settle_seconds
        self._clock = clock
        self._busy = busy
        self._waiting: dict[str, float] = {}
        """Time of the first request, by key of the job."""
        self._due: set[str] = set()
        self._last = float("-inf")
        """Time at which the last status was due."""
        self._changed = asyncio.Event()

    def postpone(self, key: str, *, passing: bool) -> bool:
        """Return whether the status of a job has to wait; the job is reconciled again when it is due.

        Args:
            key: ``namespace/name`` of the job.
            passing: Whether the status is likely to change again soon, so that it has to last first.
        """
        now = self._clock()
        if not passing and self._waiting.keys() <= {key} and now - self._last >= GAP_SECONDS:
            self._waiting.pop(key, None)
            self._due.add(key)
            self._last = now
        if key in self._due:
            return False
        self._waiting.setdefault(key, now)
        self._changed.set()
        return True

    def forget(self, key: str) -> None:
        """Forget a job whose status has been written, or needs no write any more."""
        self._waiting.pop(key, None)
        self._due.discard(key)

    async def serve(self) -> None:
        """Reconcile jobs whose status is due until cancelled, the longest waiting first."""
        while True:
            while not self._waiting:
                self._changed.clear()
                await self._changed.wait()
            settled = next(iter(self._waiting.values())) + self._settle_seconds
            await asyncio.sleep(max(0.0, settled - self._clock()))
            await wait_until_idle(self._busy, self._clock, self._clock(), GAP_SECONDS)
            for key in self._take(self._number_due()):
                self._due.add(key)
                self._last = self._clock()
                self._again(key)
            await asyncio.sleep(POLL_SECONDS)

    def _number_due(self) -> int:
        """Return the number of statuses that are due now, if they have lasted long enough."""
        if self._busy() and self._waiting:
            return reports_per_gap(self._clock() - next(iter(self._waiting.values())))
        return 1 + len(self._waiting) // BACKLOG

    def _take(self, count: int) -> list[str]:
        """Remove and return the first jobs, up to this number, whose status has lasted long enough."""
        latest = self._clock() - self._settle_seconds
        chosen = [key for key, since in islice(self._waiting.items(), count) if since <= latest]
        for key in chosen:
            del self._waiting[key]
        return chosen
