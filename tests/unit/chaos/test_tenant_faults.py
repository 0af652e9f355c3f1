"""Faults of tenants, on a lab without a cluster."""

import random
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from chaos.checks.eviction import Bound
from chaos.faults import tenant
from chaos.labs import nodes_of
from tranche.kube.api.resources import TrainingJob
from tranche.kube.convert.trainingjob import to_job

PORTS = ("reports", "planner API", "planner metrics", "API metrics")
SOCKETS = 20


class StubLab:
    """Part of a lab that faults of tenants use."""

    def __init__(self, ports: dict[str, int] | None = None) -> None:
        self.ports = ports or {}
        self.reserved_nodes: set[str] = set()
        self.fault_jobs: set[str] = set()
        self.bounds: list[Bound] = []
        self.expected: dict[str, str] = {}
        self.bodies: dict[str, Any] = {}

    def submit(self, name: str, body: Any, expected: str) -> bool:
        self.bodies[name], self.expected[name] = body, expected
        return True

    def delete(self, name: str) -> None:
        self.expected[name] = "gone"

    def revision(self) -> int:
        return 1

    def pods(self, role: str | None = None) -> list[Any]:
        return []

    def until(self, true: Callable[[], bool], seconds: float) -> bool:
        return true()


@pytest.fixture
def listening() -> Iterator[dict[str, socket.socket]]:
    """Sockets that accept nothing: the kernel completes the connections."""
    with ExitStack() as stack:
        made = {name: stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=256)) for name in PORTS}
        yield made


def test_idle_connections_reach_every_port_from_many_peers(
    listening: dict[str, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenant, "SOCKETS", SOCKETS)
    lab = StubLab({name: one.getsockname()[1] for name, one in listening.items()})
    what, undo = tenant.idle_connections(lab, random.Random(1))  # type: ignore[arg-type]
    assert what == f"idle connections: {dict.fromkeys(PORTS, SOCKETS)}"
    for one in listening.values():
        peers = set()
        for _ in range(SOCKETS):
            connection, (address, _port) = one.accept()
            connection.close()
            peers.add(address)
        assert len(peers) == SOCKETS
    undo()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["missing claim", "missing resource claim", "one place"])
def test_job_of_a_fault_can_be_planned_and_has_a_bound(name: str, seed: int) -> None:
    lab = StubLab()
    _, undo = tenant.FAULTS[name](lab, random.Random(seed))  # type: ignore[arg-type]
    for body in lab.bodies.values():
        to_job(TrainingJob.model_validate({**body, "metadata": {**body["metadata"], "uid": "u"}}))
    assert undo is not None
    undo()
    (bound,) = lab.bounds
    assert (bound.most, lab.expected[bound.job], lab.reserved_nodes) == (2, "gone", set())
    spec = lab.bodies[bound.job]["spec"]["workers"]["template"]["spec"]
    constraints = {"volumes", "resourceClaims", "affinity"} & spec.keys() or spec["containers"][0]["ports"]
    assert constraints, "what kube-scheduler alone knows"


def test_one_place_leaves_the_node_of_another_fault_alone() -> None:
    lab = StubLab()
    lab.reserved_nodes.update(nodes_of(tenant.ONE_NODE))
    _, undo = tenant.one_place(lab, random.Random(1))  # type: ignore[arg-type]
    assert (undo, lab.bodies, lab.reserved_nodes) == (None, {}, set(nodes_of(tenant.ONE_NODE)))
