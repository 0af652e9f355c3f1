"""Logs drawn from a log."""

import itertools
from collections import Counter

from tranche.simulation.analysis.bootstrap import block_length, resample
from tranche.simulation.job_log import TraceRow

ROWS = tuple(TraceRow(str(i), 10.0 * i + i % 3, 1 + i % 4, 100.0 + i) for i in range(64))


def test_resample_repeats_for_same_seed_and_differs_for_others() -> None:
    assert resample(ROWS, 1) == resample(ROWS, 1)
    assert resample(ROWS, 1) != resample(ROWS, 2)


def test_as_many_jobs_with_new_names_in_order_of_submission() -> None:
    drawn = resample(ROWS, 5)
    assert [row.job_id for row in drawn] == [str(i) for i in range(64)]
    assert [row.submit_seconds for row in drawn] == sorted(row.submit_seconds for row in drawn)


def test_resample_draws_jobs_of_the_log_in_blocks() -> None:
    known = {(row.gpus, row.duration_seconds): i for i, row in enumerate(ROWS)}
    places = [known[row.gpus, row.duration_seconds] for row in resample(ROWS, 3)]
    following = Counter(b - a == 1 for a, b in itertools.pairwise(places))
    assert block_length(64) == 4
    assert following[True] >= 48  # three of four steps lie within a block
    assert len(set(places)) < 64


def test_gaps_between_neighbours_are_the_logs() -> None:
    gaps = {round(b.submit_seconds - a.submit_seconds, 6) for a, b in itertools.pairwise(ROWS)} | {0.0}
    drawn = resample(ROWS, 4)
    assert {round(b.submit_seconds - a.submit_seconds, 6) for a, b in itertools.pairwise(drawn)} <= gaps


def test_an_empty_log_stays_empty() -> None:
    assert resample((), 1) == ()
