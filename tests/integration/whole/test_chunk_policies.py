"""The production policy and, by one setting, the published algorithm on a real control plane, with data at one site."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from support.full_stack import API, System, full_stack
from support.object_history import History

JOBS = f"{API}/namespaces/default/trainingjobs"
UPLOAD_SECONDS = 3.0
CHUNK_MEGABYTES = 100


@pytest.fixture(scope="module", params=["chunk", "chunk:copies=1:aging=0", "chunk-faithful"])
def system(request: pytest.FixtureRequest) -> Iterator[System]:
    bandwidth = f"{int(8 * CHUNK_MEGABYTES / UPLOAD_SECONDS)}M"
    sites = {name: {"gpus": 1} for name in ("edge-a", "edge-b")}
    links = {
        name: {"links": [{"to": other, "bandwidth": bandwidth, "latency": "1ms"}]}
        for name, other in zip(sites, reversed(sites), strict=True)
    }
    with full_stack(sites, request.param, declared=links) as made:
        yield made


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_chunk_trains_at_other_site_after_data_transfer_time(system: System) -> None:
    data = {"chunks": 2, "batchesPerChunk": 50, "chunkSize": f"{CHUNK_MEGABYTES}M", "site": "edge-a"}
    with History(str(system.cluster.kubeconfig), JOBS) as history:
        system.submit("moved", chunks=2, seconds=300.0, data=data)
        starts = system.until("both have started", lambda: _starts(system))
    assert starts.keys() == {"edge-a-0", "edge-b-0"}
    submitted = moment(system.job("moved")["metadata"]["creationTimestamp"])
    assert starts["edge-b-0"] - submitted >= UPLOAD_SECONDS - 1.0  # API times are whole seconds
    assert next(filter(None, map(_sites, history.events[JOBS]))) == {"edge-a"}, "the data are there from the start"
    system.until("the data are known to be there", lambda: "edge-b" in system.status("moved")["plan"]["homes"])


def test_a_planner_that_is_killed_knows_where_the_data_are(system: System) -> None:
    homes = system.status("moved")["plan"]["homes"]
    system.stack.kill("scheduler")
    system.stack.start_scheduler()
    status = system.complete("moved")
    assert status["plan"]["attempts"] == 2
    assert homes
    system.delete("moved")


def _sites(job: dict[str, Any]) -> set[str]:
    """Return the sites of the planned windows."""
    return {window["site"] for window in job.get("status", {}).get("plan", {}).get("workers", ())}


def _starts(system: System) -> dict[str, float]:
    """Return the start times of the two pods by node, once both have one; the first pod may have ended by then."""
    started = [pod for pod in system.pods("moved") if "startTime" in pod["status"]]
    return {p["spec"]["nodeName"]: moment(p["status"]["startTime"]) for p in started} if len(started) == 2 else {}
