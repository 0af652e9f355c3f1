"""Wall clock without steps: after a step of the clock that it follows, it approaches that clock slowly."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

LARGEST_RATE = 0.5
"""Seconds of correction per second."""


def _system_time() -> float:
    return time.time()


def _elapsed_time() -> float:
    """Return seconds that no step changes, and that include a suspension of the machine if the system counts it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class SteadyClock:
    """Seconds since the epoch, which pass at 0.5 to 1.5 times their true rate and never go back.

    A node may boot with a wrong clock, which NTP sets later. Pauses, deadlines and measured durations must not become
    an hour longer or shorter then. After a step of an hour, this clock agrees with the other one again after two hours.
    """

    def __init__(
        self, system: Callable[[], float] = _system_time, stopwatch: Callable[[], float] = _elapsed_time
    ) -> None:
        """Start with the time of the clock that it follows.

        Args:
            system: Clock to follow, in seconds since the epoch.
            stopwatch: Seconds that no step changes.
        """
        self._system, self._stopwatch = system, stopwatch
        self.synchronize()

    def synchronize(self) -> None:
        """Take over the time of the clock that it follows, at a moment when nothing depends on this one."""
        self._now, self._at = self._system(), self._stopwatch()

    def __call__(self) -> float:
        """Return the seconds since the epoch."""
        at = self._stopwatch()
        passed, self._at = max(0.0, at - self._at), at
        max_correction = LARGEST_RATE * passed
        self._now += passed
        self._now += min(max(self._system() - self._now, -max_correction), max_correction)
        return self._now

    def utc(self) -> datetime:
        """Return the time with the time zone UTC."""
        return datetime.fromtimestamp(self(), UTC)
