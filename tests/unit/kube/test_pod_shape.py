import json
from typing import Any

import msgspec
import pytest

from support.builders import node, planner
from tranche.kube.api.core_types import Pod
from tranche.kube.api.resources import TrainingJob
from tranche.kube.convert.admitted_pod import admitted_pod
from tranche.kube.convert.pod_decoder import decode_pod
from tranche.kube.convert.pod_shape import pod_constraints, pod_requests, template_shape
from tranche.kube.convert.trainingjob import to_job
from tranche.model import Resources, Taint
from tranche.planner import JobSubmitted

GI = 2**30
GPU = "nvidia.com/gpu"


def pod(spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **metadata: Any) -> Pod:
    whole = {"metadata": {"name": "a", "namespace": "ns", **metadata}, "spec": spec or {}, "status": status or {}}
    return msgspec.json.decode(json.dumps(whole), type=Pod)


def container(name: str = "main", restart: str | None = None, **requests: str | int) -> dict[str, Any]:
    named = {{"gpu": GPU}.get(key, key): value for key, value in requests.items()}
    return {"name": name, "resources": {"requests": named}, **({"restartPolicy": restart} if restart else {})}


class TestRequests:
    def test_containers_add_up(self) -> None:
        spec = {"containers": [container(cpu="500m", memory="1Gi", gpu="2"), container(cpu=1, memory="1Gi")]}
        assert pod_requests(pod(spec)) == Resources(cpu=1500, memory=2 * GI, gpus=2, pods=1)

    def test_largest_init_container_counts_if_above_run_requests(self) -> None:
        spec = {"containers": [container(cpu=1)], "initContainers": [container(cpu=4), container(cpu=2)]}
        assert pod_requests(pod(spec)).cpu == 4000

    def test_sidecar_adds_to_containers_and_later_init_containers(self) -> None:
        sidecar, later = container("s", "Always", cpu=1), container("i", cpu=5)
        spec: dict[str, Any] = {"containers": [container(cpu=2)], "initContainers": [sidecar, later]}
        assert pod_requests(pod(spec)).cpu == 6000
        spec["initContainers"] = [later, sidecar]
        assert pod_requests(pod(spec)).cpu == 5000
        spec["initContainers"] = [sidecar]
        assert pod_requests(pod(spec)).cpu == 3000

    def test_overhead_comes_on_top(self) -> None:
        spec = {"containers": [container(cpu=1)], "overhead": {"cpu": "250m", "memory": "120Mi"}}
        assert pod_requests(pod(spec)) == Resources(cpu=1250, memory=120 * 2**20, pods=1)

    def test_a_limit_without_a_request_is_the_request(self) -> None:
        spec = {"containers": [{"name": "m", "resources": {"limits": {GPU: 1, "cpu": "2"}, "requests": {"cpu": "1"}}}]}
        assert template_shape({"spec": spec}).requests == Resources(cpu=1000, gpus=1, pods=1)

    def test_pod_level_requests_replace_container_requests(self) -> None:
        spec = {"containers": [container(cpu=1, memory="1Gi", gpu=1)], "resources": {"requests": {"cpu": "8"}}}
        assert pod_requests(pod(spec)) == Resources(cpu=8000, memory=GI, gpus=1, pods=1)

    def test_limits_of_the_whole_pod_count_where_no_container_asks(self) -> None:
        spec = {"containers": [container(cpu=1)], "resources": {"limits": {"cpu": "8", "memory": "2Gi"}}}
        assert pod_requests(pod(spec)) == Resources(cpu=1000, memory=2 * GI, pods=1)

    @pytest.mark.parametrize(
        ("reason", "allocated", "current", "cpu"),
        [
            ("Infeasible", "10m", "10m", 510),
            ("Infeasible", "10m", "20m", 520),
            ("Infeasible", "30m", None, 530),
            ("Deferred", "10m", "10m", 100_500),
            ("", "100", "10m", 100_500),
            ("", "200", "10m", 200_500),
            ("", None, None, 100_500),
        ],
    )
    def test_largest_amount_counts_while_a_container_is_resized(
        self, reason: str, allocated: str | None, current: str | None, cpu: int
    ) -> None:
        """As `AggregateContainerRequests` of Kubernetes; an infeasible resize leaves out what is specified."""
        main = {
            "name": "main",
            **({"allocatedResources": {"cpu": allocated, GPU: 1}} if allocated else {}),
            **({"resources": {"requests": {"cpu": current, GPU: 1}}} if current else {}),
        }
        status = {
            "containerStatuses": [main, {"name": "other"}],
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}] if reason else [],
        }
        whole = pod({"containers": [container(cpu=100, gpu=1), container("other", cpu="500m")]}, status)
        assert pod_requests(whole) == Resources(cpu=cpu, gpus=1, pods=1)
        assert pod_requests(decode_pod(msgspec.json.encode(whole))) == Resources(cpu=cpu, gpus=1, pods=1)

    def test_resized_sidecar_counts_as_allocated(self) -> None:
        spec = {"containers": [container(cpu=1)], "initContainers": [container("side", "Always", cpu=8)]}
        status = {
            "initContainerStatuses": [{"name": "side", "allocatedResources": {"cpu": "2"}}],
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
        }
        assert pod_requests(pod(spec, status)).cpu == 3000

    @pytest.mark.parametrize(
        ("reason", "asked", "cpu"),
        [("Deferred", "2", 8000), ("", "12", 12_000), ("Infeasible", "12", 8000), ("Infeasible", "2", 8000)],
    )
    def test_largest_amount_counts_while_a_whole_pod_is_resized(self, reason: str, asked: str, cpu: int) -> None:
        """As `PodRequests` of Kubernetes 1.36 and later."""
        status = {
            "resources": {"requests": {"cpu": "8", "memory": "1Gi"}},
            "allocatedResources": {"cpu": "6", "memory": "1Gi"},
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}] if reason else [],
        }
        level = {"resources": {"requests": {"cpu": asked, "memory": "1Gi"}}}
        whole = pod({"containers": [container(cpu=1)], **level}, status)
        labelled = pod({"containers": [container(cpu=1)], **level}, status, labels={"tranche.dev/job": "cats"})
        for one in (whole, *(decode_pod(msgspec.json.encode(made)) for made in (whole, labelled))):
            assert pod_requests(one) == Resources(cpu=cpu, memory=GI, pods=1)

    @pytest.mark.parametrize(
        "more",
        [
            {"overhead": {"cpu": "-1k", "memory": "-1Ti", GPU: "-1"}},
            {"resources": {"requests": {"cpu": "-1k", "memory": "-1Ti"}}},
            {"containers": [container(cpu=2, gpu=1), container("other", cpu=-1000, gpu=-1)]},
        ],
    )
    def test_negative_requests_of_a_template_free_nothing(self, more: dict[str, Any]) -> None:
        """The API server accepts them in a TrainingJob, and refuses its pods only in the dry run."""
        template = {"spec": {"containers": [container(cpu=2, gpu=1)], **more}}
        workers = {"maxReplicas": 1, "template": template}
        wrong = {"metadata": {"name": "a", "namespace": "lab", "uid": "u"}, "spec": {"workers": workers}}
        p = planner("chunk", [node("n1", gpus=2)])
        p.handle(JobSubmitted(to_job(TrainingJob.model_validate(wrong))), 0.0)
        reserved = p.cluster.nodes["n1"].reserved
        assert min(reserved.cpu, reserved.memory) >= 0
        assert reserved.gpus == 1

    def test_another_device_can_be_the_gpu(self) -> None:
        spec = {"containers": [{"name": "m", "resources": {"requests": {"amd.com/gpu": "3", GPU: "1"}}}]}
        assert pod_requests(pod(spec), ("amd.com/gpu",)).gpus == 3

    def test_whole_cores_can_be_the_gpus(self) -> None:
        assert pod_requests(pod({"containers": [container(cpu="2500m")]}), ("cpu",)) == Resources(2500, 0, 2, 1)
        assert pod_requests(pod({"containers": [container(cpu="500m")]}), ("cpu",)).gpus == 0

    def test_a_pod_that_asks_nothing_still_is_a_pod(self) -> None:
        assert pod_requests(pod({"containers": None})) == Resources(pods=1)

    def test_a_quantity_that_cannot_be_read_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="lots"):
            pod_requests(pod({"containers": [container(cpu="lots")]}))


