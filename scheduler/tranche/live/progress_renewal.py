"""Renewal of written progress: a job that trains long chunks has no other reason to be written for hours."""

from collections.abc import Callable
from dataclasses import dataclass

from tranche.live.settings import ControllerSettings

PAUSE_SECONDS = 1.0
"""Minimum gap between two looks, each at one job: the limit of these writes over all jobs together."""


@dataclass(frozen=True, slots=True)
class _Look:
    """Share of the mini-batches in the status of a job, when it was last compared."""

    at: float
    share: float


class ProgressRenewal:
    """Share of the mini-batches of each running job in its status, the one that was compared longest ago first."""

    def __init__(self, settings: ControllerSettings) -> None:
        self._settings = settings
        self._looks: dict[str, _Look] = {}
        self._not_before = 0.0

    def note(self, key: str, share: float | None, now: float) -> None:
        """Record the share that is written now; None for a job that does not run."""
        self._looks.pop(key, None)
        if share is not None:
            self._looks[key] = _Look(now, share)

    def outdated(self, share_of: Callable[[str], float | None], now: float) -> str:
        """Return a job whose written share differs too much from the present one; "" if there is none to write now.

        Args:
            share_of: Present share of a job; None if it does not run.
            now: Clock, in seconds.
        """
        key = next(iter(self._looks), "")
        if not key or now < self._not_before or now - self._looks[key].at < self._settings.progress_seconds:
            return ""
        self._not_before = now + PAUSE_SECONDS
        known = self._looks.pop(key)
        share = share_of(key)
        if share is None:
            return ""
        self._looks[key] = _Look(now, known.share)
        return key if abs(share - known.share) >= self._settings.progress_share else ""
