"""Renewal of statuses without an event of their job: if a planned time or the share of mini-batches has moved enough.

The times and shares that were last written are kept for this comparison. A job that trains long chunks has no other
reason for a write for hours.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tranche.live.settings import ControllerSettings
from tranche.model import JobPlan
from tranche.planner.forecast.estimates import Estimate

PAUSE_SECONDS = 1.0
"""Least time between two comparisons of the progress of a job, and so between two of these writes over all jobs."""


@dataclass(frozen=True, slots=True)
class WrittenEstimate:
    """Planned start and completion in the status of a job, and the job that it waits behind."""

    start: float | None = None
    """Planned start in seconds; None without an estimate."""
    completion: float | None = None
    """Planned completion in seconds; None without an estimate."""
    behind: str = ""
    """Key of the job that the explanation names as the cause of the wait; empty if it names none."""


_NOTHING = WrittenEstimate()


class EstimateRenewal:
    """Search for jobs whose planned times, or the jobs that they wait behind, differ from their status."""

    def __init__(self, settings: ControllerSettings) -> None:
        self._settings = settings
        self._written: dict[str, WrittenEstimate] = {}
        self._changed: dict[str, int] = {}
        """Jobs that users have changed or deleted, and how many forecasts still renew the explanations that name them.
        The first of two may have begun before the change."""

    def note(self, key: str, plan: JobPlan) -> None:
        """Record the estimates of a plan that is written now."""
        self._written[key] = WrittenEstimate(plan.estimated_start, plan.estimated_completion, plan.waits_behind)

    def forget(self, key: str) -> None:
        """Drop a deleted job."""
        self._written.pop(key, None)

    def job_changed(self, key: str) -> None:
        """Record that a user has changed or deleted a job: the explanations that name it are renewed."""
        self._changed[key] = 2

    def outdated(self, estimates: Mapping[str, Estimate], now: float) -> Iterator[str]:
        """Yield the jobs whose estimates differ too much from the written ones, or that wait behind a changed job.

        Args:
            estimates: Estimates of all jobs, from a forecast that is complete; empty if none is.
            now: Clock, in seconds.
        """
        changed = self._changed
        if estimates:
            self._changed = {key: left - 1 for key, left in changed.items() if left > 1}
        for key, estimate in estimates.items():
            before = self._written.get(key, _NOTHING)
            moved = self._moved(before.start, estimate.start, now)
            moved = moved or self._moved(before.completion, estimate.completion, now)
            if moved or before.behind in changed or estimate.behind in changed:
                yield key

    def _moved(self, before: float | None, after: float, now: float) -> bool:
        if before is None:
            return True
        quantum = max(self._settings.estimate_seconds, self._settings.estimate_fraction * max(0.0, before - now))
        return abs(after - before) > quantum


@dataclass(frozen=True, slots=True)
class _Compared:
    """Share of the mini-batches in the status of a job, when it was last compared."""

    at: float
    share: float


class ProgressRenewal:
    """Search for running jobs whose progress differs from their status; the job compared longest ago comes first."""

    def __init__(self, settings: ControllerSettings) -> None:
        self._settings = settings
        self._compared: dict[str, _Compared] = {}
        self._not_before = 0.0

    def note(self, key: str, share: float | None, now: float) -> None:
        """Record the share that is written now; None for a job that does not run."""
        self._compared.pop(key, None)
        if share is not None:
            self._compared[key] = _Compared(now, share)

    def outdated(self, share_of: Callable[[str], float | None], now: float) -> str:
        """Return a job whose written share differs too much from the present one; "" if there is none to write now.

        Args:
            share_of: Present share of a job; None if it does not run.
            now: Clock, in seconds.
        """
        key = next(iter(self._compared), "")
        if not key or now < self._not_before or now - self._compared[key].at < self._settings.progress_seconds:
            return ""
        self._not_before = now + PAUSE_SECONDS
        known = self._compared.pop(key)
        share = share_of(key)
        if share is None:
            return ""
        self._compared[key] = _Compared(now, known.share)
        return key if abs(share - known.share) >= self._settings.progress_share else ""
