"""Estimates of jobs and nodes from measured paces."""

from random import Random

import pytest

from tranche.estimate import SpeedModel

SEED = 7


def test_nothing_learnt_is_no_correction_to_the_digit() -> None:
    speeds = SpeedModel()
    assert not speeds.observe("a", "v100", "edge", "n1", 1.0 + 1e-9, 100.0)
    assert speeds.factor("a", "v100", "edge", "n1") == 1.0
    assert speeds == SpeedModel()


def test_node_slow_for_several_jobs_is_slow_for_a_new_job() -> None:
    draw, speeds = Random(SEED), SpeedModel()
    for number in range(40):
        node, pace = draw.choice([("slow", 2.0), ("fast", 0.5)])
        speeds.observe(f"j{number}", "", "edge", node, pace, 1000.0)
    assert speeds.factor("new", "", "edge", "slow") == pytest.approx(2.0, rel=0.15), f"seed {SEED}"
    assert speeds.factor("new", "", "edge", "fast") == pytest.approx(0.5, rel=0.15)


def test_a_job_that_is_slow_on_all_nodes_is_slow_itself() -> None:
    speeds = SpeedModel()
    for number in range(40):
        speeds.observe("a", "", "edge", f"n{number}", 3.0, 1000.0)
    assert speeds.job_factor("a") == pytest.approx(3.0, rel=0.15)
    assert speeds.factor("a", "", "edge", "unseen") == pytest.approx(3.0, rel=0.15)
    assert speeds.factor("b", "", "edge", "unseen") == 1.0


def test_job_slow_on_one_node_kind_is_faster_on_another() -> None:
    speeds = SpeedModel()
    for _ in range(100):
        speeds.observe("a", "old", "edge", "n1", 2.0, 1000.0)
        speeds.observe("a", "new", "edge", "n2", 1.0, 1000.0)
    assert speeds.factor("a", "old", "edge", None) > 1.05 * speeds.factor("a", "new", "edge", None)
    assert speeds.factor("a", "old", "edge", "n1") == pytest.approx(2.0, rel=0.05)


def test_a_short_window_teaches_less_than_a_long_one() -> None:
    short, long = SpeedModel(), SpeedModel()
    short.observe("a", "", "edge", "n1", 2.0, 5.0)
    long.observe("a", "", "edge", "n1", 2.0, 5000.0)
    assert 1.0 < short.factor("a", "", "edge", "n1") < long.factor("a", "", "edge", "n1") < 2.0


def test_what_changes_is_followed() -> None:
    speeds = SpeedModel()
    for pace in [1.5] * 50 + [0.8] * 50:
        speeds.observe("a", "", "edge", "n1", pace, 1000.0)
    assert speeds.factor("a", "", "edge", "n1") == pytest.approx(0.8, rel=0.02)


def test_a_forgotten_job_and_node_leave_nothing() -> None:
    speeds = SpeedModel()
    speeds.observe("a", "", "edge", "n1", 2.0, 100.0)
    speeds.forget_job("a")
    speeds.forget_node("n1")
    assert speeds == SpeedModel()
