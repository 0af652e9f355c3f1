"""Idle parameter servers on a real control plane: evicted, waited for, released, and started again for the next window.

kwok's nodes run no containers, so the test says on their behalf what they have saved.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from support.full_stack import VALIDATED, Whole, full_stack

IDLE_SECONDS = 2.0
SAVING_SECONDS = 6.0
"""Time for which a server is seen to stop."""
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def whole() -> Iterator[Whole]:
    options = [*VALIDATED, "--server-idle-seconds", str(IDLE_SECONDS)]
    with full_stack({"edge-a": {"nodes": 1, "gpus": 1}}, options=options) as made:
        yield made


def servers_of(saving_seconds: float) -> dict[str, Any]:
    container = {"name": "ps", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    annotations = {"kwok.tranche.dev/checkpoint-seconds": str(saving_seconds)}
    return {"template": {"metadata": {"annotations": annotations}, "spec": {"containers": [container]}}}


def servers(whole: Whole, name: str) -> dict[str, dict[str, Any]]:
    """Pods of parameter servers that have not ended, by name."""
    return {
        pod["metadata"]["name"]: pod
        for pod in whole.pods(name)
        if pod["metadata"]["labels"]["tranche.dev/role"] == "ps" and pod["status"]["phase"] in ("Pending", "Running")
    }


def planned(whole: Whole, name: str) -> list[tuple[int, str]]:
    return [(one["attempt"], one["state"]) for one in whole.status(name)["plan"].get("parameterServers", [])]


def test_idle_server_stops_and_next_window_gets_new_attempt(whole: Whole) -> None:
    volume = {"scope": "Cluster", "volume": {"hostPath": {"path": "/mnt/models"}}}
    whole.submit("cats", seconds=600.0, checkpoint=volume, parameterServers=servers_of(SAVING_SECONDS))
    whole.until_phase("cats", "Running")
    (old,) = whole.until("its server runs", lambda: list(servers(whole, "cats")))
    whole.submit("dogs", seconds=300.0, priorityClassName="tranche-high")
    closing = whole.until("it is to stop", lambda: [s for s in planned(whole, "cats") if s[1] == "Closing"])
    assert closing[0][0] == int(old.rpartition("-")[2])
    whole.until("it is evicted", lambda: servers(whole, "cats")[old]["metadata"].get("deletionTimestamp"))
    assert planned(whole, "cats") == closing, "it stays in the plan while it saves"
    whole.until("it has gone", lambda: not servers(whole, "cats"))
    whole.until("it is released", lambda: planned(whole, "cats") == [])
    whole.complete("dogs")
    new = whole.until("another server starts", lambda: list(servers(whole, "cats")))
    assert [int(name.rpartition("-")[2]) > closing[0][0] for name in new] == [True]
    whole.until("a window is open", lambda: whole.status("cats")["plan"].get("workers"))
    whole.delete("cats", "dogs")


def test_a_server_whose_state_would_be_lost_stays(whole: Whole) -> None:
    whole.submit("owls", seconds=600.0, parameterServers=servers_of(0.0))
    whole.until_phase("owls", "Running")
    before = whole.until("its server", lambda: servers(whole, "owls")).keys()
    whole.submit("dogs", seconds=4 * IDLE_SECONDS, priorityClassName="tranche-high")
    whole.until_phase("dogs", "Succeeded")
    assert servers(whole, "owls").keys() == before
    whole.delete("owls", "dogs")


def going(whole: Whole, name: str) -> list[str]:
    """Return the roles of the job's pods that have been deleted and have not ended, sorted."""
    live = [pod for pod in whole.pods(name) if pod["status"]["phase"] in ("Pending", "Running")]
    told = [pod for pod in live if "deletionTimestamp" in pod["metadata"]]
    return sorted(pod["metadata"]["labels"]["tranche.dev/role"] for pod in told)


def suspend(whole: Whole, name: str, *, suspended: bool) -> None:
    path = f"/apis/tranche.dev/v1alpha1/namespaces/default/trainingjobs/{name}"
    body = {"spec": {"suspend": suspended}}
    assert whole.cluster.request("PATCH", path, body, "application/merge-patch+json")[0] == 200


def test_suspended_job_stops_workers_before_its_server(whole: Whole) -> None:
    whole.submit("hens", seconds=600.0, checkpoint_seconds=4.0, parameterServers=servers_of(SAVING_SECONDS))
    whole.until_phase("hens", "Running")
    (old,) = whole.until("its server runs", lambda: list(servers(whole, "hens")))
    suspend(whole, "hens", suspended=True)
    assert whole.until("a pod is deleted", lambda: going(whole, "hens")) == ["worker"]
    whole.until("the server is deleted", lambda: "ps" in going(whole, "hens"))
    assert going(whole, "hens") == ["ps"], "the workers had gone before"
    assert [state for _, state in planned(whole, "hens")] == ["Closing"]
    whole.until_phase("hens", "Suspended")
    whole.until("its end is counted", lambda: planned(whole, "hens") == [])
    suspend(whole, "hens", suspended=False)
    new = whole.until("another server starts", lambda: list(servers(whole, "hens")))
    assert [int(name.rpartition("-")[2]) > int(old.rpartition("-")[2]) for name in new] == [True]
    whole.until_phase("hens", "Running")
    whole.delete("hens")
