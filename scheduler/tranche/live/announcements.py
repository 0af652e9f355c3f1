"""Estimates as last written, to avoid writing estimates that have hardly moved."""

from collections.abc import Iterator, Mapping

from tranche.live.settings import ControllerSettings
from tranche.model import JobPlan
from tranche.planner.estimates import Estimate


class Announcements:
    """Planned start and completion of each job, as last written."""

    def __init__(self, settings: ControllerSettings) -> None:
        self._settings = settings
        self._written: dict[str, tuple[float | None, float | None]] = {}

    def note(self, key: str, plan: JobPlan) -> None:
        """Record the estimates of a plan that is written now."""
        self._written[key] = (plan.estimated_start, plan.estimated_completion)

    def forget(self, key: str) -> None:
        """Drop a deleted job."""
        self._written.pop(key, None)

    def outdated(self, estimates: Mapping[str, Estimate], now: float) -> Iterator[str]:
        """Yield the jobs whose estimates differ too much from the written ones."""
        for key, estimate in estimates.items():
            start, completion = self._written.get(key, (None, None))
            if self._moved(start, estimate.start, now) or self._moved(completion, estimate.completion, now):
                yield key

    def _moved(self, before: float | None, after: float, now: float) -> bool:
        if before is None:
            return True
        quantum = max(self._settings.estimate_seconds, self._settings.estimate_fraction * max(0.0, before - now))
        return abs(after - before) > quantum
