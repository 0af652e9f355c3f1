"""Tests of predicted iteration times on synthetic runs whose law is known."""

from itertools import product

import pytest

from tranche.estimate.layer_graph import NETWORKS
from tranche.estimate.throughput_model import MIN_COMPUTATION, OnlineCorrection, Setting, Size, ThroughputModel

SIZES = {"small": Size(20, 1e9, 3e8), "large": Size(60, 4e9, 8e8), "wide": Size(10, 2e9, 2e9)}
FIXED = {"old": 5e-4, "new": 1e-4}
RATE = {"old": 4e-12, "new": 1e-12}


def law(setting: Setting, slowdown: float = 1.0) -> float:
    """Return the true seconds of an iteration whose computation takes `slowdown` times as long."""
    size = SIZES[setting.family]
    wire = (setting.workers - 1) * (4e-10 if setting.spread else 1e-10) if setting.workers > 1 else 0.0
    compute = size.layers * FIXED[setting.kind] + setting.batch * size.multiply_adds * RATE[setting.kind]
    return slowdown * compute + wire * size.gradient_bits


RUNS = {
    setting: law(setting)
    for family, kind, batch, workers, spread in product(SIZES, RATE, (8, 32, 128), (1, 2, 4), (False, True))
    for setting in (Setting(family, kind, batch, workers, spread),)
    if workers > 1 or not spread
}


def test_size_sums_over_layer_graph() -> None:
    size = Size.of(NETWORKS["vgg16"]())
    assert (size.layers, size.gradient_bits) == (16, 32 * 138_357_544)


def test_left_out_family_predicted_from_its_graph() -> None:
    model = ThroughputModel.fitted(SIZES, {one: seconds for one, seconds in RUNS.items() if one.family != "wide"})
    for one, seconds in RUNS.items():
        assert model.seconds(one) == pytest.approx(seconds, rel=0.1)


@pytest.mark.parametrize("workers", [1, 4])
def test_one_run_calibrates_all_others_of_a_pair(workers: int) -> None:
    """A pair that computes 1.7 times as long as its factors say, over the same links, is predicted after one run."""
    pair = ("large", "new")
    others = {one: seconds for one, seconds in RUNS.items() if (one.family, one.kind) != pair}
    model, run = ThroughputModel.fitted(SIZES, others), Setting("large", "new", 32, workers)
    model.calibrate(run, law(run, 1.7))
    assert model.seconds(run) == pytest.approx(law(run, 1.7))
    for one, seconds in RUNS.items():
        expected = law(one, 1.7) if (one.family, one.kind) == pair else seconds
        assert model.seconds(one) == pytest.approx(expected, rel=0.06)


def test_run_faster_than_its_transfers_keeps_a_computation() -> None:
    model, run = ThroughputModel.fitted(SIZES, RUNS), Setting("wide", "new", 8, 4, spread=True)
    model.calibrate(run, 0.1)  # the transfers alone take 2.4 s
    alone = Setting("wide", "new", 8)
    assert model.seconds(alone) == pytest.approx(MIN_COMPUTATION * 0.1)


def test_one_wrong_run_moves_the_others_little() -> None:
    wrong = Setting("small", "old", 32, 2, spread=True)
    model = ThroughputModel.fitted(SIZES, {**RUNS, wrong: 10 * RUNS[wrong]})
    for one, seconds in RUNS.items():
        assert model.seconds(one) == pytest.approx(seconds, rel=0.1)


def test_correction_learns_a_constant_and_spread() -> None:
    correction, predicted = OnlineCorrection(32.0), 0.1
    assert correction.factor(Setting("small", "old", 32)) == 1.0
    settings = [Setting("small", "old", batch, 4, spread) for batch in (16, 32, 64) for spread in (False, True)] * 8
    for one in settings:
        correction.observe(one, predicted * (1.8 if one.spread else 1.2), predicted)
    assert correction.factor(Setting("small", "old", 48, 4)) == pytest.approx(1.2, rel=0.05)
    assert correction.factor(Setting("small", "old", 48, 4, spread=True)) == pytest.approx(1.8, rel=0.05)


def test_correction_stays_finite_after_many_equal_runs() -> None:
    """Forgetting raises the variances of batch, workers and spread, on which these runs do not depend."""
    correction, one = OnlineCorrection(32.0), Setting("small", "old", 32)
    for _ in range(40_000):
        correction.observe(one, 0.1, 0.1)
    spread = Setting("small", "old", 64, 4, spread=True)
    correction.observe(spread, 0.15, 0.1)
    assert correction.factor(one) == pytest.approx(1.0, abs=0.05)
    assert 1.0 < correction.factor(spread) < 1.5


def test_correction_forgets_what_no_longer_holds() -> None:
    correction, one = OnlineCorrection(32.0), Setting("small", "old", 32)
    for measured in [0.2] * 200 + [0.1] * 100:
        correction.observe(one, measured, 0.1)
    assert correction.factor(one) == pytest.approx(1.0, abs=0.1)  # without forgetting: 2 ** (2 / 3)
