"""When the plan is played forward: as often as its cost allows, since nothing else happens meanwhile."""

from collections.abc import Callable, Mapping
from math import inf

from tranche.live.settings import ControllerSettings
from tranche.planner import Planner
from tranche.planner.estimates import Estimate

SHORTEST_SECONDS = 1e-6
"""What a stopwatch may not tell from nothing."""


class Forecasts:
    """The planner's estimates, kept as fresh as the settings allow."""

    def __init__(
        self,
        planner: Planner,
        settings: ControllerSettings,
        stopwatch: Callable[[], float],
        observe: Callable[[float], None] = lambda _: None,
    ) -> None:
        """Nothing is played yet.

        Args:
            planner: Whose plan it is.
            settings: How much time it may take.
            stopwatch: Monotonic seconds.
            observe: Told how long each took, in seconds.
        """
        self._observe = observe
        self._planner = planner
        self._settings = settings
        self._stopwatch = stopwatch
        self._not_before = 0.0
        self._since: float | None = -inf
        """When something first happened since the last one; None: nothing has."""
        self._last = -inf
        """When something last happened."""

    def stir(self) -> None:
        """Something has happened."""
        self._last = self._stopwatch()
        if self._since is None:
            self._since = self._last

    @property
    def next_due(self) -> float:
        """When the next one is due, by the stopwatch: in a quiet moment if there is one; infinite if none is."""
        if self._since is None:
            return inf
        settings = self._settings
        calm = min(self._last + settings.forecast_quiet_seconds, self._since + settings.forecast_patience_seconds)
        return max(calm, self._not_before)

    def refresh(self, now: float) -> Mapping[str, Estimate]:
        """The estimates of all jobs if they were made anew, else none.

        Args:
            now: Clock, in seconds.
        """
        began = self._stopwatch()
        if began < self.next_due:
            return {}
        estimates = self._planner.forecast(now)
        self._since = None
        took = max(self._stopwatch() - began, SHORTEST_SECONDS)
        self._observe(took)
        more = self._planner.rehearsals = min(self._planner.rehearsals, int(self._settings.verify_seconds / took))
        self._not_before = began + took * (1 + more) / self._settings.forecast_share
        return estimates