class TestConstraints:
    def test_selector_affinity_and_tolerations_are_kept(self) -> None:
        terms = [
            {
                "matchExpressions": [{"key": "gpu", "operator": "In", "values": ["a100"]}],
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
            },
            {"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
        ]
        spec = {
            "nodeSelector": {"disk": "ssd"},
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
            },
            "tolerations": [{"key": "edge", "value": "yes", "effect": "NoSchedule"}],
        }
        constraints = pod_constraints(pod(spec))
        taints = (Taint("edge", "yes"),)
        assert constraints.objection("n1", {"disk": "ssd", "gpu": "a100"}, taints) is None
        assert constraints.objection("n2", {"disk": "ssd", "zone": "z"}, taints) is None
        assert constraints.objection("n2", {"disk": "ssd", "gpu": "a100"}, taints) is not None
        assert constraints.objection("n1", {"gpu": "a100"}, taints) == "do not match the node selector disk=ssd"
        assert constraints.objection("n2", {"disk": "ssd", "zone": "z"}, (Taint("edge", "no"),)) is not None

    @pytest.mark.parametrize(("seconds", "stays"), [({}, True), ({"tolerationSeconds": 300}, False)])
    def test_taint_that_ends_a_pod_later_keeps_new_ones_away(self, seconds: dict[str, int], stays: bool) -> None:
        """Kubernetes deletes the pod when the time is over, and the next one, for as long as the node has the taint."""
        spec = {"tolerations": [{"key": "maintenance", "operator": "Exists", "effect": "NoExecute", **seconds}]}
        taint = Taint("maintenance", "", "NoExecute")
        admitted = admitted_pod("worker", {}, {"spec": spec})
        assert (pod_constraints(pod(spec)).objection("n", {}, (taint,)) is None) is stays
        assert bool(admitted.tolerations) is stays

    def test_no_affinity_matches_everything(self) -> None:
        assert pod_constraints(pod()).objection("n", {}, ()) is None

    @pytest.mark.parametrize("terms", [[], None, [{}]])
    def test_an_affinity_without_expressions_matches_nothing(self, terms: list[Any] | None) -> None:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        assert pod_constraints(pod({"affinity": {"nodeAffinity": required}})).objection("n", {}, ()) is not None

    def test_an_operator_of_a_later_kubernetes_matches_no_node(self) -> None:
        terms = [{"matchExpressions": [{"key": "zone", "operator": "Like", "values": ["z"]}]}]
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
        assert pod_constraints(pod({"affinity": affinity})).objection("n", {"zone": "z"}, ()) is not None

    def test_a_template_that_is_none_is_a_value_error(self) -> None:
        with pytest.raises(ValueError, match="containers"):
            template_shape({"spec": {"containers": 5}})
