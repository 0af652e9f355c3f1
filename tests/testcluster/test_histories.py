"""Changes are read out of etcd as they were written; a proxy is on the way; pods of a node that comes back go on."""

from collections.abc import Iterator

import pytest

from support.waiting import eventually
from tranche_testcluster import Cluster
from tranche_testcluster.etcd.history import FLAGS

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(extra_flags={"kube-apiserver": FLAGS}) as made:
        yield made


def test_etcd_history_keeps_all_changes_in_order_across_restarts(cluster: Cluster) -> None:
    cluster.request("POST", MAPS, {"metadata": {"name": "m"}, "data": {"at": "0"}})
    for number in range(1, 4):
        cluster.request("PATCH", f"{MAPS}/m", {"data": {"at": str(number)}}, MERGE)
    cluster.stop("etcd", 9)
    cluster.start("etcd")
    cluster.stop("kube-apiserver", 9)
    cluster.start("kube-apiserver")
    cluster.request("DELETE", f"{MAPS}/m")
    changes = [one for one in cluster.history("configmaps") if one.key == "default/m"]
    states = [one.after["data"]["at"] if one.after else None for one in changes]
    assert states == ["0", "1", "2", "3", None]
    assert [one.before["data"]["at"] if one.before else None for one in changes] == [None, "0", "1", "2", "3"]
    revisions = [one.revision for one in changes]
    assert revisions == sorted(set(revisions))
    assert {one.resource for one in cluster.history("configmaps", "minions")} <= {"configmaps", "minions"}


def test_a_kubeconfig_leads_through_a_proxy(cluster: Cluster) -> None:
    with cluster.proxy() as proxy:
        path = cluster.service_account_kubeconfig("default", "default", url=proxy.url)
        version = ("get", "--raw", "/version", f"--kubeconfig={path}")
        assert "gitVersion" in cluster.kubectl(*version)
    assert cluster.kubectl(*version, check=False) == "", "there was a way around the proxy"


def test_pod_of_removed_and_restored_node_can_be_deleted(cluster: Cluster) -> None:
    cluster.add_site("edge")
    spec = {"nodeName": "edge-0", "containers": [{"name": "x", "image": "x"}]}
    cluster.request("POST", PODS, {"metadata": {"name": "p", "finalizers": ["example.com/held"]}, "spec": spec})
    eventually(lambda: cluster.request("GET", f"{PODS}/p")[1]["status"]["phase"] == "Running")
    cluster.remove_site("edge")
    cluster.request("DELETE", f"{PODS}/p")
    cluster.add_site("edge")
    eventually(lambda: cluster.request("GET", f"{PODS}/p")[1]["status"]["phase"] == "Failed")
    cluster.request("PATCH", f"{PODS}/p", {"metadata": {"finalizers": None}}, MERGE)
    eventually(lambda: cluster.request("GET", f"{PODS}/p")[0] == 404)
