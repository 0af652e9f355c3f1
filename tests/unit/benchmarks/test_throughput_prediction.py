"""Tests of the bounds on errors that benchmarks/throughput_prediction.py prints."""

import pytest

from throughput_prediction import CURVES, calibration_run, forms, least_errors
from tranche.estimate.throughput_model import Setting


def test_least_errors_of_a_constant_is_weighted_median() -> None:
    """1, 2 and 6 s weigh 1, 1/2 and 1/6, so the best constant is 1 s: errors of 0, 1/2 and 5/6."""
    assert least_errors([[1.0], [1.0], [1.0]], [1.0, 2.0, 6.0]) == pytest.approx([0.0, 1 / 2, 5 / 6])


def test_least_errors_keeps_numbers_at_least_zero() -> None:
    """3, 2 and 1 s at batches of 1, 2 and 3 would need a rate below 0; the best constant is 1 s."""
    errors = least_errors([[1.0, batch] for batch in (1.0, 2.0, 3.0)], [3.0, 2.0, 1.0])
    assert errors == pytest.approx([2 / 3, 1 / 2, 0.0])


def test_forms_with_their_law_leave_no_error() -> None:
    """0.1 + 0.02·batch + 0.3 s on eight GPUs of several nodes: an error only if links are left out or shared."""
    settings = [Setting("f", "k", batch, n, n == 8) for batch in (1.0, 4.0) for n in (1, 2, 8)]
    seconds = [0.1 + 0.02 * one.batch + 0.3 * one.spread for one in settings]
    rows = [forms(one, CURVES[0]) for one in settings]
    left = {name.partition(" ")[0]: sum(least_errors([row[name] for row in rows], seconds)) for name in rows[0]}
    assert left["4"] == left["8"] == left["14"] == pytest.approx(0.0, abs=1e-9)
    assert left["2"] >= left["3"] > 0.5


@pytest.mark.parametrize(("share", "batch"), [(0.0, 8), (0.25, 16), (0.5, 32), (0.75, 64), (1.0, 128)])
def test_calibration_run_by_share_of_smaller_batches(share: float, batch: int) -> None:
    settings = [Setting("f", "k", one, 2, spread) for one in (128, 64, 32, 16, 8) for spread in (False, True)]
    assert calibration_run(settings, 2, spread=True, share=share) == Setting("f", "k", batch, 2, spread=True)


def test_calibration_run_without_such_gpus_is_on_one() -> None:
    settings = [Setting("f", "k", batch) for batch in (8, 16)]
    assert calibration_run(settings, 4) == Setting("f", "k", 16)
