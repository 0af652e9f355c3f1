"""Pods outside the plan occupy their nodes: foreign pods, pods that do not stop, and pods whose sidecar runs on."""

from typing import Any

import pytest

from support.full_stack import API, System, declare_site
from support.priority_classes import add_priority_class
from support.waiting import changes

JOBS = f"{API}/namespaces/default/trainingjobs"
SITES = f"{API}/sites"
PODS = "/api/v1/namespaces/default/pods"
GPU = "nvidia.com/gpu"


@pytest.fixture(scope="module", autouse=True)
def sites(system: System) -> None:
    """Declare the sites: the status of one shows which pods the planner has seen."""
    for name in ("edge-a", "edge-b"):
        declare_site(system.cluster, name)


@pytest.mark.parametrize("takes", [{GPU: "1"}, {"cpu": "31500m"}, {"memory": "127.5Gi"}])
def test_foreign_pods_block_windows_until_they_are_deleted(system: System, takes: dict[str, str]) -> None:
    offered = system.cluster.request("GET", "/api/v1/nodes/edge-a-0")[1]["status"]["allocatable"]
    takes = {name: most(offered[name]) if name != GPU else amount for name, amount in takes.items()}
    container = {"name": "c", "image": "x", "resources": {"requests": takes, "limits": takes}}
    occupy(system, {"metadata": {"name": "guest"}, "spec": {"containers": [container], "nodeName": "edge-a-0"}})
    system.submit("host", chunks=2, seconds=600.0, zone="edge-a")
    try:
        system.until_running("host", 1)
        assert nodes_of(system.job("host")) == {"edge-a-1"}
        plans = [event["object"] for event in changes(system.cluster, JOBS, 2)]
        assert set().union(*map(nodes_of, plans)) <= {"edge-a-1"}
        system.cluster.request("DELETE", f"{PODS}/guest", {"gracePeriodSeconds": 0})
        system.until_running("host", 2)
    finally:
        system.cluster.request("DELETE", f"{PODS}/guest", {"gracePeriodSeconds": 0})
        system.delete("host")


def test_a_foreign_pod_that_preempts_a_worker_is_named(system: System) -> None:
    add_priority_class(system.cluster, "foreign-service", 1000)
    system.submit("host", seconds=600.0, node="edge-a-0")
    try:
        system.until("a worker runs", lambda: system.status("host").get("phase") == "Running")
        resources = {"requests": {GPU: "1"}, "limits": {GPU: "1"}}
        spec = {
            "schedulerName": "tranche",
            "priorityClassName": "foreign-service",
            "nodeSelector": {"kubernetes.io/hostname": "edge-a-0"},
            "containers": [{"name": "c", "image": "x", "resources": resources}],
        }
        assert system.cluster.request("POST", PODS, {"metadata": {"name": "guest"}, "spec": spec})[0] == 201
        ended = system.until("the worker is gone", lambda: system.status("host")["progress"].get("attempts"))
        first = [one for one in ended if one["attempt"] == 1]  # the next one may have closed before the guest is bound
        assert [(one["reason"], one.get("preemptedBy")) for one in first] == [("Preempted", "pod/default/guest")]
        cause = "Preempted by pod/default/guest, for which kube-scheduler evicted it by priority"
        message = f"{cause}: pod host-worker-0-1 has ended; "
        system.until("the event", lambda: any(one.startswith(message) for one in messages(system)))
    finally:
        system.cluster.request("DELETE", f"{PODS}/guest", {"gracePeriodSeconds": 0})
        system.delete("host")


def test_pods_with_labels_of_a_job_are_foreign(system: System) -> None:
    resources = {"requests": {GPU: "1"}, "limits": {GPU: "1"}}
    spec = {"containers": [{"name": "c", "image": "x", "resources": resources}], "nodeName": "edge-a-0"}
    values = {"job": "host", "role": "worker", "index": "0", "attempt": "1"}
    labels = {f"tranche.dev/{key}": value for key, value in values.items()}
    occupy(system, {"metadata": {"name": "guest", "labels": labels}, "spec": spec})
    try:
        system.submit("host", node="edge-a-0")
        plan = system.until("a plan", lambda: system.status("host").get("plan"))
        assert (plan["workers"], plan["attempts"]) == ([], 0)
        system.cluster.request("DELETE", f"{PODS}/guest", {"gracePeriodSeconds": 0})
        system.until_phase("host", "Succeeded")
    finally:
        system.cluster.request("DELETE", f"{PODS}/guest", {"gracePeriodSeconds": 0})
        system.delete("host")


def test_pods_that_a_failed_job_keeps_hold_their_gpus(system: System) -> None:
    system.submit("late", seconds=600.0, node="edge-a-0", runPolicy={"cleanPodPolicy": "None"})
    system.until_trained("late", 0)
    system.change("late", {"runPolicy": {"activeDeadlineSeconds": 1}})  # at first, it could pass before the pod runs
    system.until_phase("late", "Failed")
    assert [pod["status"]["phase"] for pod in system.pods("late")] == ["Running"]
    try:
        system.submit("host", node="edge-a-0")
        plan = system.until("a plan", lambda: system.status("host").get("plan"))
        assert (plan["workers"], plan["attempts"]) == ([], 0)
        system.until("a plan for the failed job", lambda: keeps_a_pod(system.status("late")["plan"]))
        system.delete("late")
        system.until_phase("host", "Succeeded")
    finally:
        system.delete("late", "host")


