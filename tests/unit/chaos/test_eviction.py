"""The checks of a chaos round find evictions that were of no use, in histories made by hand."""

from typing import Any

import pytest

from chaos.checks.eviction import Bound, check_bounds
from chaos.checks.history import JOBS, PODS, check
from support.history_builder import History

PREEMPTOR = "default/dogs"
BEGIN, LAST, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", "2026-01-01T00:01:01Z"
"""Time of the eviction; the last time at which the end of the preemptor excuses it; and a second later."""
KNOWN, LATE = "2026-01-01T00:00:30Z", "2026-01-01T00:00:31Z"
"""Last time at which an earlier deletion of the preemptor excuses an eviction, and a second later."""


@pytest.fixture
def history() -> History:
    """One window, which closes for another job."""
    made = History()
    made.job((1, [0]), revision=2)
    made.job((1, [0]), revision=3, state="Closing", preempted_by=PREEMPTOR, time=BEGIN)
    return made


def dogs(history: History, *, plan: dict[str, Any] | None = None, time: str = "", **fields: Any) -> None:
    written = {"managedFields": [{"time": time}]} if time else {}
    meta = {"name": "dogs", "namespace": "default", "uid": "d", **written, **fields.pop("metadata", {})}
    data = {} if fields.pop("gang", False) else {"data": {"chunks": 1, "batchesPerChunk": 1}}
    spec = {"workers": {"maxReplicas": 1}, **data, **fields.pop("spec", {})}
    status = {**({"plan": {"jobUid": "d", "term": 1, "revision": 1, **plan}} if plan else {}), **fields}
    history.write(JOBS, PREEMPTOR, {"metadata": meta, "spec": spec, "status": status})


def dogs_run(history: History, attempt: int = 1, role: str = "worker", phase: str = "Running") -> None:
    labels = {
        "tranche.dev/job": "dogs",
        "tranche.dev/role": role,
        "tranche.dev/index": "0",
        "tranche.dev/attempt": str(attempt),
    }
    name = f"dogs-{attempt}"
    owners = [{"uid": "d"}]
    meta = {"name": name, "namespace": "default", "uid": name, "labels": labels, "ownerReferences": owners}
    meta["creationTimestamp"] = BEGIN
    env = [{"name": "TRANCHE_CHUNKS", "value": "0"}]
    spec = {"nodeName": "n", "containers": [{"name": "t", "env": env}]}
    history.write(PODS, f"default/{name}", {"metadata": meta, "spec": spec, "status": {"phase": phase}})


def entries(*attempts: int) -> list[dict[str, Any]]:
    there = {"state": "Open", "site": "home", "node": "n"}
    return [{"attempt": attempt, "chunks": [number], **there} for number, attempt in enumerate(attempts)]


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
    history.job((1, [0]), revision=3, state="Closing", preempted_by=PREEMPTOR)
    assert "never started" in check(history.changes)[0]


@pytest.mark.parametrize("later", [None, 2])
def test_start_before_a_late_write_of_the_victim_counts(later: int | None) -> None:
    """The plan of the victim is written after the pod of the preemptor, which was planned with it, runs."""
    history = History()
    history.job((1, [0]), revision=2)
    dogs(history, plan={"workers": entries(1), "revision": 3})
    dogs_run(history)
    if later is not None:
        dogs(history, plan={"workers": entries(1, later), "revision": 4})
    history.job((1, [0]), revision=5, state="Closing", preempted_by=PREEMPTOR)
    found = [each for each in check(history.changes) if "never started" in each]
    assert bool(found) is (later is not None)


@pytest.mark.parametrize(("former", "count"), [(1, 0), (3, 1)])
def test_start_before_the_former_plan_of_the_victim_is_found(former: int, count: int) -> None:
    """The order of decisions counts: a fault may delay the write of the former plan, too."""
    history = History()
    dogs(history, plan={"workers": entries(1), "revision": 2})
    dogs_run(history)
    history.job((1, [0]), revision=former)
    history.job((1, [0]), revision=4, state="Closing", preempted_by=PREEMPTOR)
    assert sum("never started" in found for found in check(history.changes)) == count


