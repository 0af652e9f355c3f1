"""Pods outside the plan occupy their nodes: foreign pods, pods that do not stop, and pods whose sidecar runs on."""

from typing import Any

import pytest

from support.full_stack import API, Whole
from support.priority_classes import add_priority_class
from support.waiting import changes

JOBS = f"{API}/namespaces/default/trainingjobs"
PODS = "/api/v1/namespaces/default/pods"


@pytest.mark.parametrize("takes", [{"nvidia.com/gpu": "1"}, {"cpu": "31500m"}, {"memory": "127.5Gi"}])
def test_foreign_pods_block_windows_until_they_are_deleted(whole: Whole, takes: dict[str, str]) -> None:
    offered = whole.cluster.request("GET", "/api/v1/nodes/edge-a-0")[1]["status"]["allocatable"]
    takes = {name: most(offered[name]) if name != "nvidia.com/gpu" else amount for name, amount in takes.items()}
    container = {"name": "c", "image": "x", "resources": {"requests": takes, "limits": takes}}
    occupy(whole, {"metadata": {"name": "guest"}, "spec": {"containers": [container], "nodeName": "edge-a-0"}})
    whole.submit("host", chunks=2, seconds=600.0, zone="edge-a")
    try:
        whole.until_running("host", 1)
        assert nodes_of(whole.job("host")) == {"edge-a-1"}
        plans = [event["object"] for event in changes(whole.cluster, JOBS, 2)]
        assert set().union(*map(nodes_of, plans)) <= {"edge-a-1"}
        whole.cluster.request("DELETE", f"{PODS}/guest", {"gracePeriodSeconds": 0})
        whole.until_running("host", 2)
    finally:
        whole.cluster.request("DELETE", f"{PODS}/guest", {"gracePeriodSeconds": 0})
        whole.delete("host")


