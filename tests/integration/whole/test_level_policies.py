"""Gangs by topology level on a real control plane: `dally-like` declines wide places, also after a take-over."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.full_stack import VALIDATED, Whole, full_stack
from support.object_history import History, check_gang

PODS = "/api/v1/namespaces/default/pods"
BANDWIDTHS = [f"--level-bandwidth={one}" for one in ("300G", "100G", "10G", "1G")]
GRADIENTS = {"gradientSize": "1G", "stepTime": "100ms"}
"""With 600 mini-batches in 60 s, a pair takes 464 s longer on two nodes than on one."""


@pytest.fixture(scope="module")
def whole() -> Iterator[Whole]:
    with full_stack({"edge-a": {"nodes": 2, "gpus": 2}}, "dally-like:timers=600", (*VALIDATED, *BANDWIDTHS)) as made:
        yield made


@pytest.fixture
def history(whole: Whole) -> Iterator[History]:
    with History(str(whole.cluster.kubeconfig), PODS) as made:
        yield made


def declined_seconds(whole: Whole, key: str) -> float:
    """Return for how long the gang has declined places, as the leader has written on the Lease; 0 if it has not."""
    memory = whole.lease()["metadata"].get("annotations", {}).get("tranche.dev/memory", "{}")
    gangs: dict[str, dict[str, Any]] = json.loads(memory).get("gangs", {})
    return float(gangs[key]["declined_seconds"]) if key in gangs else 0.0


def test_declining_gang_keeps_its_clock_over_a_take_over(whole: Whole, history: History) -> None:
    blockers = {"block-0": "edge-a-0", "block-1": "edge-a-1"}
    for name, node in blockers.items():
        whole.submit(name, seconds=3000.0, node=node, preemption={"policy": "Never"})
        whole.until_phase(name, "Running")
    whole.submit("pair", chunks=2, seconds=50.0, data=None, model=GRADIENTS, estimatedDuration="60s")
    known = whole.until("a clock of 3 s", lambda: (found := declined_seconds(whole, "default/pair")) > 3 and found)
    whole.until("the reason", lambda: "too far apart" in whole.status("pair")["plan"]["explanation"])
    assert not whole.pods("pair"), "one GPU is free on each node"

    before = whole.change_leader()
    whole.until("its plan", lambda: whole.status("pair")["plan"]["term"] > before)
    whole.until("its clock", lambda: declined_seconds(whole, "default/pair") > known)
    assert not whole.pods("pair")

    whole.delete("block-1")
    status = whole.until_phase("pair", "Succeeded")
    assert (status["progress"]["failures"], status["plan"]["attempts"]) == (0, 2)
    assert {pod["spec"]["nodeName"] for pod in whole.pods("pair")} == {"edge-a-1"}
    check_gang([one for one in history.events[PODS] if one["metadata"]["name"].startswith("pair-")], 2)
    whole.delete("pair", "block-0")
