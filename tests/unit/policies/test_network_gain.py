"""Gains and losses by place: worked numbers of docs/reference/systems/dally-like.md."""

import pytest

from tranche.policies.locality.network_gain import (
    move_gain,
    preemption_gain,
    preemption_loss,
    preemption_quantum,
    relative_progress,
    sensitivity,
)


def test_progress_is_training_at_the_narrowest_level_over_age() -> None:
    assert relative_progress(500, 0.2, 1000) == pytest.approx(0.1)
    assert relative_progress(0, 0.2, 1000) == 0.0


def test_progress_at_arrival_is_0() -> None:
    assert relative_progress(0, 0.2, 0.0) == 0.0


def test_sensitivity_is_the_slowdown_at_the_widest_level() -> None:
    assert sensitivity(0.2, 0.5) == pytest.approx(2.5)
    assert sensitivity(0.2, 0.2) == 1.0


def test_move_pays_if_it_saves_more_than_a_restart() -> None:
    assert move_gain(1000, 0.5, 0.22, 60.0) == pytest.approx(280 - 60)
    assert move_gain(100, 0.5, 0.22, 60.0) < 0


def test_preemption_gains_the_wait_and_the_better_level() -> None:
    assert preemption_gain(500, 1000, 0.2, 0.2) == 500
    assert preemption_gain(500, 1000, 0.5, 0.22) == pytest.approx(780)


def test_victim_loses_its_restart_and_the_better_level() -> None:
    assert preemption_loss(60, 300, 0.3, 0.4, 0.0) == pytest.approx(90)
    assert preemption_loss(60, 300, 0.4, 0.3, 0.0) == 60


def test_victim_without_room_waits_for_the_preemptor() -> None:
    assert preemption_loss(60, 300, 0.3, None, 200.0) == 260


def test_quantum_is_ten_minutes_or_ten_restarts() -> None:
    assert (preemption_quantum(0.0), preemption_quantum(60.0), preemption_quantum(90.0)) == (600, 600, 900)
