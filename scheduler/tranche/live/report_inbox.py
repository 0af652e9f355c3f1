"""Reports on their way to the planner: taken at once, counted together once a turn of its loop."""

from collections.abc import Callable
from itertools import islice

from tranche.model import Report
from tranche.planner import Planner, ProgressReported
from tranche.planner.handlers.progress import Trained, is_superseded, reported_chunks, trained

AT_ONCE = 25
"""Reports that are counted before others get their turn: some two milliseconds, for which kube-scheduler waits."""


class ReportDesk:
    """Between the report API and the planner."""

    def __init__(self, planner: Planner, clock: Callable[[], float]) -> None:
        self._planner = planner
        self._clock = clock
        self._waiting: dict[tuple[str, int], ProgressReported] = {}
        """The last report of each attempt: each one tells the whole."""
        self.leading = False
        """Whether this process plans; before, it knows of no job."""

    def take(self, report: Report) -> bool:
        """Have the report counted in the next turn, if its attempt goes on; False if another one has taken over."""
        state = self._planner.cluster.jobs.get(report.job)
        if state is None or not reported_chunks(state, report.attempt):
            return state is None or not is_superseded(state, report.attempt)
        self._waiting[report.job, report.attempt] = ProgressReported(report, self._clock())
        return True

    def drain(self) -> list[ProgressReported]:
        """Those that have waited longest, at most `AT_ONCE`; they are not held any more."""
        first = list(islice(self._waiting, AT_ONCE))
        return [self._waiting.pop(key) for key in first]

    @property
    def waiting(self) -> bool:
        """Whether there are more."""
        return bool(self._waiting)

    def trained(self, key: str) -> Trained | None:
        """How far a job is now; None if this process does not plan it."""
        state = self._planner.cluster.jobs.get(key) if self.leading else None
        return trained(state, self._clock()) if state is not None else None
