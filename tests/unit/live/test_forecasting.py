"""How often the controller computes forecasts, and how much of the scheduler's time they use."""

from dataclasses import dataclass

import pytest

from tranche.live.forecasting import Forecasts
from tranche.live.settings import ControllerSettings
from tranche.planner import Planner
from tranche.planner.forecast.steps import Steps
from tranche.policies import get_policy


@dataclass
class Stopwatch:
    takes: float
    """A piece of a forecast."""
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


class Slow(Planner):
    def __init__(self, watch: Stopwatch, pieces: int = 1) -> None:
        super().__init__(get_policy("chunk"))
        self.watch, self.made, self.pieces = watch, 0, pieces

    def forecasting(self, now: float) -> Steps[None]:
        for _ in range(1, self.pieces):
            self.watch.now += self.watch.takes
            yield
        self.watch.now += self.watch.takes
        self.made, self.rollouts_left = self.made + 1, 30


@pytest.mark.parametrize(("takes", "rollouts"), [(0.001, 30), (0.018, 5), (0.25, 0)])
def test_explanations_are_made_sure_of_as_far_as_there_is_time(takes: float, rollouts: int) -> None:
    watch = Stopwatch(takes)
    planner = Slow(watch)
    Forecasts(planner, ControllerSettings(), watch).refresh(0.0)
    assert planner.rollouts_left == rollouts


def test_all_of_it_takes_no_more_than_its_share_of_the_time() -> None:
    watch = Stopwatch(0.018)
    planner = Slow(watch)
    forecasts = Forecasts(planner, ControllerSettings(forecast_share=0.1, forecast_quiet_seconds=0.0), watch)
    while watch.now < 60.0:
        before = planner.made
        forecasts.note_event()
        forecasts.refresh(watch.now)
        watch.now += 0.018 * planner.rollouts_left if planner.made > before else 0.01
    assert planner.made * 0.018 * (1 + 5) / 60.0 == pytest.approx(0.1, rel=0.02)


def test_nothing_is_played_when_nothing_has_happened() -> None:
    watch = Stopwatch(0.001)
    planner = Slow(watch)
    forecasts = Forecasts(planner, ControllerSettings(), watch)
    forecasts.refresh(0.0)
    watch.now = 1000.0
    forecasts.refresh(1000.0)
    assert planner.made == 1


def test_forecast_waits_for_quiet_period_up_to_its_patience() -> None:
    watch = Stopwatch(0.001)
    planner = Slow(watch)
    forecasts = Forecasts(planner, ControllerSettings(forecast_quiet_seconds=0.3, forecast_patience_seconds=2.0), watch)
    forecasts.refresh(0.0)
    made = []
    for tenth in range(100, 160):  # something happens each tenth of a second, for five seconds
        watch.now = tenth / 10
        if tenth < 150:
            forecasts.note_event()
        before = planner.made
        forecasts.refresh(watch.now)
        made += [tenth / 10] * (planner.made - before)
    assert made == pytest.approx([12.0, 14.1, 15.2], abs=0.11)
    assert forecasts.next_due == float("inf")


def test_forecast_runs_in_pieces_and_yields_as_long_between_them() -> None:
    watch, took = Stopwatch(0.001), list[float]()
    planner = Slow(watch, pieces=100)
    forecasts = Forecasts(planner, ControllerSettings(forecast_piece_seconds=0.003), watch, took.append)
    stood, others = [], 0.0
    while not planner.made:
        before = watch.now
        forecasts.refresh(watch.now)
        stood.append(watch.now - before)
        if not planner.made:
            others += forecasts.next_due - watch.now
            watch.now = forecasts.next_due
    assert max(stood) == pytest.approx(0.003)
    assert took == [pytest.approx(0.1)]
    assert others == pytest.approx(0.1, abs=0.003)


def test_forecast_follows_a_user_change_at_once() -> None:
    watch = Stopwatch(0.001, now=50.0)
    forecasts = Forecasts(Slow(watch), ControllerSettings(), watch)
    forecasts.refresh(0.0)
    watch.now = 60.0
    forecasts.note_event()
    assert forecasts.next_due > watch.now
    forecasts.skip_quiet_time()
    assert forecasts.next_due <= watch.now


def test_forecast_waits_longer_while_its_estimates_are_held_back() -> None:
    watch = Stopwatch(0.001)
    planner = Slow(watch)
    held = [False]
    forecasts = Forecasts(planner, ControllerSettings(forecast_hold_seconds=20.0), watch, held=lambda: held[0])
    forecasts.refresh(0.0)
    held[0] = True
    made = []
    for tenth in range(100, 500):  # a user creates a job each tenth of a second; the starts end after 33 s
        watch.now = tenth / 10
        held[0] = tenth < 430
        forecasts.skip_quiet_time()
        before = planner.made
        forecasts.refresh(watch.now)
        made += [tenth / 10] * (planner.made - before)
    assert made[:2] == pytest.approx([30.0, 43.0], abs=0.11)
