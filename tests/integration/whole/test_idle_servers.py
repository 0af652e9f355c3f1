"""Idle parameter servers on a real control plane: evicted, waited for, released, and started again for the next window.

kwok's nodes run no containers, so the test says on their behalf what they have saved.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from support.full_stack import VALIDATED, System, full_stack

IDLE_SECONDS = 2.0
SAVING_SECONDS = 6.0
"""Time for which a server is seen to stop."""
PODS = "/api/v1/namespaces/default/pods"


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
        if pod["metadata"]["labels"]["tranche.dev/role"] == "ps" and pod["status"]["phase"] in ("Pending", "Running")
    }


def planned(system: System, name: str) -> list[tuple[int, str]]:
    return [(one["attempt"], one["state"]) for one in system.status(name)["plan"].get("parameterServers", [])]


def test_idle_server_stops_and_next_window_gets_new_attempt(system: System) -> None:
    volume = {"scope": "Cluster", "volume": {"hostPath": {"path": "/mnt/models"}}}
    system.submit("cats", seconds=600.0, checkpoint=volume, parameterServers=servers_of(SAVING_SECONDS))
    system.until_phase("cats", "Running")
    (old,) = system.until("its server runs", lambda: list(servers(system, "cats")))
    system.submit("dogs", seconds=300.0, priorityClassName="tranche-high")
    closing = system.until("it is to stop", lambda: [s for s in planned(system, "cats") if s[1] == "Closing"])
    assert closing[0][0] == int(old.rpartition("-")[2])
    system.until("it is evicted", lambda: servers(system, "cats")[old]["metadata"].get("deletionTimestamp"))
    assert planned(system, "cats") == closing, "it stays in the plan while it saves"
    system.until("it has gone", lambda: not servers(system, "cats"))
    system.until("it is released", lambda: planned(system, "cats") == [])
    system.complete("dogs")
    new = system.until("another server starts", lambda: list(servers(system, "cats")))
    assert [int(name.rpartition("-")[2]) > closing[0][0] for name in new] == [True]
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


def going(system: System, name: str) -> list[str]:
    """Return the roles of the job's pods that have been deleted and have not ended, sorted."""
    live = [pod for pod in system.pods(name) if pod["status"]["phase"] in ("Pending", "Running")]
    told = [pod for pod in live if "deletionTimestamp" in pod["metadata"]]
    return sorted(pod["metadata"]["labels"]["tranche.dev/role"] for pod in told)


def suspend(system: System, name: str, *, suspended: bool) -> None:
    path = f"/apis/tranche.dev/v1alpha1/namespaces/default/trainingjobs/{name}"
    body = {"spec": {"suspend": suspended}}
    assert system.cluster.request("PATCH", path, body, "application/merge-patch+json")[0] == 200


def test_suspended_job_stops_workers_before_its_server(system: System) -> None:
    system.submit("hens", seconds=600.0, checkpoint_seconds=4.0, parameterServers=servers_of(SAVING_SECONDS))
    system.until_phase("hens", "Running")
    (old,) = system.until("its server runs", lambda: list(servers(system, "hens")))
    suspend(system, "hens", suspended=True)
    assert system.until("a pod is deleted", lambda: going(system, "hens")) == ["worker"]
    system.until("the server is deleted", lambda: "ps" in going(system, "hens"))
    assert going(system, "hens") == ["ps"], "the workers had gone before"
    assert [state for _, state in planned(system, "hens")] == ["Closing"]
    system.until_phase("hens", "Suspended")
    system.until("its end is counted", lambda: planned(system, "hens") == [])
    suspend(system, "hens", suspended=False)
    new = system.until("another server starts", lambda: list(servers(system, "hens")))
    assert [int(name.rpartition("-")[2]) > int(old.rpartition("-")[2]) for name in new] == [True]
    system.until_phase("hens", "Running")
    system.delete("hens")
