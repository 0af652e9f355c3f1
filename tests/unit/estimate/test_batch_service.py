"""M/G(a,b)/1/N: worked numbers, closed forms, limits of a batch, and agreement with a simulation."""

from collections.abc import Callable
from math import exp

import pytest

from batch_simulation import Draw, deterministic, exponential, simulate
from tranche.estimate.batch_service import BatchMemory, BatchQueue, Law, ServiceTime, best_fixed_size, best_limits


def queue(rate: float, places: int, law: Law = "deterministic") -> BatchQueue:
    """Return a queue whose batches of k take 1 + 0.2 k seconds on average."""
    return BatchQueue(rate, places, ServiceTime.linear(1.0, 0.2, places, law))


@pytest.mark.parametrize(
    ("law", "limits", "expected"),
    [
        ("deterministic", (1, 1, 4, 10), (1.989926, 1.910992e-6, 0.577963)),
        ("exponential", (1, 1, 4, 10), (2.773841, 0.007161, 1.278775)),
        ("deterministic", (2, 2, 6, 12), (2.847334, 0.000844, 1.994278)),
        ("exponential", (2, 2, 6, 12), (4.008053, 0.077672, 3.881583)),
    ],
)
def test_delay_loss_and_queue_are_the_worked_numbers(
    law: Law, limits: tuple[int, int, int, int], expected: tuple[float, float, float]
) -> None:
    rate, least, most, places = limits
    found = queue(rate, places, law).figures(least, most)
    delay, loss, length = expected
    assert round(found.delay_seconds, 6) == delay
    assert round(found.loss, 12 if loss < 1e-5 else 6) == loss
    assert round(found.queue_length, 6) == length


def test_single_exponential_service_is_m_m_1_k() -> None:
    found = BatchQueue(0.5, 4, ServiceTime(((1.0,),), "exponential")).figures(1, 1)
    assert (round(found.delay_seconds, 6), round(found.loss, 6)) == (1.838710, 0.015873)
    shares = [0.5**count for count in range(6)]  # of 0 … 5 requests in the system
    assert found.loss == pytest.approx(shares[5] / sum(shares), rel=1e-12)
    present = sum(count * share for count, share in enumerate(shares)) / sum(shares)
    assert found.delay_seconds == pytest.approx(present / (0.5 * (1 - found.loss)), rel=1e-12)


@pytest.mark.parametrize("law", ["deterministic", "exponential"])
@pytest.mark.parametrize(("rate", "least", "most"), [(0.3, 1, 1), (1.0, 1, 8), (2.0, 3, 5), (9.0, 8, 8)])
def test_what_is_served_is_what_arrives_and_is_not_lost(law: Law, rate: float, least: int, most: int) -> None:
    found = queue(rate, 8, law).figures(least, most)
    assert found.throughput == pytest.approx(rate * (1 - found.loss), abs=1e-9)


def test_loss_falls_with_the_number_of_waiting_places() -> None:
    losses = [queue(2.0, places, "exponential").figures(2, 4).loss for places in range(4, 16)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] / 2


def test_best_limits_are_the_worked_ones() -> None:
    best = best_limits(queue(2.0, 8), BatchMemory())
    assert best is not None
    assert (best.least, best.most) == (1, 8)
    assert (round(best.delay_seconds, 5), round(best.loss, 5)) == (2.74481, 0.00644)
    best = best_limits(queue(2.0, 8), BatchMemory(fixed=2.0, each=1.0, limit=6.0))
    assert best is not None
    assert (best.least, best.most, round(best.delay_seconds, 5)) == (2, 4, 3.13280)


def test_best_limits_beat_every_other_allowed_pair() -> None:
    system = queue(1.5, 6, "exponential")
    every = [system.figures(a, b) for b in range(1, 6) for a in range(1, b + 1)]
    allowed = [one for one in every if one.loss <= 0.2]
    best = best_limits(system, BatchMemory(each=1.0, limit=5.0), loss_limit=0.2)
    assert 0 < len(allowed) < len(every)
    assert best == min(allowed, key=lambda one: one.delay_seconds)


def test_equal_delays_take_the_smaller_batch() -> None:
    rare = BatchQueue(1e-9, 4, ServiceTime.linear(1.0, 0.0, 4))
    best = best_limits(rare, BatchMemory())
    assert best is not None
    assert (best.least, best.most) == (1, 1)


def test_no_limits_are_found_where_none_keep_the_loss() -> None:
    assert best_limits(queue(50.0, 4), BatchMemory(), loss_limit=0.01) is None
    assert best_limits(queue(1.0, 4), BatchMemory(fixed=2.0, limit=1.0)) is None


def test_fixed_size_is_the_best_with_equal_limits() -> None:
    found = best_fixed_size(queue(2.0, 8), BatchMemory())
    assert found is not None
    assert found == min((queue(2.0, 8).figures(k, k) for k in range(1, 9)), key=lambda one: one.delay_seconds)


def test_one_sample_of_each_size_is_the_deterministic_law() -> None:
    samples = {size: [1.0 + 0.2 * size] for size in range(1, 7)}
    assert BatchQueue(2.0, 12, ServiceTime.sampled(samples)).figures(2, 6) == queue(2.0, 12).figures(2, 6)


def test_arrivals_in_sampled_service_mix_the_samples() -> None:
    found = ServiceTime.sampled({1: [1.0, 3.0]}).arrivals(0.5, 1, 2)
    assert found[0] == pytest.approx((exp(-0.5) + exp(-1.5)) / 2)
    assert found[1] == pytest.approx((0.5 * exp(-0.5) + 1.5 * exp(-1.5)) / 2)


def test_impossible_service_times_are_refused() -> None:
    with pytest.raises(ValueError, match="no service time was measured for batches of 2"):
        ServiceTime.sampled({1: [1.0], 3: [2.0]})
    with pytest.raises(ValueError, match="no service time was measured for batches of 1"):
        ServiceTime.sampled({})
    with pytest.raises(ValueError, match="service times above 0"):
        ServiceTime(((0.0,),))
    with pytest.raises(ValueError, match="one mean service time for each size"):
        ServiceTime(((1.0, 2.0),))


def test_impossible_queues_and_limits_are_refused() -> None:
    with pytest.raises(ValueError, match="a rate above 0"):
        queue(0.0, 4)
    for least, most in ((3, 2), (0, 1), (1, 5)):
        with pytest.raises(ValueError, match="1 ≤ a ≤ b ≤ 4"):
            queue(1.0, 4).figures(least, most)


@pytest.mark.parametrize(("law", "draw"), [("deterministic", deterministic), ("exponential", exponential)])
@pytest.mark.parametrize(("rate", "least", "most", "places"), [(1.0, 1, 4, 10), (2.5, 2, 6, 8)])
def test_the_model_is_within_three_errors_of_a_simulation(
    law: Law, draw: Callable[[float, float], Draw], rate: float, least: int, most: int, places: int
) -> None:
    found = queue(rate, places, law).figures(least, most)
    seen = simulate(rate, least, most, places, draw(1.0, 0.2), requests=20_000, runs=10, seed=5)
    assert abs(seen.delay_seconds.mean - found.delay_seconds) < 3 * seen.delay_seconds.error
    assert abs(seen.queue_length.mean - found.queue_length) < 3 * seen.queue_length.error
    assert abs(seen.loss.mean - found.loss) < 3 * seen.loss.error + 1e-5
