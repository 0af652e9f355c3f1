import msgspec
import pytest

from tranche.kube.api.core_types import NodeObject
from tranche.kube.convert.node import node_of
from tranche.model import Resources, Taint

GI = 2**30
GPU = "nvidia.com/gpu"


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
