"""Fixtures of the tests on a real control plane."""

import subprocess
import uuid
from collections.abc import Iterator

import pytest

from tranche.demo.stacks import Stack, apply_manifests
from tranche_testcluster import Cluster

SITES = {"edge-a": (2, 2), "edge-b": (1, 8)}
"""Nodes and GPUs of each node."""


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """One control plane for all tests, with our CRDs, priority classes and RBAC, and without nodes."""
    with Cluster() as made:
        apply_manifests(made)
        yield made


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of the test's own, ready for pods, emptied afterwards."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", name)
    deadline = 100
    while cluster.request("GET", f"/api/v1/namespaces/{name}/serviceaccounts/default")[0] != 200 and deadline:
        deadline -= 1
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def kubectl_process(cluster: Cluster) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Processes that a test starts and that must not outlive it."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


__all__ = ["Stack"]
