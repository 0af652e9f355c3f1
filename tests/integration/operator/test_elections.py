"""Two replicas of the operator: one reconciles, and the other takes over when it ends."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.operator_lab import Lab, Process, operator_command, window
from support.waiting import eventually
from tranche.kube.client.leader_election import leases_path
from tranche_operator import election
from tranche_testcluster import Cluster

NAMESPACE = "tranche-system"
LEASE = f"{leases_path(NAMESPACE)}/{election.LEASE}"


@pytest.fixture
def replicas(cluster: Cluster, nodes: list[str], tmp_path: Path) -> Iterator[list[Process]]:
    command = operator_command(cluster, f"--lease-namespace={NAMESPACE}")
    first = Process(command, tmp_path / "first.log")
    eventually(lambda: "this replica reconciles" in first.log_text())
    second = Process(command, tmp_path / "second.log")
    yield [first, second]
    for replica in (first, second):
        if replica.process.poll() is None:
            replica.kill()


def lease_holder(cluster: Cluster) -> str:
    return str(cluster.request("GET", LEASE)[1]["spec"]["holderIdentity"])


def test_second_replica_takes_over_after_a_crash(lab: Lab, replicas: list[Process]) -> None:
    first, second = replicas
    eventually(lambda: "waiting for the Lease" in second.log_text())
    lab.create()
    lab.plan(window(0, 1))
    lab.has_pods("cats-worker-0-1")
    assert "this replica reconciles" not in second.log_text()
    first.kill()
    lab.plan(window(0, 1), window(1, 2))
    eventually(lambda: "cats-worker-1-2" in lab.pods(), "the second replica takes over")
    assert "this replica reconciles" in second.log_text()


def test_terminated_replica_releases_the_lease(lab: Lab, replicas: list[Process]) -> None:
    first, second = replicas
    lab.create()
    holder = lease_holder(lab.cluster)
    assert holder
    assert first.terminate() == 0
    assert lease_holder(lab.cluster) != holder
    eventually(lambda: "this replica reconciles" in second.log_text(), "the second replica takes the Lease")
