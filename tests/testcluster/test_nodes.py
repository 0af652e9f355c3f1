"""Real nodes, as far as they need neither root nor containers; tests/e2e has the rest."""

import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.waiting import eventually, stays
from tranche_testcluster import Cluster
from tranche_testcluster.binaries import binary_cache
from tranche_testcluster.command_lines import REAL_LABEL, Layout, apiserver
from tranche_testcluster.node import HostState, unavailable

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as started:
        started.add_site("simulated")
        yield started


def create_pod(cluster: Cluster, name: str, node: str) -> None:
    spec = {"nodeName": node, "containers": [{"name": "c", "image": "x"}]}
    assert cluster.request("POST", PODS, {"metadata": {"name": name}, "spec": spec})[0] == 201


def phase(cluster: Cluster, name: str) -> str:
    return str(cluster.request("GET", f"{PODS}/{name}")[1]["status"]["phase"])


def test_simulation_leaves_real_nodes_and_their_pods_alone(cluster: Cluster) -> None:
    body = {"metadata": {"name": "real-0", "labels": {REAL_LABEL: "true"}}}
    assert cluster.request("POST", "/api/v1/nodes", body)[0] == 201
    create_pod(cluster, "real", "real-0")
    create_pod(cluster, "control", "simulated-0")
    eventually(lambda: phase(cluster, "control") == "Running")
    stays(lambda: phase(cluster, "real") == "Pending", seconds=1.0)
    assert not cluster.request("GET", "/api/v1/nodes/real-0")[1]["status"].get("conditions")


def test_certificate_kubeconfig_names_user_and_group(cluster: Cluster) -> None:
    file = cluster.certificate_kubeconfig("system:node:real-1", "system:nodes")
    answer = cluster.kubectl("auth", "whoami", "--output=json", f"--kubeconfig={file}")
    user = json.loads(answer)["status"]["userInfo"]
    assert user["username"] == "system:node:real-1"
    assert "system:nodes" in user["groups"]


def test_kubelet_has_version_of_newest_control_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRANCHE_KUBERNETES", raising=False)
    assert binary_cache.version("kubelet") == binary_cache.version("kube-apiserver")
    assert not {"kubelet", "kube-proxy", "device-plugin", "pause", "coredns"} & set(binary_cache.NAMES)


def test_api_server_listens_elsewhere_with_an_address_for_pods(tmp_path: Path) -> None:
    names = ("kube-apiserver", "etcd")
    alone = Layout(tmp_path, dict.fromkeys(names, tmp_path), dict.fromkeys(names, 1), 40)
    assert "--bind-address=127.0.0.1" in apiserver(alone)
    reachable = apiserver(dataclasses.replace(alone, pod_address="10.222.0.1"))
    assert {"--bind-address=0.0.0.0", "--advertise-address=10.222.0.1"} <= set(reachable)


def test_host_state_lists_what_is_new_and_what_is_gone() -> None:
    before = HostState.read()
    assert before.sysctls
    assert before.changes(before) == []
    (one, *_) = before.sysctls
    later = dataclasses.replace(before, interfaces=before.interfaces | {"left0"}, sysctls=before.sysctls - {one})
    assert before.changes(later) == [f"-sysctls {one}", "+interfaces left0"]


def test_machine_without_root_has_no_real_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert unavailable() == "real nodes require root"
