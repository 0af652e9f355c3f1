"""A job bursts from a small edge into an autoscaled cloud and back, on a real control plane."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from statistics import mean
from typing import Any

import pytest

from support.full_stack import API, VALIDATED, System, declare_site
from support.installed_cluster import installed_cluster
from tranche.demo.cluster_snapshot import observe
from tranche.demo.delay_measurement import measure_delays
from tranche.demo.deviation import compare
from tranche.demo.job_timeline import JobTimeline
from tranche.demo.local_stack import Stack
from tranche.demo.submission import journal_of, outcome_of
from tranche.demo.summary import simulate_outcome
from tranche_operator.manifests.node_affinity import REQUIRED
from tranche_testcluster import Scaling

ZONE = "topology.kubernetes.io/zone"
START_SECONDS = 2.0
SAVE_SECONDS = 0.3
CHUNK_SECONDS = 30.0
"""Longer than a machine under load pauses, so that the edge has no time for a chunk of a node that starts late."""
LONG = 600.0
"""Seconds of a chunk that the test ends itself, so that all train however slow the machine is."""
SITES = ("edge", "cloud")
SCALING = Scaling("cloud", gpus=2, start_seconds=START_SECONDS, idle_seconds=1.0, most_nodes=3)


@pytest.fixture(scope="module", params=["chunk", "srsf"])
def system(request: pytest.FixtureRequest) -> Iterator[System]:
    with installed_cluster() as cluster:
        cluster.add_site("edge", nodes=1, gpus=1)
        for site, other in zip(SITES, reversed(SITES), strict=True):
            links = [{"to": other, "bandwidth": "8M"}]
            declare_site(cluster, site, tier=site.capitalize(), unlimited=site == "cloud", links=links)
        cluster.start_autoscaler(SCALING)
        options = [*VALIDATED, "--journal", str(journal_of(cluster))]
        with Stack(cluster, request.param, scheduler_options=options) as stack:
            yield System(cluster, stack)


def data(chunks: int) -> dict[str, Any]:
    """One second a chunk over the link."""
    return {"chunks": chunks, "batchesPerChunk": 50, "chunkSize": "1M", "site": "edge"}


def cloud_nodes(system: System) -> set[str]:
    items = system.cluster.request("GET", f"/api/v1/nodes?labelSelector={ZONE}%3Dcloud")[1]["items"]
    return {node["metadata"]["name"] for node in items}


def sites_of_pods(system: System, name: str) -> list[str]:
    return sorted(pod["spec"].get("nodeName", "").partition("-")[0] for pod in system.pods(name))


def running(system: System, name: str) -> int:
    return sum(pod["status"]["phase"] == "Running" for pod in system.pods(name))


def site_status(system: System) -> dict[str, Any]:
    return dict(system.cluster.request("GET", f"{API}/sites/cloud")[1].get("status", {}))


def test_a_job_bursts_into_the_cloud_and_its_nodes_go_again(system: System) -> None:
    system.until("the cloud is known", lambda: site_status(system).get("connected"))
    assert site_status(system)["nodes"] == 0
    assert not cloud_nodes(system)
    system.submit("burst", chunks=4, seconds=LONG, data=data(4))
    system.until("all train", lambda: running(system, "burst") == 4)
    assert sites_of_pods(system, "burst") == ["cloud", "cloud", "cloud", "edge"]
    assert len(cloud_nodes(system)) == 2
    counts = {"nodes": 2, "gpus": 4, "allocatedGpus": 3}
    system.until("nodes and GPUs are counted", lambda: counts.items() <= site_status(system).items())
    windows = system.status("burst")["plan"]["workers"]
    named = system.until("nodes are named", lambda: _nodes_of(system, "burst"))
    assert {name.partition("-")[0] for name in named} == {"cloud", "edge"}
    assert {window["site"] for window in windows} == {"cloud", "edge"}
    status = system.complete("burst")
    assert status["plan"]["attempts"] == 4, "each window that was opened was used"
    assert status["progress"].get("failures", 0) == 0
    system.until("cloud nodes are gone", lambda: not cloud_nodes(system))
    system.until("GPUs are given back", lambda: site_status(system).get("gpus") == 0)
    system.delete("burst")


def test_a_later_job_that_fits_trains_at_the_edge_only(system: System) -> None:
    system.submit("home", chunks=1, seconds=1.0, data=data(1))
    system.until_phase("home", "Succeeded")
    assert sites_of_pods(system, "home") == ["edge"]
    assert not cloud_nodes(system)
    system.delete("home")


def test_a_killed_scheduler_takes_cloud_windows_over(system: System) -> None:
    system.submit("kept", chunks=3, seconds=LONG, data=data(3))
    system.until("nodes are named", lambda: "cloud" in {n.partition("-")[0] for n in _nodes_of(system, "kept")})
    term = system.term()
    system.stack.kill("scheduler")
    system.stack.start_scheduler()
    system.until("a plan of the next one", lambda: system.has_plan_after(term))
    status = system.complete("kept")
    assert status["plan"]["attempts"] == 3, "each window that was opened before was used"
    assert status["progress"].get("failures", 0) == 0
    system.delete("kept")


def test_failed_job_avoids_its_former_cloud_node(system: System) -> None:
    system.submit("bad", zone="cloud", exit_code=1, runPolicy={"backoffLimit": 1})
    system.until_phase("bad", "Failed")
    first, second = sorted(system.pods("bad"), key=lambda pod: int(pod["metadata"]["labels"]["tranche.dev/attempt"]))
    (term,) = second["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    name = first["spec"]["nodeName"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "NotIn", "values": [name]}]
    assert second["spec"]["nodeName"] != name
    system.delete("bad")


def select(system: System, zone: str) -> None:
    """Change the labels of the nodes that the cloud will have."""
    body = {"spec": {"nodeSelector": {ZONE: zone}}}
    assert system.cluster.request("PATCH", f"{API}/sites/cloud", body, "application/merge-patch+json")[0] == 200


def waiting(system: System, name: str, zone: str) -> int:
    """Return the number of pods without a node that require this zone."""
    specs = [pod["spec"] for pod in system.pods(name) if "nodeName" not in pod["spec"]]
    return sum(f'"{zone}"' in json.dumps(spec["affinity"]) for spec in specs)


def test_waiting_pods_follow_a_changed_selector(system: System) -> None:
    select(system, "misspelt")
    system.submit("follows", chunks=3, seconds=LONG, data=data(3))
    system.until("the pods wait", lambda: waiting(system, "follows", "misspelt") == 2)
    select(system, "cloud")
    system.until("no pod keeps the former labels", lambda: waiting(system, "follows", "misspelt") == 0)
    status = system.complete("follows")
    assert status["progress"].get("failures", 0) == 0
    system.delete("follows")


def unevenness(job: JobTimeline) -> float:
    """Return by how much the last start in the cloud and the last end exceed the means, which a simulation takes."""
    cloud = [one.started - one.opened for one in job.workers.values() if one.started and one.node == "cloud"]
    ends = [one.ended - one.started for one in job.workers.values() if one.ended and one.started]
    return max(cloud) - mean(cloud) + max(ends) - mean(ends)


def test_a_burst_takes_about_as_long_as_its_simulation(system: System) -> None:
    submitted = time.time()
    system.submit("beside", chunks=4, seconds=CHUNK_SECONDS, data=data(4))
    system.until_phase("beside", "Succeeded")
    snapshot = observe(system.cluster, "default")
    outcome = outcome_of(system.cluster, snapshot, {"beside": submitted}, SAVE_SECONDS, [SCALING])
    own = {key: outcome.timelines[key] for key in outcome.completed}  # nodes of other tests may have started late
    trains = dict.fromkeys(own, CHUNK_SECONDS)
    outcome = replace(outcome, timelines=own, delays=measure_delays(own, SAVE_SECONDS, outcome.kinds, trains))
    assert outcome.delays.node_seconds >= START_SECONDS
    _, simulated = simulate_outcome(outcome, system.stack.policy, 0)
    (deviation,) = compare(outcome.timelines, simulated, outcome.completed, outcome.report_seconds)
    assert deviation.chunks == 4
    assert deviation.moved_chunks == 0, "as many chunks in the cloud as in the simulation"
    assert abs(deviation.seconds) < 0.25 * deviation.measured.total + unevenness(*own.values())
    system.delete("beside")


def _nodes_of(system: System, name: str) -> set[str]:
    """Nodes of the job's windows, once all have one."""
    nodes = [window.get("node") for window in system.status(name).get("plan", {}).get("workers", ())]
    return {node for node in nodes if node} if nodes and all(nodes) else set()
