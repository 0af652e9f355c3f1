"""The checks of a chaos round find what they are there to find, in histories made by hand."""

import pytest

from chaos.checks.history import PODS, check, check_ends, summarize
from support.history_builder import History


@pytest.fixture
def history() -> History:
    return History()


def test_a_job_that_is_counted_as_it_was_trained_is_in_order(history: History) -> None:
    history.job((1, [0]), revision=2)
    history.pod(1, "0")
    history.pod(1, "0", phase="Failed", message='{"0": 20}')
    history.job((2, [0, 1]), running={0: 20}, revision=3)
    history.pod(1, "0", phase="Failed", message='{"0": 20}', held=False)
    history.pod(2, "0,1")
    history.pod(2, "0,1", phase="Succeeded")
    history.job(done="0-1", revision=4)
    history.pod(2, "0,1", phase="Succeeded", held=False)
    assert check(history.changes) == []


def problem(history: History) -> str:
    (found,) = check(history.changes)
    return found


def test_a_node_with_more_than_it_offers_is_found(history: History) -> None:
    history.job((1, [0]), (2, [1]), revision=2)
    history.pod(1, "0", gpus=2)
    assert check(history.changes) == []
    history.pod(2, "1")
    assert "n offers" in problem(history)


def test_room_of_pods_that_are_over_or_gone_is_free(history: History) -> None:
    history.job((1, [0]), (2, [1]), (3, [2]), revision=2)
    history.pod(1, "0", gpus=2)
    history.pod(1, "0", gpus=2, phase="Failed")
    history.pod(2, "1", gpus=2)
    history.write(PODS, "default/cats-worker-0-2", None)
    history.pod(3, "2", gpus=2)
    assert not [found for found in check(history.changes) if "offers" in found]


def test_a_window_that_is_executed_twice_is_found(history: History) -> None:
    history.job((1, [0]), revision=2)
    history.pod(1, "0")
    history.pod(1, "0", uid="another")
    assert "second time" in problem(history)


def test_older_plan_over_newer_is_found_only_within_one_job(history: History) -> None:
    history.job(revision=5)
    history.job(revision=1, uid="successor")
    assert check(history.changes) == []
    history.job(revision=0, uid="successor")
    assert "older plan" in problem(history)


def test_late_status_write_for_deleted_namesake_is_ignored(history: History) -> None:
    history.job(done="0", uid="successor", plan_of="j", revision=9)
    history.job((1, [0]), uid="successor", revision=2)
    assert check(history.changes) == []
    history.job((1, [0]), done="0", uid="successor", plan_of="successor", revision=3)
    assert "no planned worker reported so" in problem(history)


def test_a_chunk_in_two_windows_is_found(history: History) -> None:
    history.job((1, [0, 1]), (2, [1]), revision=2)
    assert "two windows" in problem(history)


def test_progress_that_is_lost_is_found(history: History) -> None:
    history.job((1, [0]), revision=2)
    history.pod(1, "0", phase="Failed", message='{"0": 20}')
    history.job(running={0: 20}, revision=3)
    history.job(running={}, revision=4)
    assert "had 20 batches and has 0" in problem(history)


def test_progress_without_a_reporting_worker_is_found(history: History) -> None:
    history.job((1, [0]), revision=2)
    history.pod(1, "0", phase="Failed", message='{"0": 20}')
    history.job(running={0: 21}, revision=3)
    assert "no planned worker reported so" in problem(history)


def test_the_word_of_a_stale_attempt_does_not_count(history: History) -> None:
    history.job((1, [0]), revision=2)
    history.pod(1, "0")
    history.job((2, [0]), revision=3)
    history.pod(1, "0", phase="Failed", message='{"0": 20}')
    assert check(history.changes) == []
    history.job((2, [0]), running={0: 20}, revision=4)
    assert "no planned worker reported so" in problem(history)


def test_a_pod_that_is_released_before_it_is_counted_is_found(history: History) -> None:
    history.job((1, [0]), revision=2)
    history.pod(1, "0", phase="Succeeded")
    history.pod(1, "0", phase="Succeeded", held=False)
    assert "not in the ledger" in problem(history)


def test_a_pod_that_trains_what_is_planned_for_another_is_found(history: History) -> None:
    history.job((1, [0]), revision=2)
    history.pod(1, "0")
    history.job((1, [2]), revision=3)
    assert "planned for chunks [2] and trains [0]" in problem(history)


def test_a_gang_may_begin_again_and_a_chunked_job_may_not() -> None:
    for gang in (True, False):
        history = History(members=2 if gang else 0)
        history.job((1, [0]), (2, [1]), revision=2)
        history.pod(2, "1", node=None)
        history.pod(1, "0", phase="Succeeded")
        history.job((2, [1]), done="0", revision=3)
        history.job((3, [0]), (4, [1]), revision=4)
        assert bool(check(history.changes)) is not gang


def test_window_at_site_without_staged_data_is_found() -> None:
    history = History(staged=True)
    history.job((1, [0]), revision=2)
    history.pod(2, "0,1", role="staging", site="away", gpus=0)
    history.pod(2, "0,1", role="staging", site="away", gpus=0, phase="Succeeded")
    history.job((3, [0, 1]), site="away", revision=3)
    assert check(history.changes) == []
    history.job((4, [2]), site="away", revision=4)
    assert "trains {2}, not copied there" in problem(history)


@pytest.mark.parametrize(
    ("phase", "wanted", "good"),
    [("Succeeded", "Succeeded", True), ("Running", "Succeeded", False), ("Succeeded", "gone", False)],
)
def test_every_job_has_to_end_as_expected(phase: str, wanted: str, good: bool) -> None:
    assert (list(check_ends({"cats": {"status": {"phase": phase}}}, {"cats": wanted})) == []) is good


def test_a_job_that_is_gone_has_to_be_one_that_was_deleted() -> None:
    assert list(check_ends({}, {"cats": "gone"})) == []
    assert list(check_ends({}, {"cats": "Succeeded"}))


def test_summary_counts_the_outcome_that_a_pod_had_when_it_ended(history: History) -> None:
    deleted = "2026-01-01T00:00:00Z"
    history.pod(1, "0")
    history.pod(1, "0", phase="Failed", code=1, reason="Error", message="{}")
    history.pod(1, "0", phase="Failed", code=1, reason="Error", message="{}", deleted=deleted)
    history.pod(2, "1")
    history.pod(2, "1", deleted=deleted)
    history.pod(2, "1", phase="Failed", code=143, reason="Error", message="{}", deleted=deleted)
    assert summarize(history.changes) == "1 writes of jobs, 2 pods (1 failed, 1 preempted)"
