"""Fixtures of the tests on a real control plane."""

import uuid
from collections.abc import Iterator

import pytest

from support.installed_cluster import installed_cluster
from support.waiting import eventually
from tranche_testcluster import Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A control plane with our CRDs, priority classes and RBAC, and without nodes.

    One a module: what one module starts (a scheduler, an operator) must not act on another one's objects.
    """
    with installed_cluster() as made:
        yield made


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of the test's own, ready for pods, deleted afterwards."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    path = f"/api/v1/namespaces/{name}"  # kubectl would take a fifth of a second of CPU time for both requests
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    status, answer = cluster.request("POST", "/api/v1/namespaces", body)
    assert status == 201, answer
    account = f"{path}/serviceaccounts/default"
    eventually(lambda: cluster.request("GET", account)[0] == 200, "the namespace gets its ServiceAccount")
    yield name
    cluster.request("DELETE", path)
