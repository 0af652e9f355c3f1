"""A ResourceQuota on a real control plane: nothing is planned that its admission would refuse."""

from collections.abc import Iterator
from typing import Any

import pytest

from support.full_stack import Whole, full_stack
from support.quotas import impose_quota

QUOTAS = "/api/v1/namespaces/default/resourcequotas"
PODS = "/api/v1/namespaces/default/pods"
GPU = "requests.nvidia.com/gpu"


@pytest.fixture(scope="module")
def whole() -> Iterator[Whole]:
    with full_stack({"edge-a": {"nodes": 2, "gpus": 2}}) as made:
        yield made


@pytest.fixture
def quota(whole: Whole) -> Iterator[None]:
    """Two of the four GPUs for the namespace, in force."""
    path = impose_quota(whole.cluster, "gpus", {GPU: "2"})
    yield
    whole.cluster.request("DELETE", path)


def used(whole: Whole) -> dict[str, str]:
    return dict(whole.cluster.request("GET", f"{QUOTAS}/gpus")[1].get("status", {}).get("used", {}))


def refused(whole: Whole, name: str) -> list[Any]:
    return [c for c in whole.status(name).get("conditions", ()) if c["type"] == "PodsRejected"]


def planned(whole: Whole, name: str) -> list[Any]:
    return list(whole.status(name).get("plan", {}).get("workers", ()))


def explanation(whole: Whole, name: str) -> str:
    return str(whole.status(name).get("plan", {}).get("explanation", ""))


@pytest.mark.usefixtures("quota")
def test_jobs_share_namespace_quota_without_rejected_pods(whole: Whole) -> None:
    whole.submit("first", chunks=4, seconds=10.0)
    whole.until_running("first", 2)
    whole.submit("second", chunks=8, seconds=2.0)
    wanted = "waits for the quota default/gpus: 2 of 2 nvidia.com/gpu in use, and 1 needed"
    whole.until("the quota is named", lambda: explanation(whole, "second") == wanted)
    for name in ("first", "second"):
        assert whole.until_phase(name, "Succeeded")["progress"]["failures"] == 0
        assert refused(whole, name) == []
    whole.delete("first", "second")


@pytest.mark.usefixtures("quota")
def test_shorter_job_takes_quota_after_pods_of_longer_job_end(whole: Whole) -> None:
    whole.submit("long", chunks=2, seconds=300.0)
    whole.until_running("long", 2)
    whole.submit("short", chunks=2, seconds=1.0)
    whole.until_phase("short", "Succeeded")
    assert whole.status("long")["phase"] != "Succeeded"
    status = whole.complete("long")
    assert status["progress"]["preemptions"] >= 1
    assert refused(whole, "short") == refused(whole, "long") == []
    whole.delete("long", "short")


@pytest.mark.usefixtures("quota")
def test_pods_of_others_use_the_quota_too_until_they_are_gone(whole: Whole) -> None:
    resources = {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    container = {"name": "x", "image": "x", "resources": resources}
    spec = {"containers": [container], "nodeSelector": {"nowhere": "true"}, "terminationGracePeriodSeconds": 0}
    status, answer = whole.cluster.request("POST", PODS, {"metadata": {"name": "service"}, "spec": spec})
    assert status == 201, answer
    whole.until("it counts", lambda: used(whole)[GPU] == "1")
    whole.submit("wide", gpus=2)
    wanted = "waits for the quota default/gpus: 1 of 2 nvidia.com/gpu in use, and 2 needed"
    whole.until("the planner counts it", lambda: explanation(whole, "wide") == wanted)
    whole.submit("beside", seconds=2.0)
    whole.until_phase("beside", "Succeeded")
    assert planned(whole, "wide") == []
    whole.cluster.request("DELETE", f"{PODS}/service")
    whole.until_phase("wide", "Succeeded")
    assert refused(whole, "wide") == refused(whole, "beside") == []
    whole.delete("wide", "beside")
