"""etcd has used up its quota for data, so that the API server refuses all writes except deletions."""

from collections.abc import Iterator

import pytest

from support.full_stack import VALIDATED, System, full_stack
from support.waiting import eventually

TRAINING_SECONDS = 60.0
"""Longer than the leader keeps its Lease without a write, also on a busy machine."""
RECOVERY_SECONDS = 300.0
"""kwok repeats a refused write after pauses that double, and kube-controller-manager may miss the Leases of nodes."""


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    with full_stack({"edge-a": {"nodes": 2, "gpus": 1}}, options=VALIDATED) as made:
        yield made


def refuses_writes(system: System) -> bool:
    body = {"metadata": {"name": "probe"}}
    status, answer = system.cluster.request("POST", "/api/v1/namespaces/default/configmaps", body)
    assert status in (201, 500), answer
    return status == 500 and "database space exceeded" in answer["message"]


def test_jobs_go_on_when_etcd_has_room_again(system: System) -> None:
    for name in ("running", "also-running", "waiting"):
        system.submit(name, seconds=TRAINING_SECONDS)
    for name in ("running", "also-running"):
        system.until_trained(name, 1)
    leader = system.stack.log("scheduler")
    system.cluster.set_etcd_full(full=True)
    try:
        assert refuses_writes(system)
        eventually(lambda: "is not the leader any more" in leader.read_text(), "the Lease is lost")
        assert len(system.pods("running")) == 1
    finally:
        system.cluster.set_etcd_full(full=False)
    for name in ("running", "also-running", "waiting"):
        status = system.until_phase(name, "Succeeded", RECOVERY_SECONDS)
        assert (status["progress"]["failures"], status["progress"]["preemptions"]) == (0, 0), name
        assert status["plan"]["attempts"] == 1, name
    assert system.stack.ended() == {}
