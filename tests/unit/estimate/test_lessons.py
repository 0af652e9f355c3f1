"""Estimates of jobs and nodes from measured paces."""

from random import Random

import pytest

from tranche.estimate import Lessons

SEED = 7


def test_nothing_learnt_is_no_correction_to_the_digit() -> None:
    lessons = Lessons()
    assert not lessons.observe("a", "v100", "edge", "n1", 1.0 + 1e-9, 100.0)
    assert lessons.factor("a", "v100", "edge", "n1") == 1.0
    assert lessons == Lessons()


def test_node_slow_for_several_jobs_is_slow_for_a_new_job() -> None:
    draw, lessons = Random(SEED), Lessons()
    for number in range(40):
        node, pace = draw.choice([("slow", 2.0), ("fast", 0.5)])
        lessons.observe(f"j{number}", "", "edge", node, pace, 1000.0)
    assert lessons.factor("new", "", "edge", "slow") == pytest.approx(2.0, rel=0.15), f"seed {SEED}"
    assert lessons.factor("new", "", "edge", "fast") == pytest.approx(0.5, rel=0.15)


def test_a_job_that_is_slow_on_all_nodes_is_slow_itself() -> None:
    lessons = Lessons()
    for number in range(40):
        lessons.observe("a", "", "edge", f"n{number}", 3.0, 1000.0)
    assert lessons.job_factor("a") == pytest.approx(3.0, rel=0.15)
    assert lessons.factor("a", "", "edge", "unseen") == pytest.approx(3.0, rel=0.15)
    assert lessons.factor("b", "", "edge", "unseen") == 1.0


def test_job_slow_on_one_node_kind_is_faster_on_another() -> None:
    lessons = Lessons()
    for _ in range(100):
        lessons.observe("a", "old", "edge", "n1", 2.0, 1000.0)
        lessons.observe("a", "new", "edge", "n2", 1.0, 1000.0)
    assert lessons.factor("a", "old", "edge", None) > 1.05 * lessons.factor("a", "new", "edge", None)
    assert lessons.factor("a", "old", "edge", "n1") == pytest.approx(2.0, rel=0.05)


def test_a_short_window_teaches_less_than_a_long_one() -> None:
    short, long = Lessons(), Lessons()
    short.observe("a", "", "edge", "n1", 2.0, 5.0)
    long.observe("a", "", "edge", "n1", 2.0, 5000.0)
    assert 1.0 < short.factor("a", "", "edge", "n1") < long.factor("a", "", "edge", "n1") < 2.0


def test_what_changes_is_followed() -> None:
    lessons = Lessons()
    for pace in [1.5] * 50 + [0.8] * 50:
        lessons.observe("a", "", "edge", "n1", pace, 1000.0)
    assert lessons.factor("a", "", "edge", "n1") == pytest.approx(0.8, rel=0.02)


def test_a_forgotten_job_and_node_leave_nothing() -> None:
    lessons = Lessons()
    lessons.observe("a", "", "edge", "n1", 2.0, 100.0)
    lessons.forget_job("a")
    lessons.forget_node("n1")
    assert lessons == Lessons()
