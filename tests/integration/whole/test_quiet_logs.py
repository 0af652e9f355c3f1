"""Normal operation logs each decision and no warnings: preemption, gangs, suspension, deletion, broken watches."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.full_stack import API, System
from support.installed_cluster import installed_cluster
from tranche.demo.local_stack import Stack
from tranche_testcluster import FaultProxy

MERGE = "application/merge-patch+json"
JSON = ["--log-format", "json"]


@pytest.fixture(scope="module")
def proxied() -> Iterator[tuple[System, FaultProxy]]:
    """A stack whose scheduler reaches the API server through a proxy."""
    with installed_cluster() as cluster, cluster.proxy() as proxy:
        cluster.add_site("edge-a", nodes=2, gpus=1)
        cluster.add_site("edge-b", nodes=1, gpus=8)
        options = ["--estimate-seconds", "1", *JSON]
        with Stack(cluster, scheduler_options=options, operator_options=JSON, api_url=proxy.url) as stack:
            yield System(cluster, stack), proxy


def lines(system: System) -> list[dict[str, Any]]:
    """Return all log lines of our processes."""
    logs = (system.stack.log(name).read_text(encoding="utf-8") for name in ("scheduler", "operator"))
    return [json.loads(line) for text in logs for line in text.splitlines()]


def work(system: System, proxy: FaultProxy) -> None:
    """Run jobs that preempt, a gang, a job that is suspended, and a job that is deleted; break all watches."""
    system.submit("large", chunks=2, seconds=100.0, zone="edge-a")
    system.until_running("large", 2)
    system.until_trained("large", 1)
    system.submit("small", chunks=1, seconds=1.0, zone="edge-a")
    system.until("a victim", lambda: system.status("large")["progress"]["preemptions"])
    assert proxy.cut() > 5
    gang: dict[str, Any] = {"data": None, "model": None, "estimatedDuration": "60s"}
    system.submit("gang", chunks=4, seconds=100.0, zone="edge-b", **gang)
    system.submit("pausing", chunks=2, seconds=300.0, zone="edge-b")
    system.submit("doomed", chunks=2, seconds=300.0, zone="edge-b")
    system.until_phase("pausing", "Running")
    system.until_phase("doomed", "Running")
    path = f"{API}/namespaces/default/trainingjobs/pausing"
    system.cluster.request("PATCH", path, {"spec": {"suspend": True}}, MERGE)
    system.delete("doomed")
    system.until_phase("pausing", "Suspended")
    system.cluster.request("PATCH", path, {"spec": {"suspend": False}}, MERGE)
    for name in ("small", "gang"):
        system.until_phase(name, "Succeeded")
    system.complete("pausing", "large")
    system.delete("gang", "pausing", "large", "small")


def test_normal_operation_logs_decisions_and_no_warnings(proxied: tuple[System, FaultProxy]) -> None:
    system, proxy = proxied
    work(system, proxy)
    found = lines(system)
    assert [one for one in found if one["level"] != "INFO"] == []
    assert {one["component"] for one in found} >= {"planner", "extender", "api", "operator"}
    assert any("the watch was interrupted" in one["message"] for one in found)
    decisions: dict[str, set[str]] = {}
    for one in found:
        if "decision" in one:
            decisions.setdefault(one["job"], set()).add(one["decision"])
    assert decisions["default/small"] >= {"submitted", "preempts", "opens", "succeeded"}
    assert decisions["default/large"] >= {"submitted", "opens", "closes", "ended", "succeeded"}
    assert decisions["default/pausing"] >= {"suspended", "resumed", "succeeded"}
    assert decisions["default/doomed"] >= {"submitted", "opens", "removed"}
    assert "default/gang opens 4 windows: 4 at cluster (cause: " in "\n".join(one["message"] for one in found)
    (closed,) = [one for one in found if one.get("decision") == "closes" and one["job"] == "default/large"]
    assert closed["preemptedBy"] == "default/small"
    assert closed["cause"] == "preempted by default/small, which has less work left"


def test_pods_that_start_together_are_one_event(proxied: tuple[System, FaultProxy]) -> None:
    system, _ = proxied
    path = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=gang,reason=WindowOpened"
    (event,) = system.until("the event", lambda: system.cluster.request("GET", path)[1]["items"])
    assert (event["message"], event["count"]) == ("4 workers start: 4 at cluster", 1)
