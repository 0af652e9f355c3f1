"""Delay timers: worked numbers of docs/reference/systems/dally-like.md."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tranche.estimate.capacity_wait import KEPT_OBSERVATIONS, CapacityWaits
from tranche.policies.locality.delay_timer import accepts, deadlines, effective_timers, next_deadline, size_class

SECONDS = (0.2, 0.22, 0.5)
NODE, RACK, NETWORK = range(3)


def limits(batches_left: float) -> list[float]:
    return deadlines(effective_timers((100.0, 50.0), SECONDS, batches_left))


def test_timers_are_limited_by_what_the_level_gains() -> None:
    assert effective_timers((100.0, 50.0), SECONDS, 1000) == [pytest.approx(20.0), 50.0]


def test_deadlines_add_up() -> None:
    assert limits(1000) == [pytest.approx(20.0), pytest.approx(70.0)]
    assert limits(1e6) == [100.0, 150.0]


@pytest.mark.parametrize(
    ("batches", "offered", "waited", "accepted"),
    [
        (1000, NETWORK, 10, False),
        (1000, RACK, 30, True),
        (1000, NETWORK, 30, False),
        (1000, NETWORK, 80, True),
        (1e6, NETWORK, 120, False),
        (1e6, RACK, 90, False),
        (1e6, RACK, 110, True),
        (1e6, NODE, 0, True),
    ],
)
def test_job_accepts_from_the_sum_of_timers_on(batches: float, offered: int, waited: float, accepted: bool) -> None:
    assert accepts(offered, limits(batches), waited) is accepted


def test_next_deadline_is_what_is_left_of_the_timers() -> None:
    assert next_deadline(NETWORK, limits(1e6), 120.0) == 30.0


def test_timer_needs_five_observations() -> None:
    waits = CapacityWaits()
    for seconds in (10.0, 20.0, 30.0, 40.0):
        waits.add(2, 0, seconds)
    assert waits.timer(2, 0) == 0.0
    waits.add(2, 0, 50.0)
    assert waits.timer(2, 0) == 30.0
    assert waits.timer(2, 1) == waits.timer(3, 0) == 0.0


def test_timer_is_the_mean_of_the_last_twenty() -> None:
    waits = CapacityWaits()
    for seconds in (1000.0, *[5.0] * KEPT_OBSERVATIONS):
        waits.add(0, 0, seconds)
    assert waits.timer(0, 0) == 5.0


@pytest.mark.parametrize(
    ("gpus", "number"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4), (16, 4), (17, 5), (512, 5)]
)
def test_classes_are_the_usual_numbers_of_gpus(gpus: int, number: int) -> None:
    assert size_class(gpus) == number


@given(
    st.lists(st.tuples(st.floats(0, 1e5), st.floats(0, 10)), min_size=1, max_size=5),
    st.floats(1e-3, 10),
    st.floats(0, 1e6),
)
def test_a_job_never_waits_longer_than_it_can_gain(
    levels: list[tuple[float, float]], narrowest: float, batches: float
) -> None:
    seconds = list(accumulate((more for _, more in levels), initial=narrowest))
    found = deadlines(effective_timers([timer for timer, _ in levels], seconds, batches))
    assert found[-1] <= batches * (seconds[-1] - seconds[0]) * (1 + 1e-9) + 1e-6
    assert found == sorted(found)
    assert all(accepts(level, found, found[-1]) for level in range(len(seconds)))


def test_equal_levels_have_no_timers() -> None:
    assert deadlines(effective_timers((100.0, 50.0), (0.5, 0.5, 0.5), 1e6)) == [0.0, 0.0]
