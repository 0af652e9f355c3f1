"""Inbox of progress reports, which the controller passes to the planner in batches."""

from collections.abc import Callable
from itertools import islice

from tranche.model import Report
from tranche.planner import Planner, ProgressReported
from tranche.planner.handlers.progress import Trained, is_superseded, reported_chunks, trained

AT_ONCE = 25
"""Batch size: about 2 ms of work, during which requests of kube-scheduler wait."""


class ReportInbox:
    """Reports that wait for the planner; the latest report of each attempt replaces earlier ones."""

    def __init__(self, planner: Planner, clock: Callable[[], float], held: Callable[[], bool] = lambda: True) -> None:
        """Create an empty inbox.

        Args:
            planner: Planner whose jobs report.
            clock: Time of events, in seconds since the epoch.
            held: Whether this process holds the Lease at this moment.
        """
        self._planner = planner
        self._clock = clock
        self._waiting: dict[tuple[str, int], ProgressReported] = {}
        """Latest report by (job, attempt); each report contains the total progress of the attempt."""
        self.held = held
        self.restored = False
        """Whether the planner has restored its state; a follower's planner knows no jobs."""

    @property
    def leading(self) -> bool:
        """Whether this process is the leader now. After a stall, only once a renewal of the Lease has succeeded."""
        return self.restored and self.held()

    def take(self, report: Report) -> bool:
        """Queue a report if its attempt is active. Returns False if a newer attempt has superseded it."""
        state = self._planner.cluster.jobs.get(report.job)
        if state is None or not reported_chunks(state, report.attempt):
            return state is None or not is_superseded(state, report.attempt)
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

    def trained(self, key: str) -> Trained | None:
        """Return the current progress of a job; None if this process does not plan it."""
        state = self._planner.cluster.jobs.get(key) if self.leading else None
        return trained(state, self._clock()) if state is not None else None
