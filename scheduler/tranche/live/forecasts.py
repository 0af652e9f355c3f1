"""When the plan is played forward: as often as its cost allows, since nothing else happens meanwhile."""

from collections.abc import Callable, Mapping

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
        self.due = True
        """Something has happened since the last one."""

    def refresh(self, now: float) -> Mapping[str, Estimate]:
        """The estimates of all jobs if they were made anew, else none.

        Args:
            now: Clock, in seconds.
        """
        began = self._stopwatch()
        if not self.due or began < self._not_before:
            return {}
        estimates = self._planner.forecast(now)
        self.due = False
        took = max(self._stopwatch() - began, SHORTEST_SECONDS)
        self._observe(took)
        more = self._planner.rehearsals = min(self._planner.rehearsals, int(self._settings.verify_seconds / took))
        self._not_before = began + took * (1 + more) / self._settings.forecast_share
        return estimates
