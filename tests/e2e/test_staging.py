"""Copies of data between sites over a link of limited bandwidth, by staging pods in real containers."""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from support.real_lab import NAMESPACE, Installed, resources, worker_container
from support.training_programs import trains

SECONDS = 180
CHUNKS, CHUNK_BYTES = 4, 2 << 20
DECLARED_MEGABITS, REAL_MEGABITS = 32.0, 8.0
SERVES = f"""
import socket
server = socket.create_server(("", 8000))
print("serves", flush=True)
while True:
    with server.accept()[0] as connection:
        connection.sendall(bytes({CHUNK_BYTES}))
"""
COPIES = """
import os, socket
for chunk in os.environ["TRANCHE_CHUNKS"].split(","):
    count = 0
    with socket.create_connection(("server.chunks.default.svc.cluster.local", 8000)) as connection:
        while part := connection.recv(65536):
            count += len(part)
    print("chunk", chunk, count, flush=True)
"""


@pytest.fixture
def slow_link(installed: Installed) -> Iterator[None]:
    """Data at edge-a, and a link to edge-b with a quarter of the bandwidth that its Site declares."""
    cluster = installed.cluster
    links = json.dumps({"spec": {"links": [{"to": "edge-b", "bandwidth": f"{DECLARED_MEGABITS:g}M"}]}})
    cluster.kubectl("patch", "site", "edge-a", "--type=merge", f"--patch={links}")
    labels = {"app": "chunks"}
    service = {"metadata": {"name": "chunks"}, "spec": {"clusterIP": "None", "selector": labels}}
    assert cluster.request("POST", "/api/v1/namespaces/default/services", service)[0] == 201
    spec = {"hostname": "server", "subdomain": "chunks", "nodeSelector": {"topology.kubernetes.io/zone": "edge-a"}}
    server = worker_container(["python", "-c", SERVES])
    pod = {"metadata": {"name": "server", "labels": labels}, "spec": {"containers": [server], **spec}}
    assert cluster.request("POST", "/api/v1/namespaces/default/pods", pod)[0] == 201
    installed.until("the server listens", lambda: "serves" in installed.logs("server"), SECONDS)
    node = installed.lab.nodes["edge-b-0"]
    node.limit_bandwidth(megabits=REAL_MEGABITS)
    yield
    node.limit_bandwidth(megabits=10_000)
    cluster.kubectl("delete", "pod/server", "service/chunks", "--grace-period=0", "--force")
    cluster.kubectl("patch", "site", "edge-a", "--type=merge", '--patch={"spec": {"links": null}}')


def seconds_of(pod: dict[str, Any]) -> float:
    """Return how long the container of an ended pod ran, in whole seconds."""
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    began, end = (datetime.fromisoformat(ended[one]) for one in ("startedAt", "finishedAt"))
    return (end - began).total_seconds()


def learned_factor(installed: Installed) -> float:
    """Return by how much copies from edge-a to edge-b take longer than declared, as the planner has learned."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/tranche-scheduler"
    lease = installed.cluster.request("GET", path)[1]
    memory = json.loads(lease["metadata"].get("annotations", {}).get("tranche.dev/memory", "{}"))
    found = [one["factor"] for one in memory.get("links", ()) if (one["origin"], one["target"]) == ("edge-a", "edge-b")]
    return float(found[0]) if found else 0.0


@pytest.mark.usefixtures("slow_link")
def test_chunks_are_copied_at_the_real_bandwidth_which_is_learnt(installed: Installed) -> None:
    copies = worker_container(["python", "-c", COPIES]) | {"resources": resources()}
    data = {"chunkSize": str(CHUNK_BYTES), "site": "edge-a"}
    staging = {"staging": {"template": {"spec": {"containers": [copies]}}}}
    installed.submit_program(
        "staged",
        trains(15.0, 50),
        seconds=15.0,
        chunks=CHUNKS,
        data={"chunks": CHUNKS, "batchesPerChunk": 50, **data, **staging},
    )

    def staged() -> list[dict[str, Any]]:
        pods = [pod for pod in installed.pods("staged") if pod["metadata"]["labels"]["tranche.dev/role"] == "staging"]
        return [pod for pod in pods if pod["status"]["phase"] == "Succeeded"]

    [copier] = installed.until("the data are copied", staged, SECONDS)
    brought = installed.logs(copier["metadata"]["name"]).splitlines()
    assert brought == [f"chunk {line.split()[1]} {CHUNK_BYTES}" for line in brought]
    needed = len(brought) * CHUNK_BYTES * 8 / (REAL_MEGABITS * 1e6)
    assert needed - 1.0 <= seconds_of(copier) < 2 * needed + 2.0
    installed.until_phase("staged", "Succeeded", SECONDS)
    sites = {one["site"]: one for one in installed.status("staged")["progress"]["sites"]}
    assert sites["edge-b"]["copiedBytes"] == len(brought) * CHUNK_BYTES
    assert sites["edge-b"]["chunks"] > 0
    assert installed.until("a learned factor", lambda: learned_factor(installed), SECONDS) > 1.2
    installed.delete("staged")
