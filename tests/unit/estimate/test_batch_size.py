"""Batch sizes that even out the times of the workers."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tranche.estimate.iteration.batch_size import (
    InfeasibleBatchError,
    SampleTime,
    equal_split,
    fitted,
    needs_robust_rule,
    seconds_per_sample,
    slowest_seconds,
    split,
)

COMPUTE, LOCAL = (0.01, 0.02, 0.01), (1.0, 1.0, 0.5)
"""The example of the page: samples of 8·10⁵ bit, fetched at 2·10⁷ bit/s; a global batch of 96."""


def workers(*, prefetch: bool = False, local: tuple[float, ...] = LOCAL) -> list[SampleTime]:
    """Return the models of the example's workers."""
    return [
        SampleTime(0.1, seconds_per_sample(seconds, part, 8e5, 2e7, prefetch=prefetch))
        for seconds, part in zip(COMPUTE, local, strict=True)
    ]


def test_split_with_serial_fetches_ends_at_0_624() -> None:
    found = split(workers(), 96)
    assert found.seconds == pytest.approx(0.623636, abs=5e-7)
    assert found.exact == pytest.approx((52.36, 26.18, 17.45), abs=5e-3)
    assert found.sizes == (52, 26, 18)
    assert slowest_seconds(workers(), found.sizes) == pytest.approx(0.64)


def test_lb_bsp_ignores_fetches_and_ends_later() -> None:
    found = split(workers(local=(1.0, 1.0, 1.0)), 96)
    assert found.seconds == pytest.approx(0.484)
    assert found.sizes == (39, 19, 38)
    assert slowest_seconds(workers(), found.sizes) == pytest.approx(1.24)
    assert slowest_seconds(workers(), equal_split(3, 96)) == pytest.approx(1.06)


def test_split_with_prefetch_ends_at_0_58() -> None:
    found = split(workers(prefetch=True), 96)
    assert found.sizes == (48, 24, 24)
    assert found.seconds == pytest.approx(0.58)


def test_split_with_a_memory_limit_moves_samples_to_others() -> None:
    first, *others = workers()
    found = split([SampleTime(first.fixed_seconds, first.seconds_per_sample, 1, 40), *others], 96)
    assert found.seconds == pytest.approx(0.772)
    assert found.exact == pytest.approx((40, 33.6, 22.4))
    assert found.sizes == (40, 34, 22)


def test_infeasible_total_names_the_limits() -> None:
    narrow = [SampleTime(0.1, 0.01, 8, 10)] * 3
    for total in (23, 31):
        with pytest.raises(InfeasibleBatchError, match="from 24 to 30 samples"):
            split(narrow, total)


def test_robust_rule_guards_parts_below_a_quarter_of_the_mean() -> None:
    assert not needs_robust_rule((52, 26, 18), 1)
    assert needs_robust_rule((88, 4, 4), 1)
    assert needs_robust_rule((40, 40, 16), 9)


MODELS = st.lists(
    st.builds(SampleTime, st.floats(0, 2), st.floats(0.001, 1), st.integers(1, 8), st.integers(8, 200)),
    min_size=1,
    max_size=8,
)


@settings(max_examples=100)
@given(MODELS, st.integers(1, 600))
def test_sizes_sum_to_the_batch_and_keep_their_limits(models: list[SampleTime], total: int) -> None:
    assume(sum(one.smallest for one in models) <= total <= sum(one.largest for one in models))
    found = split(models, total)
    assert sum(found.sizes) == total
    for model, size, exact in zip(models, found.sizes, found.exact, strict=True):
        assert model.smallest <= size <= model.largest
        if model.smallest < exact < model.largest:
            assert model.seconds(exact) == pytest.approx(found.seconds, rel=1e-6)


@settings(max_examples=60)
@given(st.lists(st.builds(SampleTime, st.floats(0, 2), st.floats(0.001, 1)), min_size=1, max_size=8))
def test_split_is_never_slower_than_equal_sizes(models: list[SampleTime]) -> None:
    total = 32 * len(models)
    assert split(models, total).seconds <= slowest_seconds(models, equal_split(len(models), total)) * (1 + 1e-9)


def test_fit_recovers_a_worker_from_its_iterations() -> None:
    truth = SampleTime(0.3, 0.02, 2, 64)
    found = fitted([(samples, truth.seconds(samples)) for samples in (8, 16, 40)], SampleTime(0.1, 1.0, 2, 64))
    assert (found.fixed_seconds, found.seconds_per_sample) == pytest.approx((0.3, 0.02))
    assert (found.smallest, found.largest) == (2, 64)


def test_fit_of_one_size_keeps_the_fixed_time() -> None:
    found = fitted([(10, 0.5), (10, 0.7)], SampleTime(0.1, 1.0))
    assert (found.fixed_seconds, found.seconds_per_sample) == pytest.approx((0.1, 0.06 - 0.01))
    assert fitted([], SampleTime(0.1, 1.0)) == SampleTime(0.1, 1.0)


def test_fit_never_has_a_negative_fixed_time() -> None:
    found = fitted([(10, 0.1), (20, 0.5)], SampleTime(1.0, 1.0))
    assert found.fixed_seconds == 0
    assert found.seconds_per_sample == pytest.approx(0.02)


def test_samples_of_the_example_take_their_worked_times() -> None:
    serial, prefetch = workers(), workers(prefetch=True)
    assert [one.seconds_per_sample for one in serial] == pytest.approx([0.01, 0.02, 0.03])
    assert prefetch[2].seconds_per_sample == pytest.approx(0.02)
    assert split(workers(local=(1.0, 1.0, 1.0)), 96).exact == pytest.approx((38.4, 19.2, 38.4))


@settings(max_examples=60)
@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=8), st.floats(1e3, 1e9), st.floats(1e3, 1e9))
def test_loft_is_lb_bsp_where_all_data_are_local(computes: list[float], sample_bits: float, rate: float) -> None:
    total = 32 * len(computes)
    for prefetch in (False, True):
        loft = [SampleTime(0.1, seconds_per_sample(c, 1.0, sample_bits, rate, prefetch=prefetch)) for c in computes]
        assert split(loft, total) == split([SampleTime(0.1, c) for c in computes], total)