def keeps_a_pod(plan: dict[str, Any]) -> bool:
    """Return whether the plan has a window whose pod is only to stop, and no end of the job."""
    return ([one["state"] for one in plan["workers"]], plan.get("estimatedCompletion")) == (["Closing"], None)


def occupy(system: System, guest: dict[str, Any]) -> None:
    """Create the pod `guest` and wait until the planner has seen it: its watches may show a job before an earlier pod.

    It has when it counts a later pod at the other site, because one watch shows all pods in their order.
    """
    resources = {"requests": {GPU: "1"}, "limits": {GPU: "1"}}
    later = {"containers": [{"name": "c", "image": "x", "resources": resources}], "nodeName": "edge-b-0"}
    for pod in (guest, {"metadata": {"name": "later"}, "spec": later}):
        assert system.cluster.request("POST", PODS, pod)[0] == 201
    try:
        system.until("the planner counts the later pod", lambda: allocated(system, "edge-b") == 1)
        system.until("the guest runs", lambda: phase(system, "guest") == "Running")
    finally:
        system.cluster.request("DELETE", f"{PODS}/later", {"gracePeriodSeconds": 0})


def allocated(system: System, site: str) -> int:
    status = system.cluster.request("GET", f"{SITES}/{site}")[1].get("status", {})
    return int(status.get("allocatedGpus", 0))


def phase(system: System, pod: str) -> str:
    return str(system.cluster.request("GET", f"{PODS}/{pod}")[1]["status"]["phase"])


def messages(system: System) -> list[str]:
    return [
        event["message"] for event in system.cluster.request("GET", "/api/v1/namespaces/default/events")[1]["items"]
    ]


def nodes_of(job: dict[str, Any]) -> set[str]:
    """The nodes of the planned windows."""
    return {window["node"] for window in job["status"]["plan"]["workers"]}


def most(quantity: str) -> str:
    """The quantity less half a unit: what stays free is less than a worker requests."""
    digits = quantity.rstrip("GiMKm")
    unit = quantity[len(digits) :]
    return f"{float(digits) - 0.5:g}{unit}" if unit in ("", "Gi") else quantity


def condition(system: System, job: str, kind: str = "PodsDoNotStop") -> dict[str, Any]:
    return next((c for c in system.status(job).get("conditions", ()) if c["type"] == kind), {})


def running(system: System, job: str) -> list[dict[str, Any]]:
    return [pod for pod in system.pods(job) if pod["status"]["phase"] == "Running"]


def test_pod_that_does_not_stop_keeps_its_gpu_and_is_named(system: System) -> None:
    """A kubelet cannot end the pod: its simulated node never writes that its containers have terminated."""
    system.submit("stuck", seconds=600.0, node="edge-a-0", checkpoint_seconds="never")
    system.until_phase("stuck", "Running")
    system.change("stuck", {"suspend": True})
    (pod,) = system.pods("stuck")
    try:
        told = system.until("a condition", lambda: condition(system, "stuck"))
        assert told["status"] == "True"
        assert f"{pod['metadata']['name']} on node edge-a-0" in told["message"]
        system.submit("next", node="edge-a-0")
        plan = system.until("a plan", lambda: system.status("next").get("plan"))
        assert plan["workers"] == []
        assert plan["attempts"] == 0
        assert not system.pods("next")
        system.cluster.request("DELETE", f"{PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
        system.until_phase("next", "Succeeded")
        system.until("it is taken back", lambda: condition(system, "stuck")["status"] == "False")
    finally:
        system.cluster.request("DELETE", f"{PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
        system.delete("stuck", "next")


def test_job_created_again_trains_while_its_old_pod_stops(system: System) -> None:
    """The pods of both jobs have other names, since those of the old one may take an hour to save."""
    slow = {"terminationGracePeriodSeconds": 500}
    system.submit("again", seconds=600.0, zone="edge-b", checkpoint_seconds="never", pod=slow)
    system.until_phase("again", "Running")
    (old,) = system.pods("again")
    path = f"{PODS}/{old['metadata']['name']}"
    try:
        system.cluster.request("DELETE", "/apis/tranche.dev/v1alpha1/namespaces/default/trainingjobs/again")
        system.until(
            "the old pod stops", lambda: "deletionTimestamp" in system.cluster.request("GET", path)[1]["metadata"]
        )
        system.submit("again", zone="edge-b")
        system.until_phase("again", "Succeeded")
        assert system.cluster.request("GET", path)[1]["metadata"]["uid"] == old["metadata"]["uid"], "it still stops"
    finally:
        system.cluster.request("DELETE", path, {"gracePeriodSeconds": 0})
        system.delete("again")


def test_pod_is_deleted_when_only_its_sidecar_runs(system: System) -> None:
    system.submit("meshed", chunks=2, seconds=1.0, node="edge-a-0", sidecar=True)
    status = system.until_phase("meshed", "Succeeded")
    assert status["progress"]["failures"] == 0
    assert {one["reason"] for one in status["progress"]["attempts"]} == {"Succeeded"}
    system.until("the GPU is free", lambda: not running(system, "meshed"))
    system.delete("meshed")


def test_failed_training_counts_although_a_sidecar_runs(system: System) -> None:
    system.submit("broken", node="edge-a-0", exit_code=3, sidecar=True, runPolicy={"backoffLimit": 0})
    status = system.until_phase("broken", "Failed")
    assert status["progress"]["failures"] == 1
    assert status["progress"]["attempts"][0]["exitCode"] == 3
    system.until("the GPU is free", lambda: not running(system, "broken"))
    system.delete("broken")
