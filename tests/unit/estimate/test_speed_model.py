"""Estimates of jobs and nodes from measured paces."""

from copy import deepcopy
from random import Random

import pytest

from tranche.estimate import NodeEvidence, SpeedModel

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


def guarded() -> SpeedModel:
    """A model as in a live cluster."""
    return SpeedModel(evidence=NodeEvidence(3))


def test_one_job_says_nothing_about_a_node() -> None:
    speeds = guarded()
    for _ in range(50):
        speeds.observe("evil/a", "", "edge", "n1", 36000.0, 3600.0)
        speeds.observe("evil/a", "", "edge", "n2", 0.001, 3600.0)
    assert not speeds.nodes


def test_jobs_of_one_namespace_say_nothing_to_others() -> None:
    speeds = guarded()
    speeds.observe("good/a", "", "edge", "n9", 1.1, 1000.0)
    speeds.observe("good/a", "", "edge", "n9", 1.1, 1000.0)
    for number in range(50):
        speeds.observe(f"evil/{number}", "", "edge", "n2", 1.0, 1000.0)
        speeds.observe(f"evil/{number}", "", "edge", "n1", 1000.0, 1000.0)
    assert speeds.node_factor("n1") == 1.0


def test_hostile_jobs_move_a_shared_node_by_less_than_two() -> None:
    speeds = guarded()
    for number in range(3):
        for node in ("n2", "n1"):
            speeds.observe(f"good/{number}", "", "edge", node, 1.01, 1000.0)
    for number in range(50):
        speeds.observe(f"evil/{number}", "", "edge", "n2", 1.0, 1000.0)
        speeds.observe(f"evil/{number}", "", "edge", "n1", 1000.0, 1000.0)
    assert 1.0 <= speeds.node_factor("n1") < 2.0


def test_node_slow_for_several_tenants_is_slow_for_a_new_job() -> None:
    speeds = guarded()
    for number in range(20):
        job = f"team-{number % 4}/{number}"
        for node, pace in (("a", 1.0), ("b", 1.0), ("c", 1.0), ("slow", 1.7), ("b", 1.0)):
            speeds.observe(job, "", "edge", node, pace, 1000.0)
    assert speeds.factor("new/j", "", "edge", "slow") == pytest.approx(1.7, rel=0.15)
    assert speeds.node_factor("b") == pytest.approx(1.0, abs=0.1)


def test_single_tenant_learns_from_its_own_jobs() -> None:
    speeds = guarded()
    for number in range(5):
        for node, pace in (("a", 1.0), ("slow", 1.7)):
            speeds.observe(f"team/{number}", "", "edge", node, pace, 1000.0)
    assert speeds.node_factor("slow") == pytest.approx(1.7, rel=0.1)


def test_namespace_that_left_keeps_no_other_from_learning() -> None:
    """Such as that of one test job: the only tenant since then would learn nothing about nodes any more."""
    speeds = guarded()
    for node in ("a", "a", "gone"):
        speeds.observe("once/test", "", "edge", node, 1.0, 1000.0)
    speeds.forget_node("gone")
    speeds.forget_job("once/test")
    for number in range(20):
        for node, pace in (("a", 1.0), ("a", 1.0), ("slow", 1.7)):
            speeds.observe(f"team/{number}", "", "edge", node, pace, 1000.0)
    assert speeds.node_factor("slow") == pytest.approx(1.7, rel=0.1)


def test_factor_of_an_earlier_version_is_bounded() -> None:
    speeds = guarded()
    speeds.recall_node("n1", 14.6)
    assert speeds.node_factor("n1") == pytest.approx(2.0)


def test_copy_for_a_rollout_keeps_factors_without_evidence() -> None:
    speeds = guarded()
    for number in range(5):
        for node, pace in (("a", 1.0), ("slow", 1.7)):
            speeds.observe(f"team/{number}", "", "edge", node, pace, 1000.0)
    copy = deepcopy(speeds)
    copy.observe("team/0", "", "edge", "slow", 0.2, 1000.0)
    assert copy.node_factor("slow") == speeds.node_factor("slow")
