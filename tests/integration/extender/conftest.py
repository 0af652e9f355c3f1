"""The application in a thread of its own, asked by a kube-scheduler of its own."""

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.live_extender import PROFILE, LiveExtender
from support.waiting import eventually
from tranche_testcluster import Cluster


@pytest.fixture(scope="module")
def extender(cluster: Cluster) -> Iterator[LiveExtender]:
    """Our extender with the rights of manifests/rbac.yaml, and a kube-scheduler that asks it."""
    kubeconfig = cluster.service_account_kubeconfig("tranche-system", "tranche-scheduler")
    with LiveExtender(str(kubeconfig)) as made:
        cluster.start_scheduler(made.scheduler_config(), name=PROFILE)
        yield made
        cluster.stop(PROFILE)


@pytest.fixture
def until() -> Callable[[Callable[[], Any]], Any]:
    """Wait until something is true of the cluster, and return it."""

    return eventually


@pytest.fixture
def site(cluster: Cluster, namespace: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """Return a name for this test's nodes. Pods and nodes are removed afterwards, because no other test ends them."""
    name = f"x{zlib.crc32(request.node.name.encode())}"
    yield name
    cluster.request("DELETE", f"/api/v1/namespaces/{namespace}/pods", {"gracePeriodSeconds": 0})
    cluster.remove_site(name)