def test_a_foreign_pod_that_preempts_a_worker_is_named(whole: Whole) -> None:
    add_priority_class(whole.cluster, "foreign-service", 1000)
    whole.submit("host", seconds=600.0, node="edge-a-0")
    try:
        whole.until("a worker runs", lambda: whole.status("host").get("phase") == "Running")
        resources = {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
        spec = {
            "schedulerName": "tranche",
            "priorityClassName": "foreign-service",
            "nodeSelector": {"kubernetes.io/hostname": "edge-a-0"},
            "containers": [{"name": "c", "image": "x", "resources": resources}],
        }
        assert whole.cluster.request("POST", PODS, {"metadata": {"name": "guest"}, "spec": spec})[0] == 201
        ended = whole.until("the worker is gone", lambda: whole.status("host")["progress"].get("attempts"))
        first = [one for one in ended if one["attempt"] == 1]  # the next one may have closed before the guest is bound
        assert [(one["reason"], one.get("preemptedBy")) for one in first] == [("Preempted", "pod/default/guest")]
        cause = "Preempted by pod/default/guest, for which kube-scheduler evicted it by priority"
        message = f"{cause}: pod host-worker-0-1 has ended; "
        whole.until("the event", lambda: any(one.startswith(message) for one in messages(whole)))
    finally:
        whole.cluster.request("DELETE", f"{PODS}/guest", {"gracePeriodSeconds": 0})
        whole.delete("host")


def test_pods_with_labels_of_a_job_are_foreign(whole: Whole) -> None:
    resources = {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    spec = {"containers": [{"name": "c", "image": "x", "resources": resources}], "nodeName": "edge-a-0"}
    values = {"job": "host", "role": "worker", "index": "0", "attempt": "1"}
    labels = {f"tranche.dev/{key}": value for key, value in values.items()}
    occupy(whole, {"metadata": {"name": "guest", "labels": labels}, "spec": spec})
    try:
        whole.submit("host", node="edge-a-0")
        plan = whole.until("a plan", lambda: whole.status("host").get("plan"))
        assert (plan["workers"], plan["attempts"]) == ([], 0)
        whole.cluster.request("DELETE", f"{PODS}/guest", {"gracePeriodSeconds": 0})
        whole.until_phase("host", "Succeeded")
    finally:
        whole.cluster.request("DELETE", f"{PODS}/guest", {"gracePeriodSeconds": 0})
        whole.delete("host")


def test_pods_that_a_failed_job_keeps_hold_their_gpus(whole: Whole) -> None:
    whole.submit("late", seconds=600.0, node="edge-a-0", runPolicy={"cleanPodPolicy": "None"})
    whole.until_trained("late", 0)
    whole.change("late", {"runPolicy": {"activeDeadlineSeconds": 1}})  # at first, it could pass before the pod runs
    whole.until_phase("late", "Failed")
    assert [pod["status"]["phase"] for pod in whole.pods("late")] == ["Running"]
    try:
        whole.submit("host", node="edge-a-0")
        plan = whole.until("a plan", lambda: whole.status("host").get("plan"))
        assert (plan["workers"], plan["attempts"]) == ([], 0)
        whole.until("a plan for the failed job", lambda: keeps_a_pod(whole.status("late")["plan"]))
        whole.delete("late")
        whole.until_phase("host", "Succeeded")
    finally:
        whole.delete("late", "host")


def keeps_a_pod(plan: dict[str, Any]) -> bool:
    """Return whether the plan has a window whose pod is only to stop, and no end of the job."""
    return ([one["state"] for one in plan["workers"]], plan.get("estimatedCompletion")) == (["Closing"], None)


def occupy(whole: Whole, guest: dict[str, Any]) -> None:
    """Create the pod `guest` and wait until it runs: the planner's watches may show a job before an earlier pod."""
    assert whole.cluster.request("POST", PODS, guest)[0] == 201
    running = lambda: whole.cluster.request("GET", f"{PODS}/guest")[1]["status"]["phase"] == "Running"  # noqa: E731
    whole.until("the guest runs", running)


def messages(whole: Whole) -> list[str]:
    return [event["message"] for event in whole.cluster.request("GET", "/api/v1/namespaces/default/events")[1]["items"]]


def nodes_of(job: dict[str, Any]) -> set[str]:
    """The nodes of the planned windows."""
    return {window["node"] for window in job["status"]["plan"]["workers"]}


def most(quantity: str) -> str:
    """The quantity less half a unit: what stays free is less than a worker requests."""
    digits = quantity.rstrip("GiMKm")
    unit = quantity[len(digits) :]
    return f"{float(digits) - 0.5:g}{unit}" if unit in ("", "Gi") else quantity


def condition(whole: Whole, job: str, kind: str = "PodsDoNotStop") -> dict[str, Any]:
    return next((c for c in whole.status(job).get("conditions", ()) if c["type"] == kind), {})


def running(whole: Whole, job: str) -> list[dict[str, Any]]:
    return [pod for pod in whole.pods(job) if pod["status"]["phase"] == "Running"]


def test_pod_that_does_not_stop_keeps_its_gpu_and_is_named(whole: Whole) -> None:
    """A kubelet cannot end the pod: its simulated node never writes that its containers have terminated."""
    whole.submit("stuck", seconds=600.0, node="edge-a-0", checkpoint_seconds="never")
    whole.until_phase("stuck", "Running")
    whole.change("stuck", {"suspend": True})
    (pod,) = whole.pods("stuck")
    try:
        told = whole.until("a condition", lambda: condition(whole, "stuck"))
        assert told["status"] == "True"
        assert f"{pod['metadata']['name']} on node edge-a-0" in told["message"]
        whole.submit("next", node="edge-a-0")
        plan = whole.until("a plan", lambda: whole.status("next").get("plan"))
        assert plan["workers"] == []
        assert plan["attempts"] == 0
        assert not whole.pods("next")
        whole.cluster.request("DELETE", f"{PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
        whole.until_phase("next", "Succeeded")
        whole.until("it is taken back", lambda: condition(whole, "stuck")["status"] == "False")
    finally:
        whole.cluster.request("DELETE", f"{PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
        whole.delete("stuck", "next")


def test_pod_is_deleted_when_only_its_sidecar_runs(whole: Whole) -> None:
    whole.submit("meshed", chunks=2, seconds=1.0, node="edge-a-0", sidecar=True)
    status = whole.until_phase("meshed", "Succeeded")
    assert status["progress"]["failures"] == 0
    assert {one["reason"] for one in status["progress"]["attempts"]} == {"Succeeded"}
    whole.until("the GPU is free", lambda: not running(whole, "meshed"))
    whole.delete("meshed")


def test_failed_training_counts_although_a_sidecar_runs(whole: Whole) -> None:
    whole.submit("broken", node="edge-a-0", exit_code=3, sidecar=True, runPolicy={"backoffLimit": 0})
    status = whole.until_phase("broken", "Failed")
    assert status["progress"]["failures"] == 1
    assert status["progress"]["attempts"][0]["exitCode"] == 3
    whole.until("the GPU is free", lambda: not running(whole, "broken"))
    whole.delete("broken")
