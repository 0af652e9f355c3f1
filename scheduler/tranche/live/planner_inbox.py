"""Queues in front of the planner: changes that the watches have seen, and progress reports.

Both are passed on in batches, so that requests of kube-scheduler and timers wait for milliseconds only.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from math import inf
from typing import Any

from tranche.model import Report
from tranche.planner import Planner, ProgressReported
from tranche.planner.handlers.progress import (
    TrainingProgress,
    is_superseded,
    reported_chunks,
    training_progress,
)

Change = tuple[str, str, Any, Any]
"""Kind, key, old object, new object."""
BURST_SECONDS = 0.002
"""Time spent on changes before yielding to the event loop, in seconds."""
PATIENCE_SECONDS = 1.0
"""Maximum time spent in bursts; then the changes that are there are processed in long ones, since timers need them."""
LONG_BURST_SECONDS = 0.2
"""Time before yielding in these, in seconds. A renewal of the Lease takes several turns, and the Lease lasts 8 s."""
NODES_AT_ONCE = 100
"""Maximum number of changes of nodes, one after the other, for one decision: each decision may examine all jobs."""
AT_ONCE = 25
"""Batch size: about 2 ms of work, during which requests of kube-scheduler wait."""


class Backlog(deque[Change]):
    """Queue of changes, oldest first."""

    def __init__(self, apply: Callable[[Sequence[Change]], None], stopwatch: Callable[[], float]) -> None:
        """Create an empty queue.

        Args:
            apply: Called with each change, or with several changes of nodes.
            stopwatch: Monotonic seconds.
        """
        super().__init__()
        self._apply = apply
        self._stopwatch = stopwatch

    def apply_all(self) -> None:
        """Apply all changes without yielding."""
        while self:
            self._apply(self._take())

    async def catch_up(self) -> None:
        """Apply changes in bursts until the queue is empty, or all are applied that were there after a second."""
        began = burst = self._stopwatch()
        left: float = inf
        while self and left > 0:
            left -= len(taken := self._take())
            self._apply(taken)
            if self._stopwatch() - burst >= (BURST_SECONDS if left == inf else LONG_BURST_SECONDS):
                await asyncio.sleep(0)
                burst = self._stopwatch()
            if left == inf and burst - began >= PATIENCE_SECONDS:
                left = len(self)

    def _take(self) -> Sequence[Change]:
        """Remove and return the oldest change, with those that follow if all of them concern nodes."""
        taken = [self.popleft()]
        while self and len(taken) < NODES_AT_ONCE and taken[0][0] == self[0][0] == "nodes":
            taken.append(self.popleft())
        return taken


class ReportInbox:
    """Reports that wait for the planner; the latest report of each attempt replaces earlier ones."""

    def __init__(self, planner: Planner, clock: Callable[[], float]) -> None:
        """Create an empty inbox.

        Args:
            planner: Planner whose jobs report.
            clock: Time of events, in seconds since the epoch.
        """
        self._planner = planner
        self._clock = clock
        self._waiting: dict[tuple[str, int], ProgressReported] = {}
        """Latest report by (job, attempt); each report contains the total progress of the attempt."""
        self.holds_lease: Callable[[], bool] = lambda: True
        """Returns whether this process holds the Lease at this moment."""
        self.restored = False
        """Whether the planner has restored its state; a follower's planner knows no jobs."""

    @property
    def leading(self) -> bool:
        """Whether this process is the leader now. After a stall, only once a renewal of the Lease has succeeded."""
        return self.restored and self.holds_lease()

    def take(self, report: Report) -> bool:
        """Queue a report if its attempt is active. Returns False if a newer attempt has superseded it."""
        state = self._planner.cluster.jobs.get(report.job)
        if state is None or not report.is_of(state.job):
            return True
        if not reported_chunks(state, report.attempt):
            return not is_superseded(state, report.attempt)
        self._waiting[report.job, report.attempt] = ProgressReported(report, self._clock())
        return True

    def drain(self) -> list[ProgressReported]:
        """Remove and return the oldest reports, at most `AT_ONCE`."""
        first = list(islice(self._waiting, AT_ONCE))
        return [self._waiting.pop(key) for key in first]

    @property
    def waiting(self) -> bool:
        """Whether reports are queued."""
        return bool(self._waiting)

    def training_progress(self, key: str) -> TrainingProgress | None:
        """Return the current progress of a job; None if this process does not plan it."""
        state = self._planner.cluster.jobs.get(key) if self.leading else None
        return training_progress(state, self._clock()) if state is not None else None
