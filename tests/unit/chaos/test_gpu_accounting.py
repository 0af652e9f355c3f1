"""The checks of a chaos round find plans on GPUs that pods or other plans hold, in histories made by hand.

The node has two GPUs.
"""

from typing import Any

import pytest

from chaos.checks.history import JOBS, PODS, check
from support.history_builder import Entry, History

BEGIN, SOON, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:00:05Z", "2026-01-01T00:01:00Z"
HELD = "of whose 2 GPUs others hold"


@pytest.fixture
def history() -> History:
    made = History()
    made.spec["workers"]["template"] = template(1)
    return made


def template(gpus: int) -> dict[str, Any]:
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}}
    return {"spec": {"containers": [{"name": "t", "resources": resources}]}}


def stranger(history: History, gpus: int, labels: dict[str, str] | None = None) -> None:
    resources = {"requests": {"nvidia.com/gpu": str(gpus)}}
    meta = {"name": "stranger", "namespace": "default", "uid": "s", "labels": labels or {}}
    spec = {"nodeName": "n", "containers": [{"name": "c", "resources": resources}]}
    thing = {"metadata": {**meta, "managedFields": [{"time": BEGIN}]}, "spec": spec, "status": {"phase": "Running"}}
    history.write(PODS, "default/stranger", thing)


@pytest.mark.parametrize("labels", [{}, {"tranche.dev/job": "x"}])
def test_window_on_gpus_of_foreign_pod_is_found(history: History, labels: dict[str, str]) -> None:
    stranger(history, 2, labels)
    history.job((1, [0]), revision=2, time=LATER)
    (found,) = check(history.changes)
    assert "opens attempt 1 on n" in found
    assert HELD in found


def test_window_beside_foreign_pod_is_in_order(history: History) -> None:
    stranger(history, 1)
    history.job((1, [0]), revision=2, time=LATER)
    assert check(history.changes) == []


def test_foreign_pod_counts_only_after_a_while(history: History) -> None:
    stranger(history, 2)
    history.job((1, [0]), revision=2, time=SOON)
    assert check(history.changes) == []


def test_pod_that_does_not_stop_holds_its_gpus(history: History) -> None:
    history.job((1, [0]), revision=2, time=BEGIN)
    history.pod(1, "0", gpus=2, time=BEGIN)
    history.job((1, [0]), revision=3, state="Closing", time=BEGIN)
    history.pod(1, "0", gpus=2, deleted=SOON, time=BEGIN)
    history.job((1, [0]), revision=4, time=SOON)
    assert check(history.changes) == []
    history.job((2, [0]), revision=5, time=LATER)
    assert HELD in check(history.changes)[0]


def test_pod_that_no_plan_has_holds_its_gpus(history: History) -> None:
    history.job((1, [0]), revision=2, time=BEGIN)
    history.pod(1, "0", gpus=2, time=BEGIN)
    history.job(revision=3, time=BEGIN)
    history.job((2, [0]), revision=4, time=LATER)
    assert HELD in check(history.changes)[0]


@pytest.mark.parametrize("role", ["parameterServers", "chief"])
def test_gpu_of_server_or_chief_on_held_gpus_is_found(role: str) -> None:
    history = History(members=1, servers=role != "chief", chief=role == "chief")
    history.spec[role]["template"] = template(1)
    stranger(history, 2)
    there: Entry = (2, "Open")
    servers, chief = ([], there) if role == "chief" else ([there], None)
    history.job((1, [0]), servers=servers, chief=chief, revision=2, time=LATER)
    (found,) = check(history.changes)
    assert "opens attempt 2 on n, of whose 2 GPUs others hold {'default/stranger': 2}" in found


def test_two_windows_of_a_plan_beside_one_held_gpu_are_found(history: History) -> None:
    stranger(history, 1)
    history.job((1, [0]), (2, [1]), revision=2, time=LATER)
    (found,) = check(history.changes)
    assert "opens attempt 1, 2 on n" in found


def dogs(history: History, state: str, time: str) -> None:
    spec = {"workers": {"maxReplicas": 2, "template": template(1)}, "data": {"chunks": 2, "batchesPerChunk": 1}}
    meta = {"name": "dogs", "namespace": "default", "uid": "d", "managedFields": [{"time": time}]}
    workers = [{"attempt": n, "chunks": [n - 1], "site": "home", "node": "n", "state": state} for n in (1, 2)]
    plan = {"jobUid": "d", "term": 1, "revision": 1, "workers": workers}
    history.write(JOBS, "default/dogs", {"metadata": meta, "spec": spec, "status": {"plan": plan}})


def test_plans_of_two_jobs_that_exceed_a_node_are_found(history: History) -> None:
    dogs(history, "Open", BEGIN)
    history.job((1, [0]), revision=2, time=SOON)
    assert check(history.changes) == []
    history.job((1, [0]), revision=3, time=LATER)
    history.job((1, [0]), revision=4, time=LATER)
    (found,) = check(history.changes)
    assert "for 15 s, plans have used more than the 2 GPUs of n" in found


def test_plan_of_other_job_may_close_a_little_later(history: History) -> None:
    dogs(history, "Open", BEGIN)
    history.job((1, [0]), revision=2, time=SOON)
    dogs(history, "Closing", SOON)
    history.job((1, [0]), revision=3, time=LATER)
    assert check(history.changes) == []


def test_window_whose_pod_has_ended_uses_no_gpu(history: History) -> None:
    history.job((1, [0]), revision=2, time=BEGIN)
    history.pod(1, "0", phase="Failed", code=1, message="{}", time=BEGIN)
    dogs(history, "Open", SOON)
    history.job((1, [0]), revision=3, time=LATER)
    assert check(history.changes) == []
