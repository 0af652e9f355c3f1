"""Prices of slot tables: the worked numbers of both systems, and that prices rise with use alone."""

from math import ceil, inf

import pytest

from tranche.model import Utility
from tranche.policies.slot_table.price import Claim, PriceRange, price_range, steepness
from tranche.policies.slot_table.slot_job import Amounts, SlotJob, seconds_per_sample

SLOT_SECONDS = 600.0
UTILITY = Utility(100.0, 0.5, 5.0)


def one_resource(least: float, most: float) -> PriceRange:
    return PriceRange(least, Amounts(most, most, most))


def test_price_at_half_use_is_the_geometric_mean() -> None:
    assert one_resource(1.0, 100.0).at(Amounts(4.0), Amounts(8.0)).gpus == pytest.approx(10.0)
    assert one_resource(1.0, 16.0).at(Amounts(2.0), Amounts(4.0)).gpus == pytest.approx(4.0)


def test_price_is_least_unused_and_most_when_full() -> None:
    prices = one_resource(1.0, 16.0)
    assert prices.at(Amounts(0.0), Amounts(4.0)).gpus == 1.0
    assert prices.at(Amounts(4.0), Amounts(4.0)).gpus == pytest.approx(16.0)


def test_price_stays_at_most_when_a_machine_has_shrunk() -> None:
    """Twice as much is reserved as there is; U/L of 10^300 to the power of two exceeds all numbers."""
    assert one_resource(1e-280, 1e20).at(Amounts(8.0), Amounts(4.0)).gpus == pytest.approx(1e20)


def test_price_of_an_unlimited_machine_never_rises() -> None:
    assert one_resource(1.0, 16.0).at(Amounts(1e9), Amounts(inf, inf, inf)).gpus == 1.0


def test_price_never_falls_with_use_even_if_most_is_below_least() -> None:
    prices = PriceRange(2.0, Amounts(1.0, 1.0, 1.0))
    found = [prices.at(Amounts(used), Amounts(4.0)).gpus for used in (0.0, 1.0, 4.0)]
    assert found == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("bits_per_second", "seconds", "workers", "servers"), [(1e11, 1.0016, 4, 2), (5e8, 1.32, 5, 3)]
)
def test_seconds_per_sample_inside_and_outside_a_machine(
    bits_per_second: float, seconds: float, workers: int, servers: int
) -> None:
    per_sample = seconds_per_sample(1.0, 8e8, 2.0, bits_per_second, 20.0)
    assert per_sample == pytest.approx(seconds, rel=1e-12)
    job = SlotJob(
        key="a",
        samples=10_000,
        internal_slots=per_sample / SLOT_SECONDS,
        external_slots=per_sample / SLOT_SECONDS,
        most_workers=20,
        worker=Amounts(1.0),
        workers_per_server=2.0,
    )
    assert job.workers_for(2000, job.internal_slots) == workers
    assert job.servers_for(workers) == servers


def pd_ors_claim() -> Claim:
    """The job of the worked example: E K = 10,000 samples, F = 20, two machines of 8 GPUs and 64 cores."""
    near, far = (seconds_per_sample(1.0, 8e8, 2.0, b, 20.0) / SLOT_SECONDS for b in (1e11, 5e8))
    return Claim(
        best=UTILITY.at(ceil(10_000 / 20 * near)),
        last=UTILITY.at(20),
        least_slots=ceil(10_000 * near),
        most_slots=ceil(10_000 * far),
        demand=Amounts(1.0, 4.0).plus(Amounts(0.0, 2.0)),
    )


def test_bounds_of_pd_ors_have_their_worked_values() -> None:
    claim = pd_ors_claim()
    assert (claim.least_slots, claim.most_slots) == (17, 22)
    assert claim.last == pytest.approx(0.0552779, rel=1e-6)
    assert 1.0 / steepness([claim], 144.0, 20) == pytest.approx(0.0413194, rel=1e-5)
    bounds = price_range([claim], 144.0, 20, factor=2.0)
    assert bounds.most.gpus == pytest.approx(88.0797, rel=1e-6)
    assert bounds.most.cores == pytest.approx(14.6800, rel=1e-5)
    assert bounds.least == pytest.approx(7.41575e-6, rel=1e-6)
    assert bounds.at(Amounts(4.0, 32.0), Amounts(8.0, 64.0)).gpus == pytest.approx(0.0255573, rel=1e-5)


def test_steepness_is_at_least_one() -> None:
    assert steepness([pd_ors_claim()], 1.0, 1) == 1.0


def test_bounds_of_oasis_have_half_the_least_price_of_pd_ors() -> None:
    one, other = (price_range([pd_ors_claim()], 144.0, 20, factor=factor) for factor in (2.0, 4.0))
    assert other.least == pytest.approx(one.least / 2)
    assert other.most[:2] == one.most[:2]


@pytest.mark.parametrize("scale", [0.2, 10.0])
def test_price_scale_multiplies_the_ratio_of_the_bounds(scale: float) -> None:
    one, other = (price_range([pd_ors_claim()], 144.0, 20, factor=2.0, scale=given) for given in (1.0, scale))
    assert other.most.gpus / other.least == pytest.approx(scale * one.most.gpus / one.least)


def test_largest_ratio_raises_the_least_price_of_each_resource() -> None:
    prices = PriceRange(1e-9, Amounts(100.0, 10.0, 1e-12), most_ratio=100.0)
    assert prices.at(Amounts(), Amounts(8.0, 8.0, 8.0)) == Amounts(1.0, 0.1, 1e-9)
    assert prices.at(Amounts(4.0), Amounts(8.0, 8.0, 8.0)).gpus == pytest.approx(10.0)


def test_bounds_without_jobs_price_everything_alike() -> None:
    bounds = price_range([], 144.0, 20, factor=2.0)
    assert bounds.at(Amounts(8.0), Amounts(8.0)).gpus == bounds.least > 0


def test_utility_that_underflows_leaves_a_positive_price() -> None:
    claim = Claim(best=1.0, last=0.0, least_slots=1, most_slots=1, demand=Amounts(1.0))
    assert price_range([claim], 8.0, 20, factor=4.0).least > 0
