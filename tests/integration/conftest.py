"""Fixtures of the tests on a real control plane."""

import time
import uuid
from collections.abc import Iterator

import pytest

from tranche.demo.local_stack import apply_manifests
from tranche_testcluster import Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A control plane with our CRDs, priority classes and RBAC, and without nodes.

    One a module: what one module starts (a scheduler, an operator) must not act on another one's objects.
    """
    with Cluster() as made:
        apply_manifests(made)
        yield made


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of the test's own, ready for pods, deleted afterwards."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", name)
    path = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    deadline = time.monotonic() + 20
    while cluster.request("GET", path)[0] != 200:
        assert time.monotonic() < deadline, "the namespace got no ServiceAccount"
        time.sleep(0.05)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")
