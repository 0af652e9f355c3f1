"""Two GPU resources and two GPU kinds on a real control plane: each job runs on GPUs of its own, the fastest first."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from support.full_stack import VALIDATED, Whole, full_stack
from support.quotas import impose_quota
from support.waiting import stays

NVIDIA, AMD, INTEL = "nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915"
KIND = "example.org/gpu-kind"
PODS = "/api/v1/namespaces/default/pods"
LONG = 600.0
"""Seconds of a chunk that does not end during its test, however slow the machine is."""


@pytest.fixture(scope="module")
def whole() -> Iterator[Whole]:
    sites = {
        "edge-a": {"gpus": 2, "extra_labels": {KIND: "T4"}},
        "edge-c": {"gpus": 2, "extra_labels": {KIND: "A100"}},
        "edge-b": {"gpus": 2, "gpu_resource": AMD},
    }
    options = [*VALIDATED, "--gpu-resource", NVIDIA, "--gpu-resource", AMD]
    options += ["--gpu-kind-label", KIND, "--gpu-speed", "T4=0.5"]
    with full_stack(sites, options=options) as made:
        yield made


def asks(resource: str, gpus: int = 1) -> dict[str, Any]:
    amounts = {"cpu": "1", resource: str(gpus)}
    return {"resources": {"requests": amounts, "limits": {resource: str(gpus)}}}


def explanation(whole: Whole, name: str) -> str:
    return str(whole.status(name).get("plan", {}).get("explanation", ""))


def nodes_of(whole: Whole, name: str) -> set[str]:
    return {pod["spec"].get("nodeName", "") for pod in whole.pods(name)}


def test_jobs_of_both_resources_run_each_on_its_own_nodes(whole: Whole) -> None:
    whole.submit("amd", chunks=2, seconds=LONG, container=asks(AMD))
    whole.submit("nvidia", chunks=4, seconds=LONG, container=asks(NVIDIA))
    whole.until_running("amd", 2)
    whole.until_running("nvidia", 4)
    assert nodes_of(whole, "amd") == {"edge-b-0"}
    assert nodes_of(whole, "nvidia") == {"edge-a-0", "edge-c-0"}
    assert [whole.status(name)["progress"]["failures"] for name in ("amd", "nvidia")] == [0, 0]
    whole.delete("amd", "nvidia")


def test_waiting_job_names_its_resource(whole: Whole) -> None:
    whole.submit("long", chunks=2, seconds=LONG, container=asks(AMD), preemption={"policy": "Never"})
    whole.until_running("long", 2)
    whole.submit("behind", seconds=20.0, container=asks(AMD))
    whole.until("it waits", lambda: explanation(whole, "behind").startswith("waits for 1 amd.com/gpu at cluster until"))
    whole.delete("long")
    whole.until_running("behind", 1)
    whole.delete("behind")


def test_pod_of_no_job_takes_gpus_of_its_resource_only(whole: Whole) -> None:
    containers = [{"name": "x", "image": "x", **asks(AMD, 2)}]
    spec = {"nodeName": "edge-b-0", "containers": containers, "terminationGracePeriodSeconds": 0}
    status, answer = whole.cluster.request("POST", PODS, {"metadata": {"name": "service"}, "spec": spec})
    assert status == 201, answer
    running = lambda: whole.cluster.request("GET", f"{PODS}/service")[1]["status"]["phase"] == "Running"  # noqa: E731
    whole.until("it runs", running)
    whole.submit("nvidia", chunks=4, seconds=1.0, container=asks(NVIDIA))
    whole.submit("amd", chunks=2, seconds=1.0, container=asks(AMD))
    whole.until_phase("nvidia", "Succeeded")
    assert whole.status("amd")["plan"]["workers"] == []
    whole.cluster.request("DELETE", f"{PODS}/service")
    whole.until_phase("amd", "Succeeded")
    whole.delete("nvidia", "amd")


def test_quota_of_one_resource_leaves_the_other(whole: Whole) -> None:
    path = impose_quota(whole.cluster, "amd", {f"requests.{AMD}": "1"})
    whole.submit("amd", chunks=2, seconds=LONG, container=asks(AMD))
    whole.submit("nvidia", chunks=4, seconds=LONG, container=asks(NVIDIA))
    whole.until_running("nvidia", 4)
    whole.until_running("amd", 1)
    stays(lambda: len(whole.status("amd")["plan"]["workers"]) == 1, "the quota is not exceeded", seconds=1.0)
    whole.cluster.request("DELETE", path)
    whole.until_running("amd", 2)
    whole.delete("amd", "nvidia")


def window(whole: Whole, name: str) -> tuple[str, float]:
    """Return the node and the planned seconds of the only window of a job, once it is planned."""
    found: list[dict[str, Any]] = whole.until(
        f"{name} has a window", lambda: whole.status(name).get("plan", {}).get("workers")
    )
    (one,) = found
    start, end = (datetime.fromisoformat(one[field]) for field in ("start", "end"))
    return one["node"], (end - start).total_seconds()


def test_job_starts_on_the_fastest_kind_with_its_declared_time(whole: Whole) -> None:
    whole.submit("fast", seconds=20.0, container=asks(NVIDIA))
    assert window(whole, "fast")[0] == "edge-c-0"
    times = {"stepTime": "400ms", "stepTimes": {"A100": "800ms", "T4": "200ms"}}
    whole.submit("own", seconds=10.0, container=asks(NVIDIA), model=times)
    node, seconds = window(whole, "own")
    assert (node, round(seconds)) == ("edge-a-0", 10)
    whole.submit("slow", seconds=20.0, container=asks(NVIDIA), node="edge-a-0")
    node, seconds = window(whole, "slow")
    assert (node, round(seconds)) == ("edge-a-0", 40)
    whole.delete("fast", "own", "slow")


def test_last_chunk_waits_for_the_faster_gpu(whole: Whole) -> None:
    model = {"stepTime": "6s", "stepTimes": {"T4": "60s"}}
    whole.submit("tail", chunks=3, seconds=300.0, container=asks(NVIDIA), model=model)
    whole.until_running("tail", 2)
    sentence = "free GPUs are slower and would complete its waiting chunks later"
    whole.until("that is said", lambda: sentence in explanation(whole, "tail"))
    whole.complete("tail")
    assert {one["node"] for one in whole.status("tail")["progress"]["attempts"]} == {"edge-c-0"}
    whole.delete("tail")


def test_resource_that_is_not_configured_is_named(whole: Whole) -> None:
    whole.submit("intel", container=asks(INTEL))

    def planned() -> dict[str, Any] | None:
        conditions = whole.status("intel").get("conditions", ())
        return next((one for one in conditions if one["type"] == "Planned"), None)

    whole.until("it is refused", lambda: (planned() or {}).get("status") == "False")
    sentence = (
        "requests gpu.intel.com/i915, which is not one of the GPU resources of this installation "
        "(nvidia.com/gpu, amd.com/gpu): request one of these, or let an administrator add it to the chart's "
        "gpuResources"
    )
    condition = planned()
    assert condition is not None
    assert (condition["reason"], condition["message"]) == ("GpuNotPlanned", sentence)
    whole.until("the plan explains it, too", lambda: explanation(whole, "intel") == sentence)
    whole.delete("intel")


def test_metrics_count_the_gpus_of_each_resource(whole: Whole) -> None:
    sites = {one["name"]: one for one in whole.read("sites")["sites"]}
    counts = {name: {one["resource"]: one["gpus"] for one in site["gpuResources"]} for name, site in sites.items()}
    assert counts == {"cluster": {NVIDIA: 4, AMD: 2}}
