"""Two GPU resources and two GPU kinds on a real control plane: each job runs on GPUs of its own, the fastest first."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from support.full_stack import VALIDATED, System, full_stack
from support.quotas import impose_quota
from support.waiting import stays

NVIDIA, AMD, INTEL = "nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915"
KIND = "example.org/gpu-kind"
PODS = "/api/v1/namespaces/default/pods"
LONG = 600.0
"""Seconds of a chunk that does not end during its test, however slow the machine is."""


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
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


def explanation(system: System, name: str) -> str:
    return str(system.status(name).get("plan", {}).get("explanation", ""))


def nodes_of(system: System, name: str) -> set[str]:
    return {pod["spec"].get("nodeName", "") for pod in system.pods(name)}


def test_jobs_of_both_resources_run_each_on_its_own_nodes(system: System) -> None:
    system.submit("amd", chunks=2, seconds=LONG, container=asks(AMD))
    system.submit("nvidia", chunks=4, seconds=LONG, container=asks(NVIDIA))
    system.until_running("amd", 2)
    system.until_running("nvidia", 4)
    assert nodes_of(system, "amd") == {"edge-b-0"}
    assert nodes_of(system, "nvidia") == {"edge-a-0", "edge-c-0"}
    assert [system.status(name)["progress"]["failures"] for name in ("amd", "nvidia")] == [0, 0]
    system.delete("amd", "nvidia")


def test_waiting_job_names_its_resource(system: System) -> None:
    system.submit("long", chunks=2, seconds=LONG, container=asks(AMD), preemption={"policy": "Never"})
    system.until_running("long", 2)
    system.submit("behind", seconds=LONG, container=asks(AMD))
    system.until(
        "it waits", lambda: explanation(system, "behind").startswith("waits for 1 amd.com/gpu at cluster until")
    )
    system.delete("long")
    system.until_running("behind", 1)
    system.delete("behind")


def test_pod_of_no_job_takes_gpus_of_its_resource_only(system: System) -> None:
    containers = [{"name": "x", "image": "x", **asks(AMD, 2)}]
    spec = {"nodeName": "edge-b-0", "containers": containers, "terminationGracePeriodSeconds": 0}
    status, answer = system.cluster.request("POST", PODS, {"metadata": {"name": "service"}, "spec": spec})
    assert status == 201, answer
    running = lambda: system.cluster.request("GET", f"{PODS}/service")[1]["status"]["phase"] == "Running"  # noqa: E731
    system.until("it runs", running)
    system.submit("nvidia", chunks=4, seconds=1.0, container=asks(NVIDIA))
    system.submit("amd", chunks=2, seconds=1.0, container=asks(AMD))
    system.until_phase("nvidia", "Succeeded")
    assert system.status("amd")["plan"]["workers"] == []
    system.cluster.request("DELETE", f"{PODS}/service")
    system.until_phase("amd", "Succeeded")
    system.delete("nvidia", "amd")


def test_quota_of_one_resource_leaves_the_other(system: System) -> None:
    path = impose_quota(system.cluster, "amd", {f"requests.{AMD}": "1"})
    system.submit("amd", chunks=2, seconds=LONG, container=asks(AMD))
    system.submit("nvidia", chunks=4, seconds=LONG, container=asks(NVIDIA))
    system.until_running("nvidia", 4)
    system.until_running("amd", 1)
    stays(lambda: len(system.status("amd")["plan"]["workers"]) == 1, "the quota is not exceeded", seconds=1.0)
    system.cluster.request("DELETE", path)
    system.until_running("amd", 2)
    system.delete("amd", "nvidia")


def window(system: System, name: str) -> tuple[str, float]:
    """Return the node and the planned seconds of the only window of a job, once it is planned."""
    found: list[dict[str, Any]] = system.until(
        f"{name} has a window", lambda: system.status(name).get("plan", {}).get("workers")
    )
    (one,) = found
    start, end = (datetime.fromisoformat(one[field]) for field in ("start", "end"))
    return one["node"], (end - start).total_seconds()


def test_job_starts_on_the_fastest_kind_with_its_declared_time(system: System) -> None:
    system.submit("fast", seconds=LONG, container=asks(NVIDIA))
    assert window(system, "fast")[0] == "edge-c-0"
    times = {"stepTime": "24s", "stepTimes": {"A100": "48s", "T4": "12s"}}
    system.submit("own", seconds=LONG, container=asks(NVIDIA), model=times)
    node, seconds = window(system, "own")
    assert (node, round(seconds)) == ("edge-a-0", LONG)
    system.submit("slow", seconds=LONG, container=asks(NVIDIA), node="edge-a-0")
    node, seconds = window(system, "slow")
    assert (node, round(seconds)) == ("edge-a-0", 2 * LONG)
    system.delete("fast", "own", "slow")


def test_last_chunk_waits_for_the_faster_gpu(system: System) -> None:
    model = {"stepTime": "6s", "stepTimes": {"T4": "60s"}}
    system.submit("tail", chunks=3, seconds=300.0, container=asks(NVIDIA), model=model)
    system.until_running("tail", 2)
    sentence = "free GPUs are slower and would complete its waiting chunks later"
    system.until("that is said", lambda: sentence in explanation(system, "tail"))
    system.complete("tail")
    assert {one["node"] for one in system.status("tail")["progress"]["attempts"]} == {"edge-c-0"}
    system.delete("tail")


def test_resource_that_is_not_configured_is_named(system: System) -> None:
    system.submit("intel", container=asks(INTEL))

    def planned() -> dict[str, Any] | None:
        conditions = system.status("intel").get("conditions", ())
        return next((one for one in conditions if one["type"] == "Planned"), None)

    system.until("it is refused", lambda: (planned() or {}).get("status") == "False")
    sentence = (
        "requests gpu.intel.com/i915, which is not one of the GPU resources of this installation "
        "(nvidia.com/gpu, amd.com/gpu): request one of these, or let an administrator add it to the chart's "
        "gpuResources"
    )
    condition = planned()
    assert condition is not None
    assert (condition["reason"], condition["message"]) == ("GpuNotPlanned", sentence)
    system.until("the plan explains it, too", lambda: explanation(system, "intel") == sentence)
    system.delete("intel")


def test_metrics_count_the_gpus_of_each_resource(system: System) -> None:
    sites = {one["name"]: one for one in system.read("sites")["sites"]}
    counts = {name: {one["resource"]: one["gpus"] for one in site["gpuResources"]} for name, site in sites.items()}
    assert counts == {"cluster": {NVIDIA: 4, AMD: 2}}
