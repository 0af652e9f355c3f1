"""A node that cannot run pods costs no job its attempts, and soon gets no more of them."""

from collections.abc import Iterator
from typing import Any

import pytest

from support.full_stack import System
from support.kubelet_stand_in import Kubelet, Play, crash, refuse

PODS = "/api/v1/namespaces/default/pods"
JOBS = ("first", "second")
MAX_PODS = 5


class BadNode:
    """The node edge-a-1, whose kubelet is replaced, and the pods that were bound to it."""

    def __init__(self, system: System, play: Play) -> None:
        self.kubelet = Kubelet(system.cluster, "edge-a-1", play)
        self.bound: set[str] = set()
        self._whole = system

    def look(self) -> None:
        """Do one round of the kubelet stand-in, and record the UIDs of the pods on the node."""
        self.kubelet.tend()
        items = self._whole.cluster.request("GET", f"{PODS}?fieldSelector=spec.nodeName=edge-a-1")[1]["items"]
        self.bound.update(one["metadata"]["uid"] for one in items)


@pytest.fixture
def busy(system: System) -> Iterator[System]:
    """All other GPUs of edge-a are in use, by a job that may not be preempted."""
    system.submit("long", seconds=600.0, node="edge-a-0", preemption={"policy": "Never"})
    system.until_phase("long", "Running")
    yield system
    system.delete("long", *JOBS)


@pytest.mark.parametrize(
    "play", [refuse("TopologyAffinityError"), refuse("UnexpectedAdmissionError"), crash], ids=["numa", "devices", "gpu"]
)
def test_bad_node_fails_no_job_and_gets_few_pods(busy: System, play: Play) -> None:
    node = BadNode(busy, play)
    node.kubelet.take()
    try:
        for name in JOBS:
            busy.submit(name, zone="edge-a", runPolicy={"backoffLimit": 2})

        def is_named() -> bool:
            node.look()
            return _named(busy)

        busy.until("the node is named", is_named)
        for _ in range(50):
            node.look()

        def wait() -> bool:
            node.look()
            return {busy.status(name).get("phase") for name in JOBS} == {"Waiting"}

        busy.until("both wait", wait)  # the operator writes this phase later than the planner its plan
        assert len(node.bound) <= MAX_PODS
        if play is not crash:
            assert [_progress(busy, name).get("failures", 0) for name in JOBS] == [0, 0]
    finally:
        node.kubelet.release()


def _named(system: System) -> bool:
    """Whether the reason why a job waits names the node."""
    return any("edge-a-1" in system.status(name).get("plan", {}).get("explanation", "") for name in JOBS)


def _progress(system: System, name: str) -> dict[str, Any]:
    return dict(system.status(name).get("progress", {}))
