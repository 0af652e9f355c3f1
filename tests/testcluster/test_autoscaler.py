"""The stand-in for an autoscaler on a real control plane."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tranche_testcluster
from support.waiting import eventually
from tranche_testcluster import Cluster, Scaling, annotations
from tranche_testcluster.site import ZONE

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(tranche_testcluster.__file__).parents[1])}
START_SECONDS = 1.5
PODS = "/api/v1/namespaces/default/pods"
LONG = 600.0
"""Seconds for which a pod runs that the test ends, after what it has to see."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as made:
        made.start_scheduler()
        scaling = Scaling(
            "cloud", {"pool": "burst"}, gpus=2, cpu="4", start_seconds=START_SECONDS, idle_seconds=1.0, most_nodes=2
        )
        assert made.start_autoscaler(scaling) == "autoscaler-cloud"
        yield made


def create(cluster: Cluster, name: str, gpus: int, seconds: float) -> None:
    limits = {"nvidia.com/gpu": str(gpus)}
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "100m", **limits}, "limits": limits}}
    body = {
        "metadata": {"name": name, "annotations": {annotations.RUN_SECONDS: str(seconds)}},
        "spec": {"nodeSelector": {"pool": "burst"}, "containers": [container], "restartPolicy": "Never"},
    }
    status, answer = cluster.request("POST", PODS, body)
    assert status == 201, answer


def end(cluster: Cluster, *names: str) -> None:
    """Let pods end as soon as they run."""
    patch = {"metadata": {"annotations": {annotations.RUN_SECONDS: "0"}}}
    for name in names:
        assert cluster.request("PATCH", f"{PODS}/{name}", patch, "application/merge-patch+json")[0] == 200


def until(what: str, condition: Callable[[], Any]) -> None:
    eventually(condition, what)


def phase(cluster: Cluster, name: str) -> str:
    return str(cluster.request("GET", f"{PODS}/{name}")[1]["status"]["phase"])


def nodes(cluster: Cluster) -> list[str]:
    items = cluster.request("GET", f"/api/v1/nodes?labelSelector={ZONE}%3Dcloud")[1]["items"]
    return [node["metadata"]["name"] for node in items]


def test_nodes_come_for_pods_that_wait_and_go_when_idle(cluster: Cluster) -> None:
    begin = time.monotonic()
    names = ("one", "two", "three")
    for name, gpus in zip(names, (2, 1, 1), strict=True):
        create(cluster, name, gpus, LONG)
    until("all run", lambda: all(phase(cluster, name) == "Running" for name in names))
    assert time.monotonic() - begin >= START_SECONDS
    assert sorted(nodes(cluster)) == ["cloud-0", "cloud-1"]
    end(cluster, *names)
    until("all done", lambda: all(phase(cluster, name) == "Succeeded" for name in names))
    until("no nodes", lambda: not nodes(cluster))
    until("both deletions are logged", lambda: cluster.logs("autoscaler-cloud").count("is deleted:") == 2)
    assert cluster.logs("autoscaler-cloud").count("is ordered for") == 2


def test_the_limit_holds_and_the_third_pod_waits_for_room(cluster: Cluster) -> None:
    names = ("full-a", "full-b", "full-c")
    for name in names:
        create(cluster, name, 2, LONG)
    until("two run", lambda: sorted(phase(cluster, name) for name in names) == ["Pending", "Running", "Running"])
    until("the limit is logged", lambda: "there are as many nodes as allowed" in cluster.logs("autoscaler-cloud"))
    waits, first, second = sorted(names, key=lambda name: phase(cluster, name))

    def done(*ended: str) -> bool:
        counts.append(len(nodes(cluster)))
        return all(phase(cluster, name) == "Succeeded" for name in ended)

    counts = [len(nodes(cluster))]
    # If both ended, kube-scheduler could bind the third to the node that goes: it notices a cordon later.
    end(cluster, waits, first)
    until("the third pod has had the room of the first", lambda: done(waits, first))
    end(cluster, second)
    until("all done", lambda: done(second))
    assert max(counts) == 2


def test_it_goes_on_after_the_api_server_was_away(cluster: Cluster) -> None:
    until("no nodes", lambda: not nodes(cluster))  # a pod that is bound to one as it goes would be lost
    pid = cluster.pid("autoscaler-cloud")
    cluster.stop("kube-apiserver")
    until("the silence is logged", lambda: "no answer, trying again" in cluster.logs("autoscaler-cloud"))
    cluster.start("kube-apiserver")
    create(cluster, "later", 1, 1.0)
    until("it has run", lambda: phase(cluster, "later") == "Succeeded")
    assert cluster.pid("autoscaler-cloud") == pid
    assert "the API server answers again" in cluster.logs("autoscaler-cloud")


def test_up_with_a_cloud_makes_a_node_for_a_pod_that_asks() -> None:
    command = [sys.executable, "-m", "tranche_testcluster", "up", "--sites", "0", "--cloud", "sky"]
    command += ["--cloud-gpus", "1", "--cloud-start-seconds", "0.5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as up:
        try:
            assert up.stdout is not None
            kubeconfig = up.stdout.readline().removeprefix("export KUBECONFIG=").strip()
            _run_a_pod_on(kubeconfig, "sky")
        finally:
            up.terminate()


def _run_a_pod_on(kubeconfig: str, site: str) -> None:
    kubectl = [str(tranche_testcluster.ensure("kubectl")["kubectl"]), f"--kubeconfig={kubeconfig}"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "asks"},
        "spec": {"nodeSelector": {ZONE: site}, "containers": [{"name": "c", "image": "x"}]},
    }
    subprocess.run([*kubectl, "create", "-f", "-"], input=json.dumps(pod), text=True, check=True, capture_output=True)
    wait = [*kubectl, "wait", f"--for=jsonpath={{.spec.nodeName}}={site}-0", "pod/asks", "--timeout=180s"]
    subprocess.run(wait, check=True, capture_output=True)


def test_up_refuses_a_cloud_that_makes_no_sense() -> None:
    command = [sys.executable, "-m", "tranche_testcluster", "up", "--cloud", "sky", "--cloud-most-nodes", "0"]
    refused = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert refused.returncode == 1
    assert refused.stderr == "error: gpus must be at least 0, and most_nodes at least 1\n"
