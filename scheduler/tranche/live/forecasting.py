"""Schedule of forecasts: as often as their cost allows, and in short steps, because they block the event loop."""

from collections.abc import Callable, Iterator, Mapping
from math import inf

from tranche.live.settings import ControllerSettings
from tranche.planner import Planner
from tranche.planner.forecast.estimates import Estimate

SHORTEST_SECONDS = 1e-6
"""Lower bound of measured durations, to avoid a division by zero."""


def _never() -> bool:
    return False


class Forecasts:
    """Forecasts of one planner, as often as the settings allow."""

    def __init__(
        self,
        planner: Planner,
        settings: ControllerSettings,
        stopwatch: Callable[[], float],
        observe: Callable[[float], None] = lambda _: None,
        held: Callable[[], bool] = _never,
    ) -> None:
        """Create without starting a forecast.

        Args:
            planner: Planner to forecast.
            settings: Time limits.
            stopwatch: Monotonic seconds.
            observe: Called with the duration of each forecast in seconds.
            held: Whether statuses with estimates are held back, so that the results of a forecast would not be written.
        """
        self._observe = observe
        self._held = held
        self._planner = planner
        self._settings = settings
        self._stopwatch = stopwatch
        self._not_before = 0.0
        self._steps: Iterator[None] | None = None
        """Remaining steps of the current forecast, which started at `_begun`, has used `_spent` seconds and continues
        at `_next_step`."""
        self._next_step = self._begun = self._spent = 0.0
        self._since: float | None = -inf
        """Time of the first event since the last forecast; None if there was none."""
        self._is_urgent = False
        """Whether a user has changed a job since the last forecast."""
        self._last = -inf
        """Time of the last event."""

    def note_event(self) -> None:
        """Record that an event has happened."""
        self._last = self._stopwatch()
        if self._since is None:
            self._since = self._last

    def skip_quiet_time(self) -> None:
        """Begin the next forecast without a quiet time, because a user has changed a job."""
        self.note_event()
        self._is_urgent = True

    @property
    def next_due(self) -> float:
        """Time of the next step by the stopwatch; infinite if none is due.

        The first step waits for a time without events, up to `forecast_patience_seconds`, or up to
        `forecast_hold_seconds` while statuses are held back.
        """
        if self._steps is not None:
            return self._next_step
        if self._since is None:
            return inf
        settings, held = self._settings, self._held()
        if self._is_urgent and not held:
            return self._not_before
        patience = settings.forecast_hold_seconds if held else settings.forecast_patience_seconds
        quiet_at = min(self._last + settings.forecast_quiet_seconds, self._since + patience)
        return max(quiet_at, self._not_before)

    def refresh(self, now: float) -> Mapping[str, Estimate]:
        """Run one step if it is due. Returns the estimates of all jobs when a forecast completes, otherwise nothing.

        Args:
            now: Wall clock in seconds.
        """
        began = self._stopwatch()
        if began < self.next_due:
            return {}
        if self._steps is None:
            self._steps = self._planner.forecasting(now)
            self._since, self._is_urgent, self._begun, self._spent = None, False, began, 0.0
        complete = self._run_steps(self._steps, began + self._settings.forecast_piece_seconds)
        ended = self._stopwatch()
        self._spent += ended - began
        self._next_step = ended + (ended - began)
        if not complete:
            return {}
        self._steps = None
        took = max(self._spent, SHORTEST_SECONDS)
        self._observe(took)
        more = self._planner.rollouts_left = min(self._planner.rollouts_left, int(self._settings.verify_seconds / took))
        self._not_before = self._begun + took * (1 + more) / self._settings.forecast_share
        return self._planner.estimates

    def _run_steps(self, steps: Iterator[None], until: float) -> bool:
        """Run the forecast until that time by the stopwatch; returns whether it is complete."""
        return all(self._stopwatch() < until for _ in steps)
