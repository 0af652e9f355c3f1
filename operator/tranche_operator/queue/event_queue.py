"""Queue of Kubernetes events, written while no reconcile runs, so that they compete with no pod.

Nothing depends on an event. Those that wait when the process ends are lost, as with client-go's recorder.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import datetime

from tranche.kube.api.resources import TrainingJob
from tranche_operator.queue.quiet_time import quiet
from tranche_operator.reconcile.actions import EmitEvent

logger = logging.getLogger(__name__)

MOST = 10_000
"""Largest number of waiting events; further ones are dropped."""
BACKLOG = 50
"""Number of waiting events for each additional parallel write."""
PARALLEL = 8

Write = Callable[[TrainingJob, EmitEvent, datetime], Awaitable[None]]


class EventQueue:
    """Queue of events in the order of their occurrence."""

    def __init__(
        self, write: Write, now: Callable[[], datetime], clock: Callable[[], float], busy: Callable[[], bool]
    ) -> None:
        """Store the arguments; nothing is written before `serve`.

        Args:
            write: Writes an event about a job that occurred at a time; it raises no `ApiError`.
            now: Returns the current time, with a time zone.
            clock: Monotonic clock of the event loop, in seconds.
            busy: Returns whether a reconcile is running.
        """
        self._write = write
        self._now = now
        self._clock = clock
        self._busy = busy
        self._waiting: deque[tuple[float, TrainingJob, EmitEvent, datetime]] = deque()
        self._changed = asyncio.Event()

    async def emit(self, job: TrainingJob, event: EmitEvent) -> None:
        """Enqueue an event about a job."""
        if len(self._waiting) >= MOST:
            logger.warning("%s: event %s dropped: %d events are waiting", job.key, event.reason, MOST)
            return
        self._waiting.append((self._clock(), job, event, self._now()))
        self._changed.set()

    async def serve(self) -> None:
        """Write events until cancelled."""
        while True:
            while not self._waiting:
                self._changed.clear()
                await self._changed.wait()
            await quiet(self._busy, self._clock, self._waiting[0][0])
            count = min(1 + len(self._waiting) // BACKLOG, PARALLEL, len(self._waiting))
            taken = [self._waiting.popleft() for _ in range(count)]
            await asyncio.gather(*(self._write(job, event, at) for _, job, event, at in taken))
