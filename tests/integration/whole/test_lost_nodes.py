"""Nodes that fall silent, are drained or deleted: others train what they ran, and a short silence costs nothing."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from support.full_stack import System, full_stack
from tranche.live.pods.pod_timeouts import RIGID_TOLERANCE_SECONDS

TOLERANCE_SECONDS = 15
LONG = 6000.0
"""Seconds of a chunk that does not end by itself during its test, however slow the machine is."""


@pytest.fixture(scope="module")
def sited() -> Iterator[System]:
    """Two sites: one tolerates silence for long, the other for a short time."""
    sites = {name: {"nodes": 2, "gpus": 1} for name in ("patient", "hasty")}
    tolerances = {
        "patient": {"disconnectTolerance": "1h"},
        "hasty": {"disconnectTolerance": f"{TOLERANCE_SECONDS}s"},
    }
    with full_stack(sites, options=["--validate"], declared=tolerances, cluster={"node_lease_seconds": 8}) as made:
        yield made


def windows(system: System, job: str) -> list[tuple[int, str]]:
    return [(w["attempt"], w["node"]) for w in system.status(job)["plan"]["workers"]]


def run_one(system: System, job: str, zone: str) -> str:
    """A job of one long chunk; the node that trains it."""
    system.submit(job, seconds=LONG, zone=zone)
    system.until_phase(job, "Running")
    return windows(system, job)[0][1]


def readiness(system: System, node: str) -> dict[str, str]:
    """Return the condition Ready of a node."""
    conditions = system.cluster.request("GET", f"/api/v1/nodes/{node}")[1]["status"]["conditions"]
    return dict(next(c for c in conditions if c["type"] == "Ready"))


def ready(system: System, node: str) -> str:
    return readiness(system, node)["status"]


def silent_seconds(system: System, node: str) -> float:
    """Return for how long a node has been silent for the cluster, which may be longer than this process knows."""
    since = datetime.fromisoformat(readiness(system, node)["lastTransitionTime"])
    return (datetime.now(UTC) - since).total_seconds()


def resolved(system: System, job: str, host: str) -> list[str]:
    """Return the pods to which a host name resolves in the Service of a job."""
    path = f"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name={job}"
    slices = system.cluster.request("GET", path)[1]["items"]
    found = [end for one in slices for end in one["endpoints"] or () if end.get("hostname") == host]
    return sorted({end["targetRef"]["name"] for end in found})


def test_disconnected_site_keeps_chunks_until_tolerance_ends(
    sited: System,
) -> None:
    nodes = {name: run_one(sited, name, name) for name in ("patient", "hasty")}
    (pod,) = sited.pods("hasty")
    tolerated = {t["key"]: t["tolerationSeconds"] for t in pod["spec"]["tolerations"] if "tolerationSeconds" in t}
    assert set(tolerated.values()) == {TOLERANCE_SECONDS}
    for node in nodes.values():
        sited.cluster.silence(node)
    try:
        sited.until("it is silent", lambda: ready(sited, nodes["hasty"]) == "Unknown")
        moved = sited.until("moved", lambda: [w for w in windows(sited, "hasty") if w[0] == 2])
        assert TOLERANCE_SECONDS - 3 <= silent_seconds(sited, nodes["hasty"]) <= TOLERANCE_SECONDS + 60
        sited.until("the other one is silent", lambda: ready(sited, nodes["patient"]) == "Unknown")
        assert moved[0][1] != nodes["hasty"]
        sited.until(
            "it runs",
            lambda: any(
                p["status"].get("phase") == "Running" and not p["metadata"].get("deletionTimestamp")
                for p in sited.pods("hasty")
            ),
        )
        assert windows(sited, "patient") == [(1, nodes["patient"])]
    finally:
        for node in nodes.values():
            sited.cluster.revive(node)
    for node in nodes.values():
        sited.until("it is back", lambda node=node: ready(sited, node) == "True")  # type: ignore[misc]
    sited.until(
        "the old pod is gone",
        lambda: (
            "hasty-worker-0-1"
            not in {p["metadata"]["name"] for p in sited.pods("hasty") if p["metadata"].get("finalizers")}
        ),
    )
    assert windows(sited, "patient") == [(1, nodes["patient"])]
    assert sited.status("patient")["progress"]["preemptions"] == 0
    sited.delete("patient", "hasty")


def test_gang_leaves_a_dead_node_within_two_minutes(sited: System) -> None:
    gang: dict[str, Any] = {"data": None, "model": None, "estimatedDuration": "1h"}
    sited.submit("pair", chunks=2, seconds=50 * 600.0, zone="patient", **gang)
    sited.until_phase("pair", "Running")
    assert len({node for _, node in windows(sited, "pair")}) == 2
    sited.cluster.silence("patient-0")
    try:
        sited.until("it is silent", lambda: ready(sited, "patient-0") == "Unknown")
        sited.until("it is given up", lambda: not windows(sited, "pair"), seconds=120.0)
        assert silent_seconds(sited, "patient-0") >= RIGID_TOLERANCE_SECONDS - 3
    finally:
        sited.cluster.revive("patient-0")
    sited.until("it runs again", lambda: sited.status("pair").get("phase") == "Running" and windows(sited, "pair"))
    assert min(attempt for attempt, _ in windows(sited, "pair")) > 2
    assert sited.status("pair")["progress"]["failures"] == 0
    sited.delete("pair")


def test_dead_server_of_a_chunked_job_is_replaced(sited: System) -> None:
    """The site tolerates silence for an hour, but a worker on the other node waits for the server.

    The Service selects all pods at first, as one that an earlier release has created.
    """
    container = {"name": "serve", "image": "x", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    template = {"spec": {"containers": [container], "nodeSelector": {"topology.kubernetes.io/zone": "patient"}}}
    sited.submit("served", chunks=2, seconds=LONG, zone="patient", parameterServers={"template": template})
    sited.until("both run", lambda: [p["status"]["phase"] for p in sited.pods("served")] == 3 * ["Running"])
    assert {node for _, node in windows(sited, "served")} == {"patient-0", "patient-1"}

    def servers() -> list[tuple[int, str]]:
        return [(one["attempt"], one["node"]) for one in sited.status("served")["plan"]["parameterServers"]]

    former = [{"op": "replace", "path": "/spec/selector", "value": {"tranche.dev/job": "served"}}]
    service = "/api/v1/namespaces/default/services/served"
    assert sited.cluster.request("PATCH", service, former, "application/json-patch+json")[0] == 200
    ((attempt, node),) = servers()
    old = f"served-ps-0-{attempt}"
    sited.until("it has a name", lambda: resolved(sited, "served", "served-ps-0") == [old])
    sited.cluster.silence(node)
    try:
        sited.until("it is silent", lambda: ready(sited, node) == "Unknown")
        sited.until("it is replaced", lambda: [one for one in servers() if one[0] > attempt])
        assert silent_seconds(sited, node) >= RIGID_TOLERANCE_SECONDS - 3
        assert {name for number, name in servers() if number > attempt} == {"patient-0", "patient-1"} - {node}
        (new,) = [f"served-ps-0-{number}" for number, _ in servers() if number > attempt]
        sited.until("the name is its successor's", lambda: resolved(sited, "served", "served-ps-0") == [new])
        assert {old, new} < {pod["metadata"]["name"] for pod in sited.pods("served")}, "the node has not removed it"
    finally:
        sited.cluster.revive(node)
    sited.delete("served")


def test_chunks_of_a_drained_node_are_trained_elsewhere(sited: System) -> None:
    node = run_one(sited, "drained", "patient")
    sited.cluster.kubectl("drain", node, "--force", "--ignore-daemonsets", "--timeout=180s")
    status = sited.complete("drained")
    assert [a["reason"] for a in status["progress"]["attempts"]] == ["Preempted", "Succeeded"]
    assert status["progress"]["attempts"][1]["node"] != node
    sited.submit("only-there", node=node)
    said = "no node takes a worker"
    sited.until("that is said", lambda: said in sited.status("only-there").get("plan", {}).get("explanation", ""))
    assert windows(sited, "only-there") == []
    sited.cluster.kubectl("uncordon", node)
    sited.until_phase("only-there", "Succeeded")
    sited.delete("drained", "only-there")


def test_chunks_of_a_deleted_node_are_trained_elsewhere(sited: System) -> None:
    node = run_one(sited, "deleted", "hasty")
    sited.cluster.request("DELETE", f"/api/v1/nodes/{node}")
    moved = sited.until("moved", lambda: [w for w in windows(sited, "deleted") if w[0] == 2])
    assert moved[0][1] != node  # kube-controller-manager removes the pods of a node that is gone after 40 to 60 s
    left = ["deleted-worker-0-2"]
    sited.until("the old pod is gone", lambda: [p["metadata"]["name"] for p in sited.pods("deleted")] == left)
    assert sited.status("deleted")["progress"]["failures"] == 0
    sited.delete("deleted")
