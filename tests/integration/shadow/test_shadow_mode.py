"""A scheduler in shadow mode on a real control plane, with an account that may only read."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.access_reviews import await_permission
from support.full_stack import System
from support.installed_cluster import installed_cluster
from support.waiting import WAIT_SECONDS, eventually
from tranche_testcluster import Cluster, free_port, spawn

READS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules:
  - apiGroups: ["", tranche.dev]
    resources: [pods, nodes, resourcequotas, trainingjobs, sites]
    verbs: [get, list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: default}]
"""


class Shadowed:
    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.port = free_port()
        self.log = cluster.directory / "shadow.log"
        self.process = self.start()

    def start(self) -> "subprocess.Popen[bytes]":
        kubeconfig = self.cluster.service_account_kubeconfig("default", "reader")
        command = [sys.executable, "-m", "tranche", "scheduler", "--kubeconfig", str(kubeconfig), "--shadow"]
        command += ["--port", str(self.port), "--shadow-dir", str(self.folder)]
        command += ["--shadow-decide-seconds", "0.5", "--shadow-replay-seconds", "1"]
        return spawn(command, log=self.log)

    def read(self, path: str) -> Any:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=20) as reply:
                body = reply.read().decode()
        except OSError:
            return {}
        return body if path == "/metrics" else json.loads(body)

    def until(self, true: Callable[[], Any]) -> Any:
        answer = eventually(lambda: true() or self.process.poll() is not None, self.log.read_text)
        assert self.process.poll() is None, self.log.read_text()
        return answer

    def decision(self, job: str) -> dict[str, Any]:
        found = self.read("/v1/shadow/decisions").get("decisions", [])
        return next((one for one in found if one["job"] == job), {})


@pytest.fixture(scope="module", params=["without our kinds", "with our kinds"])
def shadowed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shadowed]:
    with installed_cluster() if request.param == "with our kinds" else Cluster() as cluster:
        cluster.add_site("edge-a", nodes=2, gpus=1)
        cluster.kubectl("create", "serviceaccount", "reader", "-n", "default")
        cluster.kubectl("apply", "-f", "-", input=READS)
        await_permission(cluster, "system:serviceaccount:default:reader", [], "list pods")
        made = Shadowed(cluster, tmp_path_factory.mktemp("shadow"))
        yield made
        made.process.kill()
        made.process.wait()


def pod(cluster: Cluster, name: str, seconds: float, node: str = "") -> None:
    """Create a pod of another scheduler. Without a node it waits, because no scheduler serves it."""
    container = {"name": "t", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec = {
        "restartPolicy": "Never",
        "containers": [container],
        "schedulerName": "other",
        **({"nodeName": node} if node else {}),
    }
    metadata = {"name": name, "annotations": {"kwok.tranche.dev/run-seconds": str(seconds)}}
    path = "/api/v1/namespaces/default/pods"
    assert cluster.request("POST", path, {"metadata": metadata, "spec": spec})[0] == 201


def test_shadow_mode_records_and_compares_without_writing(shadowed: Shadowed) -> None:
    cluster = shadowed.cluster
    for name, node in (("one", "edge-a-0"), ("two", "edge-a-1")):
        pod(cluster, name, 2, node)
    compared = shadowed.until(lambda: (known := shadowed.read("/v1/shadow")).get("counted") == 2 and known)
    labels = [row["label"] for row in compared["rows"]]
    assert labels[:2] == ["as it was", "fifo"]
    assert "chunk" in labels
    real = compared["rows"][0]
    assert 1.0 <= real["average_jct_seconds"] <= 120.0
    assert f'completion_seconds{{fate="as it was",statistic="average"}} {real["average_jct_seconds"]}' in shadowed.read(
        "/metrics"
    )

    pod(cluster, "busy", 300, "edge-a-0")
    pod(cluster, "next", 300)
    start = shadowed.until(lambda: shadowed.decision("default/next"))
    assert (start["decision"], start["nodes"]) == ("start", ["edge-a-1"])
    pod(cluster, "busy-too", 300, "edge-a-1")
    wait = shadowed.until(lambda: (one := shadowed.decision("default/next")).get("decision") == "wait" and one)
    assert wait["explanation"].startswith("waits for 1 GPU at cluster until ")
    assert "behind default/busy" in wait["explanation"]
    assert wait["plannedStart"] > wait["at"]

    for name in ("one", "two"):
        cluster.request("DELETE", f"/api/v1/namespaces/default/pods/{name}", {"gracePeriodSeconds": 0})
    shadowed.process.terminate()
    assert shadowed.process.wait(WAIT_SECONDS) == 0
    shadowed.process = shadowed.start()
    again = shadowed.until(lambda: (known := shadowed.read("/v1/shadow")).get("counted") == 2 and known)
    assert again["rows"][0]["average_jct_seconds"] == pytest.approx(real["average_jct_seconds"], abs=2.0)
    assert_nothing_was_written(shadowed)


@pytest.mark.parametrize("shadowed", ["with our kinds"], indirect=True)
def test_shadow_mode_plans_trainingjobs_and_leaves_status_empty(shadowed: Shadowed) -> None:
    system = System(shadowed.cluster, None)  # type: ignore[arg-type]
    system.submit("ours", chunks=1, seconds=5.0)
    decided = shadowed.until(lambda: shadowed.decision("default/ours"))
    assert decided["plannedCompletion"] is None or decided["plannedCompletion"] > decided["at"]
    assert system.status("ours") == {}
    assert not system.pods("ours")
    assert_nothing_was_written(shadowed)


def assert_nothing_was_written(shadowed: Shadowed) -> None:
    """A write of this account is refused with 403, and a lease would be taken in tranche-system."""
    log = shadowed.log.read_text()
    assert "forbidden" not in log
    assert "ERROR" not in log
    listed = shadowed.cluster.kubectl("get", "pods,nodes,events,leases", "-A", "-o", "json", "--show-managed-fields")
    managers = {
        one["manager"] for item in json.loads(listed)["items"] for one in item["metadata"].get("managedFields", [])
    }
    assert not [name for name in managers if "tranche-scheduler" in name or name.startswith("tranche")]
