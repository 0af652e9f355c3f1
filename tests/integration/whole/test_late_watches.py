"""A watch of the scheduler lags behind; what its pods did meanwhile still counts."""

from collections.abc import Iterator

import pytest

from support.full_stack import API, System
from support.installed_cluster import installed_cluster
from tranche.demo.local_stack import Stack
from tranche_testcluster import FaultProxy, Faults

MERGE = "application/merge-patch+json"


@pytest.fixture
def proxy() -> Iterator[tuple[System, FaultProxy]]:
    with installed_cluster() as cluster, cluster.proxy() as proxy:
        cluster.add_site("edge-a", nodes=1, gpus=1)
        with Stack(cluster, scheduler_options=["--validate"], api_url=proxy.url) as stack:
            yield System(cluster, stack), proxy


def test_pod_missing_from_delayed_watch_is_not_counted_as_lost(proxy: tuple[System, FaultProxy]) -> None:
    system, between = proxy
    between.faults = Faults(held="/pods")
    system.submit("unseen", seconds=300.0)
    system.until("its pod runs", lambda: "Running" in phases(system))
    system.until_trained("unseen", 1)
    suspend(system, True)
    system.until("its pod has ended", lambda: "Running" not in phases(system))
    between.faults = Faults()
    system.until("its pod is released", lambda: not system.pods("unseen"))
    (saved,) = system.status("unseen")["progress"]["running"]
    assert saved["batches"] > 0
    suspend(system, False)
    system.until("it goes on", lambda: system.pods("unseen"))


def phases(system: System) -> list[str]:
    return [one["status"]["phase"] for one in system.pods("unseen")]


def suspend(system: System, suspended: bool) -> None:
    path = f"{API}/namespaces/default/trainingjobs/unseen"
    status, answer = system.cluster.request("PATCH", path, {"spec": {"suspend": suspended}}, MERGE)
    assert status == 200, answer
