"""A ResourceQuota on a real control plane: nothing is planned that its admission would refuse."""

from collections.abc import Iterator
from typing import Any

import pytest

from support.full_stack import System, full_stack
from support.quotas import impose_quota

QUOTAS = "/api/v1/namespaces/default/resourcequotas"
PODS = "/api/v1/namespaces/default/pods"
GPU = "requests.nvidia.com/gpu"


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    with full_stack({"edge-a": {"nodes": 2, "gpus": 2}}) as made:
        yield made


@pytest.fixture
def quota(system: System) -> Iterator[None]:
    """Two of the four GPUs for the namespace, in force."""
    path = impose_quota(system.cluster, "gpus", {GPU: "2"})
    yield
    system.cluster.request("DELETE", path)


def used(system: System) -> dict[str, str]:
    return dict(system.cluster.request("GET", f"{QUOTAS}/gpus")[1].get("status", {}).get("used", {}))


def refused(system: System, name: str) -> list[Any]:
    return [c for c in system.status(name).get("conditions", ()) if c["type"] == "PodsRejected"]


def planned(system: System, name: str) -> list[Any]:
    return list(system.status(name).get("plan", {}).get("workers", ()))


def explanation(system: System, name: str) -> str:
    return str(system.status(name).get("plan", {}).get("explanation", ""))


@pytest.mark.usefixtures("quota")
def test_jobs_share_namespace_quota_without_rejected_pods(system: System) -> None:
    system.submit("first", chunks=4, seconds=300.0, preemption={"policy": "Never"})
    system.until_running("first", 2)
    system.submit("second", chunks=8, seconds=2.0)
    wanted = "waits for the quota default/gpus: 2 of 2 nvidia.com/gpu in use, and 1 needed"
    system.until("the quota is named", lambda: explanation(system, "second") == wanted)
    for name in ("first", "second"):
        assert system.complete(name)["progress"]["failures"] == 0
        assert refused(system, name) == []
    system.delete("first", "second")


@pytest.mark.usefixtures("quota")
def test_shorter_job_takes_quota_after_pods_of_longer_job_end(system: System) -> None:
    system.submit("long", chunks=2, seconds=300.0)
    system.until_running("long", 2)
    system.submit("short", chunks=2, seconds=1.0)
    system.until_phase("short", "Succeeded")
    assert system.status("long")["phase"] != "Succeeded"
    status = system.complete("long")
    assert status["progress"]["preemptions"] >= 1
    assert refused(system, "short") == refused(system, "long") == []
    system.delete("long", "short")


@pytest.mark.usefixtures("quota")
def test_pods_of_others_use_the_quota_too_until_they_are_gone(system: System) -> None:
    resources = {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    container = {"name": "x", "image": "x", "resources": resources}
    spec = {"containers": [container], "nodeSelector": {"nowhere": "true"}, "terminationGracePeriodSeconds": 0}
    status, answer = system.cluster.request("POST", PODS, {"metadata": {"name": "service"}, "spec": spec})
    assert status == 201, answer
    system.until("it counts", lambda: used(system)[GPU] == "1")
    system.submit("wide", gpus=2)
    wanted = "waits for the quota default/gpus: 1 of 2 nvidia.com/gpu in use, and 2 needed"
    system.until("the planner counts it", lambda: explanation(system, "wide") == wanted)
    system.submit("beside", seconds=2.0)
    system.until_phase("beside", "Succeeded")
    assert planned(system, "wide") == []
    system.cluster.request("DELETE", f"{PODS}/service")
    system.until_phase("wide", "Succeeded")
    assert refused(system, "wide") == refused(system, "beside") == []
    system.delete("wide", "beside")
