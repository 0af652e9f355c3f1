"""Pods that hold their GPUs although they should not: they do not stop, or only a sidecar of them runs."""

from typing import Any

from support.full_stack import API, Whole

PODS = "/api/v1/namespaces/default/pods"
JOBS = f"{API}/namespaces/default/trainingjobs"


def condition(whole: Whole, job: str, kind: str = "PodsDoNotStop") -> dict[str, Any]:
    return next((c for c in whole.status(job).get("conditions", ()) if c["type"] == kind), {})


def suspend(whole: Whole, job: str) -> None:
    body = {"spec": {"suspend": True}}
    assert whole.cluster.request("PATCH", f"{JOBS}/{job}", body, "application/merge-patch+json")[0] == 200


def running(whole: Whole, job: str) -> list[dict[str, Any]]:
    return [pod for pod in whole.pods(job) if pod["status"]["phase"] == "Running"]


def test_pod_that_does_not_stop_keeps_its_gpu_and_is_named(whole: Whole) -> None:
    """A kubelet cannot end the pod: its simulated node never writes that its containers have terminated."""
    whole.submit("stuck", seconds=600.0, node="edge-a-0", checkpoint_seconds="never")
    whole.until_phase("stuck", "Running")
    suspend(whole, "stuck")
    (pod,) = whole.pods("stuck")
    try:
        told = whole.until("a condition", lambda: condition(whole, "stuck"), seconds=60.0)
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
