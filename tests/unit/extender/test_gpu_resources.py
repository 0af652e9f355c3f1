"""Verbs of the extender in an installation with several GPU resources."""

import asyncio
from typing import Any

import msgspec

from support.extender_objects import Stores, window
from tranche.extender.site_summary import GpuUse, list_sites
from tranche.extender.verbs import filter_nodes, preempt
from tranche.extender.wire_format import MetaVictims
from tranche.kube.api.core_types import NodeObject, Pod
from tranche.kube.api.resources import TrainingJob
from tranche.kube.convert.pod_shape import pod_requests

NVIDIA, AMD = "nvidia.com/gpu", "amd.com/gpu"


def stores(**nodes: dict[str, str]) -> Stores:
    made = Stores(gpu_resources=(NVIDIA, AMD))
    for name, gpus in nodes.items():
        offered = {"cpu": "64", "memory": "256Gi", "pods": "110", **gpus}
        raw = {"metadata": {"name": name}, "status": {"allocatable": offered}}
        made.nodes.put(name, msgspec.convert(raw, NodeObject))
    return made


def asks(limits: dict[str, str]) -> dict[str, Any]:
    return {"containers": [{"name": "main", "resources": {"limits": limits}}]}


def stranger(name: str, limits: dict[str, str], node: str = "", priority: int = -100) -> Pod:
    spec = {**asks(limits), "nodeName": node, "priority": priority}
    return msgspec.convert({"metadata": {"name": name, "namespace": "ns"}, "spec": spec}, Pod)


def reserve(made: Stores, node: str, limits: dict[str, str]) -> None:
    """Plan a worker with these GPUs on the node; its pod does not exist yet."""
    plan = {"term": 1, "revision": 1, "observedGeneration": 1, "workers": [window(0, 1, node)]}
    spec = {"workers": {"maxReplicas": 1, "template": {"spec": asks(limits)}}}
    metadata = {"name": "j", "namespace": "ns", "uid": "uid-j"}
    job = TrainingJob.model_validate({"metadata": metadata, "spec": spec, "status": {"plan": plan}})
    made.jobs.put(job.key, job)


def test_foreign_pod_of_the_same_resource_gets_no_reserved_gpu() -> None:
    made = stores(n1={NVIDIA: "1"}, n2={AMD: "1"})
    reserve(made, "n2", {AMD: "1"})
    found = filter_nodes(stranger("s", {AMD: "1"}), ["n1", "n2"], made.view)
    assert found.node_names == ["n1"]
    assert "reserved for ns/j-worker-0-1" in found.failed_and_unresolvable_nodes["n2"]


def test_foreign_pod_of_another_resource_passes_a_reserved_node() -> None:
    made = stores(mixed={NVIDIA: "1", AMD: "1"})
    reserve(made, "mixed", {NVIDIA: "1"})
    victims = {"mixed": MetaVictims([], 0)}
    assert filter_nodes(stranger("s", {AMD: "1"}), ["mixed"], made.view).node_names == ["mixed"]
    assert list(preempt(stranger("s", {AMD: "1"}), victims, made.view, 0.0)) == ["mixed"]
    assert filter_nodes(stranger("s", {NVIDIA: "1"}), ["mixed"], made.view).node_names == []
    assert preempt(stranger("s", {NVIDIA: "1"}), victims, made.view, 0.0) == {}


def test_pods_of_another_resource_leave_the_free_gpus_of_a_node() -> None:
    made = stores(mixed={NVIDIA: "1", AMD: "1"}, n2={AMD: "2"})
    for number, node in enumerate(("mixed", "n2")):
        made.add_pod(stranger(f"s{number}", {AMD: "1"}, node))
    use = made.view.reservations.node
    assert (use("mixed").free.gpus, use("n2").free.gpus) == (1, 1)
    made.pods.put("ns/s1", None)
    assert use("n2").free.gpus == 2


def test_fallback_without_gpus_of_the_resource_is_rejected() -> None:
    made = stores(n1={NVIDIA: "1"}, n2={AMD: "1"})
    requests = pod_requests(stranger("s", {AMD: "1"}), made.view.gpu_resources)
    objection = made.view.reservations.objection
    assert objection("n1", "ns/s", requests) == "n1 has insufficient free resources"
    assert objection("n2", "ns/s", requests) == ""


def test_site_summary_has_the_gpus_of_each_resource() -> None:
    made = stores(n1={NVIDIA: "4"}, n2={AMD: "2"}, n3={})
    made.add_pod(stranger("s", {NVIDIA: "3"}, "n1"))
    reserve(made, "n2", {AMD: "1"})
    (site,) = asyncio.run(list_sites(made.view))
    assert (site.gpus, site.used_gpus, site.reserved_gpus) == (6, 3, 1)
    assert site.gpu_resources == [GpuUse(NVIDIA, 4, 3, 0), GpuUse(AMD, 2, 0, 1)]
