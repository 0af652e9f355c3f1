"""Normal operation logs no warnings: preemption, gangs, suspension, deletion and watches that are re-established."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from support.full_stack import API, Whole
from tranche.demo.local_stack import Stack, apply_manifests
from tranche_testcluster import Cluster, FaultProxy

MERGE = "application/merge-patch+json"
LOUD = re.compile(r"\b(WARNING|ERROR|CRITICAL)\b|^Traceback", re.MULTILINE)


@pytest.fixture(scope="module")
def proxied() -> Iterator[tuple[Whole, FaultProxy]]:
    """A stack whose scheduler reaches the API server through a proxy."""
    with Cluster() as cluster, cluster.proxy() as proxy:
        apply_manifests(cluster)
        cluster.add_site("edge-a", nodes=2, gpus=1)
        cluster.add_site("edge-b", nodes=1, gpus=8)
        with Stack(cluster, scheduler_options=["--estimate-seconds", "1"], api_url=proxy.url) as stack:
            yield Whole(cluster, stack), proxy


def loud(whole: Whole) -> list[str]:
    """Return the lines of all our processes that are warnings or worse."""
    logs = (whole.stack.log(name).read_text(encoding="utf-8") for name in ("scheduler", "operator"))
    return [line for text in logs for line in text.splitlines() if LOUD.search(line)]


def work(whole: Whole, proxy: FaultProxy) -> None:
    """Run jobs that preempt, a gang, a job that is suspended, and a job that is deleted; break all watches."""
    whole.submit("large", chunks=2, seconds=8.0, zone="edge-a")
    whole.until("both workers run", lambda: whole.status("large").get("activeWorkers") == 2)
    whole.until_trained("large", 10)
    whole.submit("small", chunks=1, seconds=1.0, zone="edge-a")
    whole.until("a victim", lambda: whole.status("large")["progress"]["preemptions"])
    assert proxy.cut() > 5
    gang: dict[str, Any] = {"data": None, "model": None, "estimatedDuration": "60s"}
    whole.submit("gang", chunks=4, seconds=100.0, zone="edge-b", **gang)
    whole.submit("pausing", chunks=2, seconds=6.0, zone="edge-b")
    whole.submit("doomed", chunks=2, seconds=60.0, zone="edge-b")
    whole.until_phase("small", "Succeeded")
    whole.until_phase("pausing", "Running")
    whole.until_phase("doomed", "Running")
    path = f"{API}/namespaces/default/trainingjobs/pausing"
    whole.cluster.request("PATCH", path, {"spec": {"suspend": True}}, MERGE)
    whole.delete("doomed")
    whole.until_phase("pausing", "Suspended")
    whole.cluster.request("PATCH", path, {"spec": {"suspend": False}}, MERGE)
    for name in ("gang", "pausing", "large"):
        whole.until_phase(name, "Succeeded")
    whole.delete("gang", "pausing", "large", "small")


def test_normal_operation_logs_no_warnings(proxied: tuple[Whole, FaultProxy]) -> None:
    whole, proxy = proxied
    work(whole, proxy)
    import shutil

    for n in ("scheduler", "operator"):
        shutil.copy(whole.stack.log(n), f"/tmp/h-logs-{n}.log")
    assert not loud(whole)
