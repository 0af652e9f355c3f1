"""The checks of a chaos round find evictions that were of no use, in histories made by hand."""

from typing import Any

import pytest

from chaos.checks.eviction import LATE_REVISIONS, Bound, check_bounds
from chaos.checks.history import JOBS, PODS, check
from support.history_builder import History

BENEFICIARY = "default/dogs"


@pytest.fixture
def history() -> History:
    """One window, which closes for another job."""
    made = History()
    made.job((1, [0]), revision=2)
    made.job((1, [0]), revision=3, state="Closing", preempted_by=BENEFICIARY)
    return made


def dogs(history: History, **fields: Any) -> None:
    meta = {"name": "dogs", "namespace": "default", "uid": "d", **fields.pop("metadata", {})}
    spec = {"workers": {"maxReplicas": 1}, "data": {"chunks": 1, "batchesPerChunk": 1}, **fields.pop("spec", {})}
    history.write(JOBS, BENEFICIARY, {"metadata": meta, "spec": spec, "status": fields})


def dogs_run(history: History) -> None:
    labels = {
        "tranche.dev/job": "dogs",
        "tranche.dev/role": "worker",
        "tranche.dev/index": "0",
        "tranche.dev/attempt": "1",
    }
    meta = {"name": "dogs-0", "namespace": "default", "uid": "p", "labels": labels, "ownerReferences": [{"uid": "d"}]}
    env = [{"name": "TRANCHE_CHUNKS", "value": "0"}]
    spec = {"nodeName": "n", "containers": [{"name": "t", "env": env}]}
    history.write(PODS, "default/dogs-0", {"metadata": meta, "spec": spec, "status": {"phase": "Running"}})


def test_eviction_for_job_that_starts_is_in_order(history: History) -> None:
    dogs(history)
    dogs_run(history)
    assert check(history.changes) == []


def test_eviction_for_job_that_never_starts_is_found(history: History) -> None:
    dogs(history)
    (found,) = check(history.changes)
    assert "is evicted for default/dogs, which never started" in found


def test_eviction_for_job_that_ran_only_before_is_found() -> None:
    history = History()
    dogs(history)
    dogs_run(history)
    history.job((1, [0]), revision=2)
    history.job((1, [0]), revision=3, state="Closing", preempted_by=BENEFICIARY)
    assert "never started" in check(history.changes)[0]


@pytest.mark.parametrize(
    "fields",
    [
        {"phase": "Succeeded"},
        {"phase": "Failed"},
        {"spec": {"suspend": True}},
        {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
    ],
)
def test_beneficiary_that_needs_no_pod_any_more_is_excused(history: History, fields: dict[str, Any]) -> None:
    dogs(history, **fields)
    assert check(history.changes) == []


def test_deleted_beneficiary_is_excused(history: History) -> None:
    dogs(history)
    history.write(JOBS, BENEFICIARY, None)
    assert check(history.changes) == []


@pytest.mark.parametrize(("late", "count"), [(LATE_REVISIONS, 0), (LATE_REVISIONS + 1, 1)])
def test_deletion_is_known_after_some_revisions(late: int, count: int) -> None:
    history = History()
    dogs(history)
    history.job((1, [0]), revision=2)
    history.write(JOBS, BENEFICIARY, None)
    for _ in range(late - 1):
        history.write(JOBS, "default/others", None)
    history.job((1, [0]), revision=3, state="Closing", preempted_by=BENEFICIARY)
    assert len(check(history.changes)) == count


def test_eviction_for_foreign_pod_is_not_judged() -> None:
    history = History()
    history.job((1, [0]), revision=2, state="Closing", preempted_by="pod/default/service")
    assert check(history.changes) == []


def test_bound_counts_an_eviction_once_within_its_revisions(history: History) -> None:
    history.job((1, [0]), (2, [1]), revision=4, state="Closing", preempted_by=BENEFICIARY)
    last = history.changes[-1].revision
    assert list(check_bounds(history.changes, [Bound("dogs", 2, 0, last)])) == []
    assert list(check_bounds(history.changes, [Bound("dogs", 0, 0, 2)])) == []
    (found,) = check_bounds(history.changes, [Bound("dogs", 1, 0, last)])
    assert found.startswith("2 evictions, at most 1, for dogs, which cannot start")


def test_bound_does_not_count_evictions_for_a_quota(history: History) -> None:
    why = "which has less work left, for the quota default/tight"
    history.job((1, [0]), (2, [1]), revision=4, state="Closing", preempted_by=BENEFICIARY, why=why)
    assert len(list(check_bounds(history.changes, [Bound("dogs", 0, 0, 99)]))) == 1  # the one of revision 3
    assert list(check_bounds(history.changes, [Bound("dogs", 1, 0, 99)])) == []


def test_bound_counts_a_gang_that_is_stopped_whole_once() -> None:
    history = History(members=2)
    history.job((1, [0]), (2, [1]))
    history.job((1, [0]), (2, [1]), revision=2, state="Closing", preempted_by=BENEFICIARY)
    last = history.changes[-1].revision
    assert list(check_bounds(history.changes, [Bound("dogs", 1, 0, last)])) == []
    (found,) = check_bounds(history.changes, [Bound("dogs", 0, 0, last)])
    assert found.startswith("1 evictions, at most 0, for dogs")


@pytest.mark.parametrize("why", ["has no room for it any more", "does not take its pod any more"])
def test_bound_allows_another_eviction_after_room_is_lost(history: History, why: str) -> None:
    history.job((1, [0]), (2, [1]), revision=4, state="Closing", preempted_by=BENEFICIARY)
    lost = {"attempt": 1, "reason": "NotStarted", "why": f"node n {why}"}
    dogs(history, plan={"jobUid": "d", "term": 1, "revision": 1}, progress={"attempts": [lost]})
    last = history.changes[-1].revision
    assert list(check_bounds(history.changes, [Bound("dogs", 1, 0, last)])) == []
    assert len(list(check_bounds(history.changes, [Bound("dogs", 1, 0, last - 1)]))) == 1
