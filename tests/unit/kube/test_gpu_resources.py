"""Conversion of pods, nodes, quotas, Sites and jobs in an installation with several GPU resources."""

from typing import Any

import msgspec
import pytest

from tranche.kube.api.core_types import NodeObject, Pod, QuotaObject
from tranche.kube.api.resources import SiteObject, TrainingJob
from tranche.kube.convert import pod_shape
from tranche.kube.convert.node import node_allocatable
from tranche.kube.convert.pod_shape import pod_requests, pod_usage
from tranche.kube.convert.resource_quota import quota_of
from tranche.kube.convert.trainingjob import to_job, to_site
from tranche.live.foreign_usage import ForeignNodeUsage
from tranche.model import Resources
from tranche.planner.handlers.job import objection
from tranche.policies import get_policy

NVIDIA, AMD = "nvidia.com/gpu", "amd.com/gpu"
BOTH = (NVIDIA, AMD)


def pod(node: str = "", **limits: str) -> Pod:
    spec = {"nodeName": node, "containers": [{"name": "t", "resources": {"limits": limits}}]}
    return msgspec.convert({"metadata": {"name": "p", "namespace": "ns"}, "spec": spec}, Pod)


def node(**allocatable: str) -> NodeObject:
    return msgspec.convert({"metadata": {"name": "n"}, "status": {"allocatable": allocatable}}, NodeObject)


def training_job(**limits: str) -> TrainingJob:
    template: dict[str, Any] = {"spec": {"containers": [{"name": "t", "image": "x", "resources": {"limits": limits}}]}}
    spec = {"data": {"chunks": 2}, "workers": {"maxReplicas": 2, "template": template}}
    return TrainingJob.model_validate({"metadata": {"name": "j", "namespace": "ns", "uid": "u"}, "spec": spec})


def test_pod_requests_name_the_resource_if_there_are_several() -> None:
    assert pod_requests(pod(**{AMD: "2"}), BOTH) == Resources(0, 0, 2, 1, AMD)
    assert pod_requests(pod(**{NVIDIA: "1"}), BOTH) == Resources(0, 0, 1, 1, NVIDIA)
    assert pod_requests(pod(cpu="1"), BOTH) == Resources(1000, 0, 0, 1)
    assert pod_requests(pod(**{AMD: "2"}), (AMD,)) == Resources(0, 0, 2, 1)


def test_usage_of_a_pod_has_the_gpus_of_each_resource() -> None:
    both = pod(**{NVIDIA: "1", AMD: "3", "cpu": "1"})
    assert pod_usage(both, BOTH) == (Resources(1000, 0, 1, 1), Resources(1000, 0, 3, 1))


def test_equal_usages_are_held_once() -> None:
    assert pod_usage(pod("n", cpu="1"), BOTH) is pod_usage(pod("m", cpu="1"), BOTH)


def test_number_of_held_usages_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_shape, "_MAX_USAGES", 3)
    found = [pod_usage(pod(cpu=f"{number}m"), (NVIDIA,)) for number in range(10)]
    assert found == [(Resources(number, 0, 0, 1),) for number in range(10)]
    assert len(pod_shape._usages) <= 3


def test_node_with_several_resources_is_planned_with_the_first() -> None:
    assert node_allocatable(node(**{AMD: "4"}), BOTH) == Resources(0, 0, 4, 0, AMD)
    assert node_allocatable(node(**{AMD: "4", NVIDIA: "2"}), BOTH) == Resources(0, 0, 2, 0, NVIDIA)
    assert node_allocatable(node(**{AMD: "4", NVIDIA: "0"}), BOTH) == Resources(0, 0, 4, 0, AMD)
    assert node_allocatable(node(cpu="1"), BOTH) == Resources(1000)
    assert node_allocatable(node(**{AMD: "4"}), (AMD,)) == Resources(0, 0, 4)


def test_foreign_pod_takes_gpus_of_its_own_resource_only() -> None:
    book = ForeignNodeUsage(BOTH, lambda one: False)
    book.note_pod("ns/p", pod("n", **{AMD: "3", "cpu": "1"}))
    mixed = book.node(node(**{AMD: "4", NVIDIA: "2"}), {})
    amd = book.node(node(**{AMD: "4"}), {})
    assert mixed is not None
    assert amd is not None
    assert (mixed.foreign.gpus, mixed.foreign.cpu) == (0, 1000)
    assert (amd.foreign.gpus, amd.foreign.cpu) == (3, 1000)
    assert book.note_pod("ns/p", None) == {"n"}
    assert book.foreign("n", AMD) == Resources()


