"""A real kube-scheduler that leaves binding to our extender."""

from collections.abc import Iterator

import httpx2
import pytest

from support.live_extender import PROFILE, LiveExtender
from support.waiting import eventually
from tranche_testcluster import Cluster

NODE_SITE = "binds"


@pytest.fixture(scope="module")
def extender(cluster: Cluster) -> Iterator[LiveExtender]:
    """With the rights of manifests/rbac.yaml."""
    kubeconfig = cluster.service_account_kubeconfig("tranche-system", "tranche-scheduler")
    with LiveExtender(str(kubeconfig), bind=True) as made:
        cluster.start_scheduler(made.scheduler_config(), name=PROFILE)
        yield made
        cluster.stop(PROFILE)


def test_extender_bind_binds_pods_and_repeated_bind_succeeds(
    cluster: Cluster, extender: LiveExtender, namespace: str
) -> None:
    (node,) = cluster.add_site(NODE_SITE, nodes=1, gpus=1)
    path = f"/api/v1/namespaces/{namespace}/pods"
    for number in range(5):
        spec = {"schedulerName": PROFILE, "containers": [{"name": "main", "image": "x"}]}
        assert cluster.request("POST", path, {"metadata": {"name": f"p{number}"}, "spec": spec})[0] == 201
    cluster.kubectl("wait", "-n", namespace, "pod", "--all", "--for=condition=PodScheduled", "--timeout=180s")
    pods = cluster.request("GET", path)[1]["items"]
    assert {pod["spec"]["nodeName"] for pod in pods} == {node}
    eventually(lambda: extender.calls("bind") >= 5, "the answers are counted")  # after a binding shows in the pod

    def bind(pod: dict[str, dict[str, str]], where: str) -> str:
        meta = pod["metadata"]
        body = {"PodName": meta["name"], "PodNamespace": namespace, "PodUID": meta["uid"], "Node": where}
        reply: httpx2.Response = extender.client.post("/bind", json=body)
        assert reply.status_code == 200
        return str(reply.json()["Error"])

    assert bind(pods[0], node) == ""
    assert "already assigned" in bind(pods[0], "elsewhere")
    assert "UID" in bind({"metadata": {**pods[0]["metadata"], "uid": "another"}}, node)
