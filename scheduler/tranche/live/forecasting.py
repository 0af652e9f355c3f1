"""When the plan is played forward: as often as its cost allows, and in pieces, since nothing else happens meanwhile.

Which estimates the API server has, so that it is not asked to write those that hardly moved.
"""

from collections.abc import Callable, Iterator, Mapping
from math import inf

from tranche.live.settings import ControllerSettings
from tranche.model import JobPlan
from tranche.planner import Planner
from tranche.planner.forecast.estimates import Estimate

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
        self._playing: Iterator[None] | None = None
        """What is left of the forecast that has begun; goes on at `_go_on`, began at `_begun`, has taken `_spent`."""
        self._go_on = self._begun = self._spent = 0.0
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
        """When the next piece is due, by the stopwatch; infinite if none is.

        The first one waits for a quiet moment, if there is one.
        """
        if self._playing is not None:
            return self._go_on
        if self._since is None:
            return inf
        settings = self._settings
        calm = min(self._last + settings.forecast_quiet_seconds, self._since + settings.forecast_patience_seconds)
        return max(calm, self._not_before)

    def refresh(self, now: float) -> Mapping[str, Estimate]:
        """Play one more piece if it is time; the estimates of all jobs if they are made anew, else none.

        Args:
            now: Clock, in seconds.
        """
        began = self._stopwatch()
        if began < self.next_due:
            return {}
        if self._playing is None:
            self._playing = self._planner.forecasting(now)
            self._since, self._begun, self._spent = None, began, 0.0
        over = self._play(self._playing, began + self._settings.forecast_piece_seconds)
        ended = self._stopwatch()
        self._spent += ended - began
        self._go_on = ended + (ended - began)
        if not over:
            return {}
        self._playing = None
        took = max(self._spent, SHORTEST_SECONDS)
        self._observe(took)
        more = self._planner.rollouts_left = min(self._planner.rollouts_left, int(self._settings.verify_seconds / took))
        self._not_before = self._begun + took * (1 + more) / self._settings.forecast_share
        return self._planner.estimates

    def _play(self, playing: Iterator[None], until: float) -> bool:
        """Go on until that time, by the stopwatch; whether there is nothing left."""
        return all(self._stopwatch() < until for _ in playing)


class Announcements:
    """Planned start and completion of each job as last written."""

    def __init__(self, settings: ControllerSettings) -> None:
        self._settings = settings
        self._written: dict[str, tuple[float | None, float | None]] = {}

    def note(self, key: str, plan: JobPlan) -> None:
        """The plan is being written."""
        self._written[key] = (plan.estimated_start, plan.estimated_completion)

    def forget(self, key: str) -> None:
        """The job is gone."""
        self._written.pop(key, None)

    def outdated(self, estimates: Mapping[str, Estimate], now: float) -> Iterator[str]:
        """Jobs whose estimates have moved far from what was written."""
        for key, estimate in estimates.items():
            start, completion = self._written.get(key, (None, None))
            if self._moved(start, estimate.start, now) or self._moved(completion, estimate.completion, now):
                yield key

    def _moved(self, before: float | None, after: float, now: float) -> bool:
        if before is None:
            return True
        quantum = max(self._settings.estimate_seconds, self._settings.estimate_fraction * max(0.0, before - now))
        return abs(after - before) > quantum