def test_quota_limits_count_pods_of_their_own_resource() -> None:
    hard = {f"requests.{NVIDIA}": "2", f"requests.{AMD}": "3", "pods": "9"}
    raw = {"metadata": {"name": "q", "namespace": "ns"}, "spec": {"hard": hard}}
    quota = quota_of(msgspec.convert(raw, QuotaObject), BOTH)
    assert quota is not None
    requests = Resources(0, 0, 2, 1, AMD)
    assert {one.resource: one.amount(requests) for one in quota.limits} == {
        f"requests.{NVIDIA}": 0,
        f"requests.{AMD}": 2,
        "pods": 1,
    }


def test_unlimited_site_has_its_own_gpu_resource() -> None:
    def site(**spec: Any) -> SiteObject:
        body = {"nodeSelector": {"a": "b"}, "unlimited": True, **spec}
        return SiteObject.model_validate({"metadata": {"name": "cloud"}, "spec": body})

    assert to_site(site(), BOTH).gpu_resource == NVIDIA
    assert to_site(site(gpuResource=AMD), BOTH).gpu_resource == AMD
    assert to_site(site(), (AMD,)).gpu_resource == ""
    assert to_site(site(gpuResource=AMD), (NVIDIA,)).gpu_resource == AMD
    assert to_site(site(), BOTH).labels == {"a": "b"}
    assert not to_site(site(unlimited=False), BOTH).labels, "of its nodes the planner knows all labels"


@pytest.mark.parametrize(
    ("limits", "resources", "reason", "sentence"),
    [
        ({AMD: "1"}, BOTH, "", ""),
        ({AMD: "1"}, (AMD,), "", ""),
        ({NVIDIA: "1", "rdma/hca": "1"}, BOTH, "", ""),
        (
            {"rdma/hca": "1"},
            (AMD,),
            "NoGpuRequested",
            "the worker template requests no GPU: add amd.com/gpu to the limits of a container",
        ),
        (
            {AMD: "1"},
            (NVIDIA,),
            "GpuNotPlanned",
            "requests amd.com/gpu, which is not one of the GPU resources of this installation (nvidia.com/gpu): "
            "request one of these, or let an administrator add it to the chart's gpuResources",
        ),
        (
            {"example.org/gpu": "1"},
            BOTH,
            "GpuNotPlanned",
            "requests example.org/gpu, which is not one of the GPU resources of this installation "
            "(nvidia.com/gpu, amd.com/gpu): request one of these, or let an administrator add it to the chart's "
            "gpuResources",
        ),
        (
            {AMD: "1", NVIDIA: "1"},
            BOTH,
            "GpuNotPlanned",
            "a worker requests nvidia.com/gpu and amd.com/gpu, and only one GPU resource of a worker can be planned",
        ),
    ],
)
def test_request_that_cannot_be_planned_is_named(
    limits: dict[str, str], resources: tuple[str, ...], reason: str, sentence: str
) -> None:
    job = to_job(training_job(**limits), resources)
    assert job.gpu_problem == ((reason, sentence) if reason else None)
    assert objection(get_policy("chunk"), job) == job.gpu_problem


@pytest.mark.parametrize(
    ("gpus", "resources", "refused"),
    [
        ({}, (NVIDIA,), ""),
        ({NVIDIA: "0", "cpu": "4"}, ("cpu", NVIDIA), ""),
        ({NVIDIA: "1"}, (NVIDIA,), NVIDIA),
        ({AMD: "1"}, (NVIDIA,), AMD),
        ({"example.org/tpu": "1"}, (NVIDIA, "example.org/tpu"), "example.org/tpu"),
    ],
)
@pytest.mark.parametrize("containers", ["containers", "initContainers"])
def test_parameter_server_with_gpus_cannot_be_planned(
    gpus: dict[str, str], resources: tuple[str, ...], refused: str, containers: str
) -> None:
    raw = training_job(**{NVIDIA: "1"}).model_dump(by_alias=True, mode="json")
    pod: dict[str, Any] = {"containers": [{"name": "s", "image": "x"}]}
    pod[containers] = [{"name": "s", "image": "x", "resources": {"limits": gpus}}]
    raw["spec"]["parameterServers"] = {"template": {"spec": pod}}
    job = to_job(TrainingJob.model_validate(raw), resources)
    told = f"spec.parameterServers: only workers and the chief train on GPUs: remove {refused}"
    assert objection(get_policy("chunk"), job) == (("GpuNotPlanned", told) if refused else None)


def test_other_resources_do_not_contain_the_gpu_resources() -> None:
    job = to_job(training_job(**{AMD: "1", "rdma/hca": "1"}), BOTH)
    assert job.worker.constraints.extended == (("rdma/hca", 1),)
    assert (job.gpus, job.gpu_resource) == (1, AMD)
