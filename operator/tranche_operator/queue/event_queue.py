"""Queue of Kubernetes events, written while no pods start, and few of them meanwhile, so that they compete with no pod.

Of one job, events of equal type and reason are at most one every `SPACING_SECONDS`: those in between wait and are
merged. Nothing depends on an event. Those that wait when the process ends are lost, as with client-go's recorder.
"""

import asyncio
import heapq
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from tranche.kube.api.resources import TrainingJob
from tranche.runtime.report_pace import reports_per_gap
from tranche_operator.queue.quiet_time import wait_until_idle
from tranche_operator.reconcile.actions import EmitEvent
from tranche_operator.reconcile.event_merge import AT_ONCE, SPACING_SECONDS, merge

logger = logging.getLogger(__name__)

GAP_SECONDS = 0.1
"""Time between two events while pods start. Late ones are more at a time."""
MAX_WAITING = 10_000
"""Largest number of waiting events; further ones are dropped."""
BACKLOG = 50
"""Number of waiting events for each additional parallel write."""
PARALLEL = 8

Write = Callable[[TrainingJob, EmitEvent, datetime, int], Awaitable[None]]


class _Kind(NamedTuple):
    """Events of one job that are merged."""

    uid: str
    type: str
    reason: str


@dataclass(slots=True)
class _Waiting:
    job: TrainingJob
    event: EmitEvent
    at: datetime
    """Time of the last occurrence."""
    count: int = 1


class EventQueue:
    """Queue of events in the order in which they are due."""

    def __init__(
        self, write: Write, now: Callable[[], datetime], clock: Callable[[], float], busy: Callable[[], bool]
    ) -> None:
        """Store the arguments; nothing is written before `serve`.

        Args:
            write: Writes an event about a job with the time of its last occurrence and the number of occurrences; it
                raises no `ApiError`.
            now: Returns the current time, with a time zone.
            clock: Monotonic clock of the event loop, in seconds.
            busy: Returns whether pods start.
        """
        self._write = write
        self._now = now
        self._clock = clock
        self._busy = busy
        self._waiting: dict[_Kind, _Waiting] = {}
        self._due: list[tuple[float, int, _Kind]] = []
        """Heap with the time at which each waiting event is due, by this clock."""
        self._number = 0
        self._spaced: OrderedDict[_Kind, float] = OrderedDict()
        """Times from which the next event of a kind may be written, in order."""
        self._changed = asyncio.Event()

    async def emit(self, job: TrainingJob, event: EmitEvent) -> None:
        """Enqueue an event about a job, or merge it into one that waits."""
        kind = _Kind(job.metadata.uid, event.type, event.reason)
        waiting = self._waiting.get(kind)
        if waiting is not None:
            waiting.event = merge((waiting.event, event))
            waiting.job, waiting.at, waiting.count = job, self._now(), waiting.count + 1
            return
        if len(self._waiting) >= MAX_WAITING:
            logger.warning("%s: event %s dropped: %d events are waiting", job.key, event.reason, MAX_WAITING)
            return
        now = self._clock()
        due = now if event.reason in AT_ONCE else max(now, self._spaced.get(kind, now))
        self._waiting[kind] = _Waiting(job, event, self._now())
        self._number += 1
        heapq.heappush(self._due, (due, self._number, kind))
        self._changed.set()

    async def serve(self) -> None:
        """Write events until cancelled."""
        while True:
            since = await self._first_due()
            await wait_until_idle(self._busy, self._clock, self._clock(), GAP_SECONDS)
            pace = reports_per_gap(self._clock() - since) if self._busy() else 1 + len(self._waiting) // BACKLOG
            taken = self._take(min(pace, PARALLEL))
            await asyncio.gather(*(self._write(one.job, one.event, one.at, one.count) for one in taken))

    async def _first_due(self) -> float:
        """Wait until an event is due, and return since when."""
        while True:
            self._changed.clear()
            wait = self._due[0][0] - self._clock() if self._due else None
            if wait is not None and wait <= 0.0:
                return self._due[0][0]
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()

    def _take(self, count: int) -> list[_Waiting]:
        """Take up to this number of the next events that are due."""
        now = self._clock()
        taken: list[_Waiting] = []
        while self._spaced and next(iter(self._spaced.values())) <= now:
            self._spaced.popitem(last=False)
        while len(taken) < count and self._due and self._due[0][0] <= now:
            kind = heapq.heappop(self._due)[2]
            taken.append(self._waiting.pop(kind))
            self._spaced[kind] = now + SPACING_SECONDS
            self._spaced.move_to_end(kind)
        return taken
