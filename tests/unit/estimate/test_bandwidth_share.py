"""Shares of a parameter server's port."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tranche.estimate.iteration.bandwidth_share import (
    RULES,
    WorkerLoad,
    decoupled_shares,
    equal_shares,
    latest_end,
    min_max_shares,
    proportional_shares,
    window_seconds,
)

LOADS = (WorkerLoad(1, 100), WorkerLoad(2, 50), WorkerLoad(4, 50))
"""The example of the page, with gradients of 1 bit and a port of 3 bit/s."""
WORKERS = st.lists(
    st.builds(WorkerLoad, st.floats(0.01, 10), st.integers(1, 200), st.floats(0.05, 20)), min_size=1, max_size=6
)


def test_min_max_shares_of_the_example_end_at_276_759() -> None:
    shares = min_max_shares(LOADS, 1, 3)
    assert shares == pytest.approx((1.13148, 0.565741, 1.30278), rel=1e-5)
    assert latest_end(LOADS, 1, shares) == pytest.approx(276.759, abs=5e-4)


def test_equal_shares_of_the_example_end_at_300() -> None:
    shares = equal_shares(LOADS, 1, 3)
    assert [window_seconds(load, 1, share) for load, share in zip(LOADS, shares, strict=True)] == [300, 200, 300]


def test_even_iterations_end_later_than_equal_shares() -> None:
    shares = min_max_shares([WorkerLoad(load.compute_seconds, 1) for load in LOADS], 1, 3)
    assert shares == pytest.approx((0.490700, 0.650235, 1.859065), abs=5e-7)
    ends = [window_seconds(load, 1, share) for load, share in zip(LOADS, shares, strict=True)]
    assert ends == pytest.approx([507.581, 253.790, 253.790], abs=5e-4)


def test_a_narrow_link_determines_the_latest_end() -> None:
    loads = (WorkerLoad(1, 100, 1.0), *LOADS[1:])
    assert min_max_shares(loads, 1, 3) == pytest.approx((1, 0.5, 1))
    assert latest_end(loads, 1, min_max_shares(loads, 1, 3)) == 300


def test_decoupled_shares_of_the_example_end_at_200() -> None:
    shares = decoupled_shares(LOADS, 1, 3)
    assert shares == (1, 0.5, 0.5)
    assert latest_end(LOADS, 1, shares, decoupled=True) == 200


def test_proportional_shares_follow_the_computation() -> None:
    assert proportional_shares(LOADS, 1, 3) == pytest.approx((3 / 7, 6 / 7, 12 / 7))


def test_a_window_without_batches_receives_no_share() -> None:
    loads = (*LOADS, WorkerLoad(5, 0))
    for name, rule in RULES.items():
        assert rule(loads, 1, 3)[3] == 0, name
        assert rule(loads, 1, 3)[:3] == pytest.approx(rule(LOADS, 1, 3)), name


@settings(max_examples=60)
@given(WORKERS, st.floats(0.1, 10), st.floats(0.1, 30))
def test_shares_keep_port_and_links_and_beat_equal_ones(
    loads: list[WorkerLoad], gradient_bits: float, port: float
) -> None:
    for rule in RULES.values():
        shares = rule(loads, gradient_bits, port)
        assert sum(shares) <= port * (1 + 1e-9)
        links = [load.link_bits_per_second for load in loads]
        assert all(0 <= share <= link * (1 + 1e-9) for share, link in zip(shares, links, strict=True))
    for decoupled, rule in ((False, min_max_shares), (True, decoupled_shares)):
        best = latest_end(loads, gradient_bits, rule(loads, gradient_bits, port), decoupled=decoupled)
        equal = latest_end(loads, gradient_bits, equal_shares(loads, gradient_bits, port), decoupled=decoupled)
        assert best <= equal * (1 + 1e-9)


@settings(max_examples=60)
@given(WORKERS, st.floats(0.1, 10), st.floats(0.1, 30))
def test_shares_sum_to_the_port_if_it_delays_the_end(
    loads: list[WorkerLoad], gradient_bits: float, port: float
) -> None:
    links = [load.link_bits_per_second for load in loads]
    for decoupled, rule in ((False, min_max_shares), (True, decoupled_shares)):
        shares = rule(loads, gradient_bits, port)
        end = latest_end(loads, gradient_bits, shares, decoupled=decoupled)
        if end > latest_end(loads, gradient_bits, links, decoupled=decoupled) * (1 + 1e-6):
            assert sum(shares) == pytest.approx(port)


@settings(max_examples=60)
@given(WORKERS, st.floats(0.1, 30), st.floats(1, 3))
def test_latest_end_never_grows_with_port_or_link(loads: list[WorkerLoad], port: float, factor: float) -> None:
    def end(some: list[WorkerLoad], width: float) -> float:
        return latest_end(some, 1, min_max_shares(some, 1, width))

    wider = [WorkerLoad(load.compute_seconds, load.batches, load.link_bits_per_second * factor) for load in loads]
    assert end(loads, port * factor) <= end(loads, port) * (1 + 1e-9)
    assert end(wider, port) <= end(loads, port) * (1 + 1e-9)


def test_latest_end_equals_the_best_of_a_grid() -> None:
    found = latest_end(LOADS, 1, min_max_shares(LOADS, 1, 3))
    coarse = [(i / 40, j / 40) for i, j in product(range(1, 119), repeat=2) if i + j < 120]
    fine = [(1.1 + i / 1500, 0.53 + j / 1500) for i, j in product(range(100), repeat=2)]
    for grid, error in ((coarse, 2e-2), (fine, 1e-3)):
        best = min(latest_end(LOADS, 1, (first, second, 3 - first - second)) for first, second in grid)
        assert found <= best <= found * (1 + error)


def test_workers_that_compute_nothing_share_the_port() -> None:
    loads = [WorkerLoad(0.0, 3), WorkerLoad(0.0, 1)]
    shares = min_max_shares(loads, 2, 8)
    assert shares == pytest.approx((6.0, 2.0))
    assert latest_end(loads, 2, shares) == pytest.approx(2.0)


def test_equal_numbers_of_batches_make_iterations_equal() -> None:
    loads = [WorkerLoad(seconds, 20) for seconds in (0.5, 1, 3, 7)]
    shares = min_max_shares(loads, 2, 5)
    times = [window_seconds(load, 2, share) for load, share in zip(loads, shares, strict=True)]
    assert times == pytest.approx([times[0]] * 4)
