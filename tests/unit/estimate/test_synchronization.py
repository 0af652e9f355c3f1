"""Ends of workers that wait for each other."""

from itertools import pairwise
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tranche.estimate.iteration.synchronization import ASP, BSP, end_seconds


def test_bsp_iterations_take_the_time_of_the_slowest() -> None:
    assert end_seconds((1, 2, 4), (4, 4, 4), BSP) == (13, 14, 16)


def test_asp_workers_end_alone() -> None:
    assert end_seconds((1, 2, 4), (4, 4, 4), ASP) == (4, 8, 16)


def test_ssp_lets_a_worker_be_s_batches_ahead() -> None:
    assert end_seconds((1, 2, 4), (4, 4, 4), 1) == (9, 10, 16)


def test_bsp_goes_on_without_workers_that_are_done() -> None:
    assert end_seconds((1, 4), (6, 2), BSP) == (12, 8)


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.floats(0.1, 5), st.integers(1, 12)), min_size=1, max_size=5),
    st.integers(0, 4),
)
def test_more_staleness_never_ends_a_worker_later(workers: list[tuple[float, int]], staleness: int) -> None:
    seconds, batches = [one for one, _ in workers], [count for _, count in workers]
    ends = [end_seconds(seconds, batches, s) for s in (BSP, staleness, staleness + 1, inf)]
    for earlier, later in pairwise(ends):
        assert all(b <= a * (1 + 1e-9) for a, b in zip(earlier, later, strict=True))


def test_equal_workers_are_not_delayed_by_any_scheme() -> None:
    for staleness in (BSP, 3, ASP):
        assert end_seconds((2, 2, 2), (5, 5, 5), staleness) == pytest.approx((10, 10, 10))
