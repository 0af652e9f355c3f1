"""Gangs by topology level on a real control plane: `dally-like` declines wide places, also after a take-over."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.full_stack import VALIDATED, System, full_stack
from support.object_history import History, check_gang

PODS = "/api/v1/namespaces/default/pods"
BANDWIDTHS = [f"--level-bandwidth={one}" for one in ("300G", "100G", "10G", "1G")]
GRADIENTS = {"gradientSize": "1G", "stepTime": "100ms"}
"""With 600 mini-batches in 60 s, a pair takes 464 s longer on two nodes than on one."""


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    with full_stack({"edge-a": {"nodes": 2, "gpus": 2}}, "dally-like:timers=600", (*VALIDATED, *BANDWIDTHS)) as made:
        yield made


@pytest.fixture
def history(system: System) -> Iterator[History]:
    with History(str(system.cluster.kubeconfig), PODS) as made:
        yield made


def declined_seconds(system: System, key: str) -> float:
    """Return for how long the gang has declined places, as the leader has written on the Lease; 0 if it has not."""
    memory = system.lease()["metadata"].get("annotations", {}).get("tranche.dev/memory", "{}")
    gangs: dict[str, dict[str, Any]] = json.loads(memory).get("gangs", {})
    return float(gangs[key]["declined_seconds"]) if key in gangs else 0.0


def test_declining_gang_keeps_its_clock_over_a_take_over(system: System, history: History) -> None:
    blockers = {"block-0": "edge-a-0", "block-1": "edge-a-1"}
    for name, node in blockers.items():
        system.submit(name, seconds=3000.0, node=node, preemption={"policy": "Never"})
        system.until_phase(name, "Running")
    system.submit("pair", chunks=2, seconds=50.0, data=None, model=GRADIENTS, estimatedDuration="60s")
    known = system.until("a clock of 3 s", lambda: (found := declined_seconds(system, "default/pair")) > 3 and found)
    system.until("the reason", lambda: "too far apart" in system.status("pair")["plan"]["explanation"])
    assert not system.pods("pair"), "one GPU is free on each node"

    before = system.change_leader()
    system.until("its plan", lambda: system.status("pair")["plan"]["term"] > before)
    system.until("its clock", lambda: declined_seconds(system, "default/pair") > known)
    assert not system.pods("pair")

    system.delete("block-1")
    status = system.until_phase("pair", "Succeeded")
    assert (status["progress"]["failures"], status["plan"]["attempts"]) == (0, 2)
    assert {pod["spec"]["nodeName"] for pod in system.pods("pair")} == {"edge-a-1"}
    check_gang([one for one in history.events[PODS] if one["metadata"]["name"].startswith("pair-")], 2)
    system.delete("pair", "block-0")
