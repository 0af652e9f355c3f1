"""The search over global batch and smallest part."""

from math import inf

import pytest

from tranche.estimate.iteration.batch_search import (
    BatchSearch,
    Period,
    Setting,
    candidates,
    mean_ratio_to_course,
)
from tranche.estimate.iteration.batch_size import SampleTime

WORKERS = [SampleTime(0.1, 0.01), SampleTime(0.1, 0.02), SampleTime(0.1, 0.03)]
FALLING = tuple((float(seen), 10 / seen**0.5) for seen in range(100, 1000, 100))
"""Losses on a power law of the samples seen."""
LATER = tuple((float(seen), 10 / seen**0.5) for seen in range(1000, 2000, 100))


def test_candidates_with_least_time_per_sample_come_first() -> None:
    assert candidates(Setting(96), WORKERS, False) == [Setting(96, 4), Setting(96, 8)]
    larger = candidates(Setting(96), WORKERS, True)
    assert larger[0].total == 106  # the fixed time counts less in a larger batch
    assert len(larger) == 8
    assert Setting(96) not in larger


def test_candidates_beyond_the_memory_are_left_out() -> None:
    full = [SampleTime(0.1, 0.01, 1, 32)] * 3
    assert {one.total for one in candidates(Setting(96), full, True)} == {86, 96}


def test_losses_on_the_course_have_a_ratio_of_one() -> None:
    assert mean_ratio_to_course(FALLING, LATER) == pytest.approx(1.0)
    assert mean_ratio_to_course(FALLING, [(seen, loss * 1.1) for seen, loss in LATER]) == pytest.approx(1.1)
    assert mean_ratio_to_course((), LATER) == 1.0


def test_a_faster_candidate_on_the_course_is_kept() -> None:
    begun = BatchSearch(Setting(96)).after(Period(0.01, FALLING), WORKERS, total_may_change=True)
    assert begun.setting.total == 106
    kept = begun.after(Period(0.009, LATER), WORKERS, total_may_change=True)
    assert kept.kept == begun.trial
    assert kept.measured == Period(0.009, LATER)


@pytest.mark.parametrize("period", [Period(0.0101, LATER), Period(0.009, tuple((s, 1.03 * v) for s, v in LATER))])
def test_a_slower_or_worse_candidate_is_reverted_once(period: Period) -> None:
    begun = BatchSearch(Setting(96)).after(Period(0.01, FALLING), WORKERS)
    assert begun.setting == Setting(96, 4)
    reverted = begun.after(period, WORKERS)
    assert reverted.setting == Setting(96)
    assert reverted.after(Period(0.01, FALLING), WORKERS).setting == Setting(96, 8)


def test_search_rests_when_all_candidates_are_refused() -> None:
    search = BatchSearch(Setting(96))
    for _ in range(10):
        search = search.after(Period(0.01 if search.trial is None else inf, FALLING), WORKERS)
    assert search.trial is None
    assert search.refused == {Setting(96, 4), Setting(96, 8)}