@pytest.mark.parametrize(
    "fields",
    [
        {"phase": "Failed"},
        {"spec": {"suspend": True}},
        {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
    ],
)
def test_beneficiary_that_needs_no_pod_any_more_is_excused(history: History, fields: dict[str, Any]) -> None:
    dogs(history, **fields)
    assert check(history.changes) == []


def test_continuing_worker_of_beneficiary_is_no_start() -> None:
    history = History()
    dogs(history)
    dogs_run(history)
    history.job((1, [0]), revision=2)
    history.job((1, [0]), revision=3, state="Closing", preempted_by=PREEMPTOR)
    dogs_run(history)
    assert "never started" in check(history.changes)[0]
    dogs_run(history, attempt=2)
    assert check(history.changes) == []


def test_gang_starts_when_all_its_planned_pods_have_run(history: History) -> None:
    helpers = {"parameterServers": entries(3), "chief": entries(4)[0]}
    spec = {"workers": {"maxReplicas": 2}, "parameterServers": {"replicas": 1}, "chief": {}}
    dogs(history, gang=True, spec=spec, plan={"workers": entries(1, 2), **helpers})
    for attempt, role in ((1, "worker"), (3, "ps"), (4, "chief"), (2, "worker")):
        (found,) = check(history.changes)
        assert "which never started" in found
        dogs_run(history, attempt, role)
    assert check(history.changes) == []


def test_gang_whose_chief_succeeds_has_started(history: History) -> None:
    spec = {"workers": {"maxReplicas": 2}, "chief": {}}
    dogs(history, gang=True, spec=spec, plan={"workers": entries(1, 2), "chief": entries(4)[0]})
    dogs_run(history, 1)
    dogs_run(history, 4, "chief")
    assert "which never started" in check(history.changes)[0]
    dogs_run(history, 4, "chief", "Succeeded")
    assert check(history.changes) == []
    history.job((2, [0]), revision=9)
    history.job((2, [0]), revision=10, state="Closing", preempted_by=PREEMPTOR, time=BEGIN)
    dogs_run(history, 4, "chief", "Succeeded")
    assert "which never started" in check(history.changes)[0]


@pytest.mark.parametrize("roles", [("worker", "ps"), ("ps", "worker")])
def test_job_with_server_starts_when_both_pods_run(history: History, roles: tuple[str, str]) -> None:
    dogs(history, plan={"workers": entries(1), "parameterServers": entries(2)})
    for role in roles:
        (found,) = check(history.changes)
        assert "which never started" in found
        dogs_run(history, 1 if role == "worker" else 2, role)
    assert check(history.changes) == []


def test_chunked_job_has_started_with_a_worker_that_succeeds(history: History) -> None:
    dogs(
        history,
        spec={"parameterServers": {"replicas": 1}},
        plan={"workers": entries(1), "parameterServers": entries(2)},
    )
    dogs_run(history, 1)
    assert "which never started" in check(history.changes)[0]
    dogs_run(history, 1, phase="Succeeded")
    assert check(history.changes) == []


def test_success_of_a_worker_that_ran_before_is_no_start() -> None:
    history = History()
    dogs(
        history,
        spec={"parameterServers": {"replicas": 1}},
        plan={"workers": entries(1), "parameterServers": entries(2)},
    )
    dogs_run(history, 1)
    history.job((1, [0]), revision=2)
    history.job((1, [0]), revision=3, state="Closing", preempted_by=PREEMPTOR)
    dogs_run(history, 1, phase="Succeeded")
    assert "never started" in check(history.changes)[0]


def test_success_without_a_start_excuses_no_earlier_eviction(history: History) -> None:
    dogs(history, time=BEGIN)
    dogs(history, phase="Succeeded", time=BEGIN)
    history.write(JOBS, PREEMPTOR, None)
    assert "never started" in check(history.changes)[0]


def test_success_excuses_an_eviction_that_follows_it() -> None:
    history = History()
    dogs(history, phase="Succeeded")
    history.job((1, [0]), revision=2)
    history.job((1, [0]), revision=3, state="Closing", preempted_by=PREEMPTOR)
    assert check(history.changes) == []


@pytest.mark.parametrize(("deleted", "count"), [(LAST, 0), (LATER, 1)])
def test_deletion_a_minute_after_the_eviction_is_no_excuse(history: History, deleted: str, count: int) -> None:
    dogs(history, time=BEGIN)
    dogs(history, metadata={"deletionTimestamp": deleted}, time=deleted)
    history.write(JOBS, PREEMPTOR, None)
    assert len(check(history.changes)) == count


def test_job_that_a_fault_keeps_from_starting_has_a_bound_only(history: History) -> None:
    dogs(history)
    last = history.changes[-1].revision
    assert check(history.changes, [Bound("dogs", 1, 0, last)]) == []
    (found,) = check(history.changes, [Bound("dogs", 0, 0, last)])
    assert "1 evictions, at most 0, for dogs" in found
    (found,) = check(history.changes, [Bound("dogs", 1, 0, 2)])
    assert "never started" in found


def test_deleted_beneficiary_is_excused(history: History) -> None:
    dogs(history)
    history.write(JOBS, PREEMPTOR, None)
    assert check(history.changes) == []


@pytest.mark.parametrize(("evicted", "count"), [(KNOWN, 0), (LATE, 1)])
def test_deletion_is_known_after_some_time(evicted: str, count: int) -> None:
    history = History()
    dogs(history)
    history.job((1, [0]), revision=2, time=BEGIN)
    history.write(JOBS, PREEMPTOR, None)
    for _ in range(1000):  # other objects may change often meanwhile
        history.write(JOBS, "default/others", None)
    history.job((1, [0]), revision=3, state="Closing", preempted_by=PREEMPTOR, time=evicted)
    assert len(check(history.changes)) == count


def test_eviction_for_foreign_pod_is_not_judged() -> None:
    history = History()
    history.job((1, [0]), revision=2, state="Closing", preempted_by="pod/default/service")
    assert check(history.changes) == []


def test_bound_counts_an_eviction_once_within_its_revisions(history: History) -> None:
    history.job((1, [0]), (2, [1]), revision=4, state="Closing", preempted_by=PREEMPTOR)
    last = history.changes[-1].revision
    assert list(check_bounds(history.changes, [Bound("dogs", 2, 0, last)])) == []
    assert list(check_bounds(history.changes, [Bound("dogs", 0, 0, 2)])) == []
    (found,) = check_bounds(history.changes, [Bound("dogs", 1, 0, last)])
    assert found.startswith("2 evictions, at most 1, for dogs, which cannot start")


def test_bound_does_not_count_evictions_for_a_quota(history: History) -> None:
    why = "which has less work left, for the quota default/tight"
    history.job((1, [0]), (2, [1]), revision=4, state="Closing", preempted_by=PREEMPTOR, why=why)
    assert len(list(check_bounds(history.changes, [Bound("dogs", 0, 0, 99)]))) == 1  # the one of revision 3
    assert list(check_bounds(history.changes, [Bound("dogs", 1, 0, 99)])) == []


def test_bound_counts_a_gang_that_is_stopped_whole_once() -> None:
    history = History(members=2)
    history.job((1, [0]), (2, [1]))
    history.job((1, [0]), (2, [1]), revision=2, state="Closing", preempted_by=PREEMPTOR)
    last = history.changes[-1].revision
    assert list(check_bounds(history.changes, [Bound("dogs", 1, 0, last)])) == []
    (found,) = check_bounds(history.changes, [Bound("dogs", 0, 0, last)])
    assert found.startswith("1 evictions, at most 0, for dogs")


@pytest.mark.parametrize("why", ["has no room for it any more", "does not take its pod any more"])
def test_bound_allows_another_eviction_after_room_is_lost(history: History, why: str) -> None:
    history.job((1, [0]), (2, [1]), revision=4, state="Closing", preempted_by=PREEMPTOR)
    lost = {"attempt": 1, "reason": "NotStarted", "why": f"node n {why}"}
    dogs(history, plan={"jobUid": "d", "term": 1, "revision": 1}, progress={"attempts": [lost]})
    last = history.changes[-1].revision
    assert list(check_bounds(history.changes, [Bound("dogs", 1, 0, last)])) == []
    assert len(list(check_bounds(history.changes, [Bound("dogs", 1, 0, last - 1)]))) == 1
