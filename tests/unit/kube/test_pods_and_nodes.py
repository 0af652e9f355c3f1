import gc
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tranche.kube.convert.pods_and_nodes import (
    NodeObject,
    Pod,
    exit_code,
    is_over,
    node_of,
    pod_constraints,
    pod_requests,
    started_at,
    template_shape,
    termination_progress,
)
from tranche.model import Resources, Taint

GI = 2**30
GPU = "nvidia.com/gpu"


def pod(spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **metadata: Any) -> Pod:
    whole = {"metadata": {"name": "a", "namespace": "ns", **metadata}, "spec": spec or {}, "status": status or {}}
    return msgspec.json.decode(json.dumps(whole), type=Pod)


def container(name: str = "main", restart: str | None = None, **requests: str | int) -> dict[str, Any]:
    asked = {{"gpu": GPU}.get(key, key): value for key, value in requests.items()}
    return {"name": name, "resources": {"requests": asked}, **({"restartPolicy": restart} if restart else {})}


def ended(code: int = 0, message: str = "", name: str = "main") -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "message": message, "startedAt": "2026-01-01T00:00:10Z"}}
    return {"containerStatuses": [{"name": name, "state": state}]}


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


class TestEnds:
    @pytest.mark.parametrize(
        ("made", "over"),
        [
            (pod(status={"phase": "Running"}), False),
            (pod(status={"phase": "Succeeded"}), True),
            (pod(status={"phase": "Failed"}), True),
            (pod(deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=30), True),
            (pod({"nodeName": "n"}, deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=30), False),
            (pod({"nodeName": "n"}, deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=0), True),
            (pod({"nodeName": "n"}), False),
        ],
    )
    def test_a_pod_is_over_when_nothing_of_it_can_run_any_more(self, made: Pod, over: bool) -> None:
        assert is_over(made) is over

    def test_exit_code_and_start_are_of_first_container_in_spec(self) -> None:
        statuses = [
            {"name": "logs", "state": {"terminated": {"exitCode": 9, "startedAt": "2026-01-01T00:00:00Z"}}},
            {"name": "main", "state": {"terminated": {"exitCode": 3, "startedAt": "2026-01-01T00:00:10Z"}}},
        ]
        made = pod({"containers": [container("main"), container("logs")]}, {"containerStatuses": statuses})
        assert exit_code(made) == 3
        assert started_at(made) == 1767225610.0

    def test_a_container_that_runs_has_started_and_not_ended(self) -> None:
        state = {"running": {"startedAt": "2026-01-01T00:00:10Z"}}
        made = pod(status={"containerStatuses": [{"name": "m", "state": state}]})
        assert (started_at(made), exit_code(made)) == (1767225610.0, None)

    def test_a_container_that_waits_has_not_started(self) -> None:
        made = pod(status={"containerStatuses": [{"name": "m", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]})
        assert (started_at(made), exit_code(made), termination_progress(made)) == (None, None, None)
        assert (started_at(pod()), exit_code(pod()), termination_progress(pod())) == (None, None, None)


class TestProgress:
    @given(st.dictionaries(st.integers(0, 1999), st.integers(0, 10**12), max_size=20))
    def test_what_a_worker_writes_is_read_back(self, batches: dict[int, int]) -> None:
        assert termination_progress(pod(status=ended(143, json.dumps(batches)))) == batches

    def test_a_member_of_a_gang_writes_a_fraction_of_its_one_batch(self) -> None:
        assert termination_progress(pod(status=ended(143, '{"3": 0.375}'))) == {3: 0.375}

    def test_ranges_of_chunks_share_one_count(self) -> None:
        message = '{"0-2,7": 250, "3": 17}'
        progress = {0: 250, 1: 250, 2: 250, 7: 250, 3: 17}
        assert termination_progress(pod(status=ended(143, message))) == progress

    @pytest.mark.parametrize(
        "message",
        ['{"0-9999": 1}', '{"0-1999": 1, "0-1998": 2}', '{"1-": 1}', '{"1,,2": 1}', '{"1": 1}' + 4096 * " ",
         "", "Killed", "[1]", '{"a": 1}', '{"1": -1}', '{"-1": 1}', '{"1": "2"}', '{"1": 1', '{"1.5": 1}', "null",
         '{"1": true}', '{"1": 99999999999999999999999}'],
    )  # fmt: skip
    def test_any_other_message_says_nothing(self, message: str) -> None:
        assert termination_progress(pod(status=ended(1, message))) is None

    @given(st.text(max_size=100))
    def test_garbage_never_raises(self, message: str) -> None:
        progress = termination_progress(pod(status=ended(1, message)))
        assert progress is None or isinstance(progress, dict)


class TestNodes:
    def test_a_node_is_read_with_what_the_planner_needs(self) -> None:
        raw = {
            "metadata": {"name": "n1", "labels": {"zone": "z"}},
            "spec": {"taints": [{"key": "edge", "effect": "NoSchedule"}], "unschedulable": True},
            "status": {
                "allocatable": {"cpu": "3920m", "memory": "8Gi", "pods": "110", GPU: "4"},
                "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}],
            },
        }
        node = node_of(msgspec.convert(raw, NodeObject), "edge-a", Resources(cpu=100))
        assert node.allocatable == Resources(cpu=3920, memory=8 * GI, gpus=4, pods=110)
        assert (node.name, node.site, node.ready, node.unschedulable) == ("n1", "edge-a", True, True)
        assert (node.foreign, node.labels, node.taints) == (Resources(cpu=100), {"zone": "z"}, (Taint("edge"),))

    @pytest.mark.parametrize("conditions", [[], [{"type": "Ready", "status": "Unknown"}]])
    def test_a_node_that_does_not_report_is_not_ready(self, conditions: list[dict[str, str]]) -> None:
        assert not msgspec.convert({"status": {"conditions": conditions}}, NodeObject).ready

    def test_whole_cores_can_be_the_gpus(self) -> None:
        raw = {"status": {"allocatable": {"cpu": "3920m"}}}
        assert node_of(msgspec.convert(raw, NodeObject), "s", Resources(), ("cpu",)).allocatable.gpus == 3


def test_the_collector_has_little_to_walk_through() -> None:
    raw = json.dumps(
        {
            "metadata": {"name": "a", "labels": {"x": "y"}, "annotations": {"k": "v"}},
            "spec": {"containers": [container(cpu=1)], "tolerations": [{"key": "a"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], **ended(0)},
        }
    ).encode()
    decoder = msgspec.json.Decoder(Pod)
    gc.collect()
    before = len(gc.get_objects())
    kept = [decoder.decode(raw) for _ in range(100)]
    gc.collect()
    assert len(gc.get_objects()) - before < len(kept)
