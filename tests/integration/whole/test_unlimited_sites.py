"""A job bursts from a small edge into an autoscaled cloud and back, on a real control plane."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from support.full_stack import API, VALIDATED, Whole, declare_site
from support.installed_cluster import installed_cluster
from tranche.demo.cluster_snapshot import observe
from tranche.demo.deviation import compare
from tranche.demo.local_stack import Stack
from tranche.demo.submission import journal_of, outcome_of
from tranche.demo.summary import simulate_outcome
from tranche_operator.manifests.node_affinity import REQUIRED
from tranche_testcluster import Scaling

ZONE = "topology.kubernetes.io/zone"
START_SECONDS = 2.0
CHUNK_SECONDS = 10.0
LONG = 600.0
"""Seconds of a chunk that the test ends itself, so that all train however slow the machine is."""
SITES = ("edge", "cloud")
SCALING = Scaling("cloud", gpus=2, start_seconds=START_SECONDS, idle_seconds=1.0, most_nodes=3)


@pytest.fixture(scope="module", params=["chunk", "srsf"])
def whole(request: pytest.FixtureRequest) -> Iterator[Whole]:
    with installed_cluster() as cluster:
        cluster.add_site("edge", nodes=1, gpus=1)
        for site, other in zip(SITES, reversed(SITES), strict=True):
            links = [{"to": other, "bandwidth": "8M"}]
            declare_site(cluster, site, tier=site.capitalize(), unlimited=site == "cloud", links=links)
        cluster.start_autoscaler(SCALING)
        options = [*VALIDATED, "--journal", str(journal_of(cluster))]
        with Stack(cluster, request.param, scheduler_options=options) as stack:
            yield Whole(cluster, stack)


def data(chunks: int) -> dict[str, Any]:
    """One second a chunk over the link."""
    return {"chunks": chunks, "batchesPerChunk": 50, "chunkSize": "1M", "site": "edge"}


def cloud_nodes(whole: Whole) -> set[str]:
    items = whole.cluster.request("GET", f"/api/v1/nodes?labelSelector={ZONE}%3Dcloud")[1]["items"]
    return {node["metadata"]["name"] for node in items}


def sites_of_pods(whole: Whole, name: str) -> list[str]:
    return sorted(pod["spec"].get("nodeName", "").partition("-")[0] for pod in whole.pods(name))


def running(whole: Whole, name: str) -> int:
    return sum(pod["status"]["phase"] == "Running" for pod in whole.pods(name))


def site_status(whole: Whole) -> dict[str, Any]:
    return dict(whole.cluster.request("GET", f"{API}/sites/cloud")[1].get("status", {}))


def test_a_job_bursts_into_the_cloud_and_its_nodes_go_again(whole: Whole) -> None:
    whole.until("the cloud is known", lambda: site_status(whole).get("connected"))
    assert site_status(whole)["nodes"] == 0
    assert not cloud_nodes(whole)
    whole.submit("burst", chunks=4, seconds=LONG, data=data(4))
    whole.until("all train", lambda: running(whole, "burst") == 4)
    assert sites_of_pods(whole, "burst") == ["cloud", "cloud", "cloud", "edge"]
    assert len(cloud_nodes(whole)) == 2
    counts = {"nodes": 2, "gpus": 4, "allocatedGpus": 3}
    whole.until("nodes and GPUs are counted", lambda: counts.items() <= site_status(whole).items())
    windows = whole.status("burst")["plan"]["workers"]
    named = whole.until("nodes are named", lambda: _nodes_of(whole, "burst"))
    assert {name.partition("-")[0] for name in named} == {"cloud", "edge"}
    assert {window["site"] for window in windows} == {"cloud", "edge"}
    status = whole.complete("burst")
    assert status["plan"]["attempts"] == 4, "each window that was opened was used"
    assert status["progress"].get("failures", 0) == 0
    whole.until("cloud nodes are gone", lambda: not cloud_nodes(whole))
    whole.until("GPUs are given back", lambda: site_status(whole).get("gpus") == 0)
    whole.delete("burst")


def test_a_later_job_that_fits_trains_at_the_edge_only(whole: Whole) -> None:
    whole.submit("home", chunks=1, seconds=1.0, data=data(1))
    whole.until_phase("home", "Succeeded")
    assert sites_of_pods(whole, "home") == ["edge"]
    assert not cloud_nodes(whole)
    whole.delete("home")


def test_a_killed_scheduler_takes_cloud_windows_over(whole: Whole) -> None:
    whole.submit("kept", chunks=3, seconds=LONG, data=data(3))
    whole.until("nodes are named", lambda: "cloud" in {n.partition("-")[0] for n in _nodes_of(whole, "kept")})
    term = whole.term()
    whole.stack.kill("scheduler")
    whole.stack.start_scheduler()
    whole.until("a plan of the next one", lambda: whole.has_plan_after(term))
    status = whole.complete("kept")
    assert status["plan"]["attempts"] == 3, "each window that was opened before was used"
    assert status["progress"].get("failures", 0) == 0
    whole.delete("kept")


def test_failed_job_avoids_its_former_cloud_node(whole: Whole) -> None:
    whole.submit("bad", zone="cloud", exit_code=1, runPolicy={"backoffLimit": 1})
    whole.until_phase("bad", "Failed")
    first, second = sorted(whole.pods("bad"), key=lambda pod: int(pod["metadata"]["labels"]["tranche.dev/attempt"]))
    (term,) = second["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    name = first["spec"]["nodeName"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "NotIn", "values": [name]}]
    assert second["spec"]["nodeName"] != name
    whole.delete("bad")


def select(whole: Whole, zone: str) -> None:
    """Change the labels of the nodes that the cloud will have."""
    body = {"spec": {"nodeSelector": {ZONE: zone}}}
    assert whole.cluster.request("PATCH", f"{API}/sites/cloud", body, "application/merge-patch+json")[0] == 200


def waiting(whole: Whole, name: str, zone: str) -> int:
    """Return the number of pods without a node that require this zone."""
    specs = [pod["spec"] for pod in whole.pods(name) if "nodeName" not in pod["spec"]]
    return sum(f'"{zone}"' in json.dumps(spec["affinity"]) for spec in specs)


def test_waiting_pods_follow_a_changed_selector(whole: Whole) -> None:
    select(whole, "misspelt")
    whole.submit("follows", chunks=3, seconds=LONG, data=data(3))
    whole.until("the pods wait", lambda: waiting(whole, "follows", "misspelt") == 2)
    select(whole, "cloud")
    whole.until("no pod keeps the former labels", lambda: waiting(whole, "follows", "misspelt") == 0)
    status = whole.complete("follows")
    assert status["progress"].get("failures", 0) == 0
    whole.delete("follows")


def test_a_burst_takes_about_as_long_as_its_simulation(whole: Whole) -> None:
    submitted = time.time()
    whole.submit("beside", chunks=4, seconds=CHUNK_SECONDS, data=data(4))
    whole.until_phase("beside", "Succeeded")
    snapshot = observe(whole.cluster, "default")
    outcome = outcome_of(whole.cluster, snapshot, {"beside": submitted}, 0.3, [SCALING])
    assert outcome.delays.node_seconds >= START_SECONDS
    _, simulated = simulate_outcome(outcome, whole.stack.policy, 0)
    (deviation,) = compare(outcome.timelines, simulated, outcome.completed, outcome.report_seconds)
    assert deviation.chunks == 4
    assert deviation.moved_chunks == 0, "as many chunks in the cloud as in the simulation"
    assert deviation.relative < 0.25
    whole.delete("beside")


def _nodes_of(whole: Whole, name: str) -> set[str]:
    """Nodes of the job's windows, once all have one."""
    nodes = [window.get("node") for window in whole.status(name).get("plan", {}).get("workers", ())]
    return {node for node in nodes if node} if nodes and all(nodes) else set()
