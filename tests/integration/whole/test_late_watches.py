"""A watch of the scheduler lags behind; what its pods did meanwhile still counts."""

from collections.abc import Iterator

import pytest

from support.full_stack import API, Whole
from support.installed_cluster import installed_cluster
from tranche.demo.local_stack import Stack
from tranche_testcluster import FaultProxy, Faults

MERGE = "application/merge-patch+json"


@pytest.fixture
def proxy() -> Iterator[tuple[Whole, FaultProxy]]:
    with installed_cluster() as cluster, cluster.proxy() as proxy:
        cluster.add_site("edge-a", nodes=1, gpus=1)
        with Stack(cluster, scheduler_options=["--validate"], api_url=proxy.url) as stack:
            yield Whole(cluster, stack), proxy


def test_pod_missing_from_delayed_watch_is_not_counted_as_lost(proxy: tuple[Whole, FaultProxy]) -> None:
    whole, between = proxy
    between.faults = Faults(held="/pods")
    whole.submit("unseen", seconds=100.0)
    whole.until("its pod runs", lambda: "Running" in phases(whole))
    whole.until_trained("unseen", 1)
    suspend(whole, True)
    whole.until("its pod has ended", lambda: "Running" not in phases(whole))
    between.faults = Faults()
    whole.until("its pod is released", lambda: not whole.pods("unseen"))
    (saved,) = whole.status("unseen")["progress"]["running"]
    assert saved["batches"] > 0
    suspend(whole, False)
    whole.until("it goes on", lambda: whole.pods("unseen"))


def phases(whole: Whole) -> list[str]:
    return [one["status"]["phase"] for one in whole.pods("unseen")]


def suspend(whole: Whole, suspended: bool) -> None:
    path = f"{API}/namespaces/default/trainingjobs/unseen"
    status, answer = whole.cluster.request("PATCH", path, {"spec": {"suspend": suspended}}, MERGE)
    assert status == 200, answer
