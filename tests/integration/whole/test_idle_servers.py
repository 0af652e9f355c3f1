"""Idle parameter servers on a real control plane: evicted, waited for, released, and started again for the next window.

kwok's nodes run no containers, so the test says on their behalf what they have saved.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from support.full_stack import API, VALIDATED, System, full_stack, role
from support.object_history import History, revision

IDLE_SECONDS = 2.0
SAVING_SECONDS = 2.0
"""Time that a server needs to save."""
PODS = "/api/v1/namespaces/default/pods"
JOBS = f"{API}/namespaces/default/trainingjobs"


@pytest.fixture
def history(system: System) -> Iterator[History]:
    with History(str(system.cluster.kubeconfig), PODS, JOBS) as made:
        yield made


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    options = [*VALIDATED, "--server-idle-seconds", str(IDLE_SECONDS)]
    with full_stack({"edge-a": {"nodes": 1, "gpus": 1}}, options=options) as made:
        yield made


def servers_of(saving_seconds: float) -> dict[str, Any]:
    container = {"name": "ps", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    annotations = {"kwok.tranche.dev/checkpoint-seconds": str(saving_seconds)}
    return {"template": {"metadata": {"annotations": annotations}, "spec": {"containers": [container]}}}


def servers(system: System, name: str) -> dict[str, dict[str, Any]]:
    """Pods of parameter servers that have not ended, by name."""
    return {
        pod["metadata"]["name"]: pod
        for pod in system.pods(name)
        if role(pod) == "ps" and pod["status"]["phase"] in ("Pending", "Running")
    }


def planned(job: dict[str, Any]) -> list[tuple[int, str]]:
    """Return attempt and state of each planned server of a job; none without a plan."""
    plan = job.get("status", {}).get("plan", {})
    return [(one["attempt"], one["state"]) for one in plan.get("parameterServers", [])]


def stop_of(history: History, pod: str) -> tuple[int, int]:
    """Return the revisions of etcd at which a pod was deleted and at which it ended."""
    versions = [one for one in history.events[PODS] if one["metadata"]["name"] == pod]
    deleted = min(revision(one) for one in versions if "deletionTimestamp" in one["metadata"])
    return deleted, min(revision(one) for one in versions if one["status"]["phase"] in ("Succeeded", "Failed"))


def assert_planned_while_it_stops(history: History, job: str, server: str) -> None:
    """Check that a server was closing in the plan before its deletion, and left the plan only after its end."""
    deleted, ended = stop_of(history, server)
    attempt = int(server.rpartition("-")[2])
    plans = [(revision(one), planned(one)) for one in history.of(JOBS, job)]
    closing = [at for at, servers in plans if servers == [(attempt, "Closing")]]
    assert min(closing) < deleted < ended < min(at for at, servers in plans if not servers and at > min(closing))


def test_idle_server_stops_and_next_window_gets_new_attempt(system: System, history: History) -> None:
    volume = {"scope": "Cluster", "volume": {"hostPath": {"path": "/mnt/models"}}}
    system.submit("cats", seconds=600.0, checkpoint=volume, parameterServers=servers_of(SAVING_SECONDS))
    system.until_phase("cats", "Running")
    (old,) = system.until("its server runs", lambda: list(servers(system, "cats")))
    system.submit("dogs", seconds=300.0, priorityClassName="tranche-high")
    system.until("it has gone", lambda: not servers(system, "cats"))
    system.until("it is released", lambda: planned(system.job("cats")) == [])
    assert_planned_while_it_stops(history, "cats", old)
    system.complete("dogs")
    (new,) = system.until("another server starts", lambda: list(servers(system, "cats")))
    assert int(new.rpartition("-")[2]) > int(old.rpartition("-")[2])
    system.until("a window is open", lambda: system.status("cats")["plan"].get("workers"))
    system.delete("cats", "dogs")


def test_a_server_whose_state_would_be_lost_stays(system: System) -> None:
    system.submit("owls", seconds=600.0, parameterServers=servers_of(0.0))
    system.until_phase("owls", "Running")
    before = system.until("its server", lambda: servers(system, "owls")).keys()
    system.submit("dogs", seconds=4 * IDLE_SECONDS, priorityClassName="tranche-high")
    system.until_phase("dogs", "Succeeded")
    assert servers(system, "owls").keys() == before
    system.delete("owls", "dogs")


def suspend(system: System, name: str, *, suspended: bool) -> None:
    path = f"/apis/tranche.dev/v1alpha1/namespaces/default/trainingjobs/{name}"
    body = {"spec": {"suspend": suspended}}
    assert system.cluster.request("PATCH", path, body, "application/merge-patch+json")[0] == 200


def test_suspended_job_stops_workers_before_its_server(system: System, history: History) -> None:
    server = servers_of(SAVING_SECONDS)
    system.submit("hens", seconds=600.0, checkpoint_seconds=SAVING_SECONDS, parameterServers=server)
    system.until_phase("hens", "Running")
    (old,) = system.until("its server runs", lambda: list(servers(system, "hens")))
    (worker,) = (pod["metadata"]["name"] for pod in system.pods("hens") if role(pod) == "worker")
    suspend(system, "hens", suspended=True)
    system.until_phase("hens", "Suspended")
    system.until("its end is counted", lambda: planned(system.job("hens")) == [])
    assert stop_of(history, worker)[1] < stop_of(history, old)[0], "the worker had gone before"
    assert_planned_while_it_stops(history, "hens", old)
    suspend(system, "hens", suspended=False)
    (new,) = system.until("another server starts", lambda: list(servers(system, "hens")))
    assert int(new.rpartition("-")[2]) > int(old.rpartition("-")[2])
    system.until_phase("hens", "Running")
    system.delete("hens")
