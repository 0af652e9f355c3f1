"""Pods of real nodes whose containers run Python programs."""

from collections.abc import Mapping
from typing import Any

from support.real_lab import worker_container
from support.waiting import eventually
from tranche_testcluster import Cluster

PODS = "/api/v1/namespaces/default/pods"
FINALIZER = "tests.tranche.dev/kept"


def container(program: str = "import signal; signal.pause()", **fields: Any) -> dict[str, Any]:
    """Return a container that runs a Python program; the default one waits."""
    return {**worker_container(["python", "-c", program]), **fields}


def create_pod(
    cluster: Cluster,
    name: str,
    main: dict[str, Any],
    node: str = "",
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> None:
    """Create a pod, on this node if one is named; its object outlives its deletion until `remove_pod`."""
    body = {
        "metadata": {"name": name, "finalizers": [FINALIZER], "labels": dict(labels or {})},
        "spec": {
            "containers": [main],
            "restartPolicy": "Never",
            "dnsPolicy": "Default",
            **({"nodeName": node} if node else {}),
            **spec,
        },
    }
    status, answer = cluster.request("POST", PODS, body)
    assert status == 201, answer


def read_pod(cluster: Cluster, name: str) -> dict[str, Any]:
    """Return the pod."""
    status, pod = cluster.request("GET", f"{PODS}/{name}")
    assert status == 200, pod
    return dict(pod)


def await_phase(cluster: Cluster, name: str, *phases: str) -> dict[str, Any]:
    """Wait until a pod is in one of these phases, and return it."""
    wanted = {*phases, "Failed", "Succeeded"}
    eventually(lambda: read_pod(cluster, name)["status"]["phase"] in wanted, f"{name} {' or '.join(phases)}")
    pod = read_pod(cluster, name)
    assert pod["status"]["phase"] in phases, pod["status"]
    return pod


def await_waiting(cluster: Cluster, name: str, *reasons: str) -> None:
    """Wait until the container of a pod waits with one of these reasons."""

    def reason() -> str:
        states = read_pod(cluster, name)["status"].get("containerStatuses", [{}])
        return str(states[0].get("state", {}).get("waiting", {}).get("reason", ""))

    eventually(lambda: reason() in reasons, f"{name} waits with {' or '.join(reasons)}")


def end_of(pod: dict[str, Any]) -> dict[str, Any]:
    """Return how the container of a pod ended: exit code, reason and message."""
    return dict(pod["status"]["containerStatuses"][0]["state"]["terminated"])


def evict(cluster: Cluster, name: str, grace_seconds: int) -> dict[str, Any]:
    """Evict a pod, wait until its container has ended, and return the pod."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name},
        "deleteOptions": {"gracePeriodSeconds": grace_seconds},
    }
    status, answer = cluster.request("POST", f"{PODS}/{name}/eviction", body)
    assert status == 201, answer
    return await_phase(cluster, name, "Failed", "Succeeded")


def remove_pod(cluster: Cluster, name: str) -> None:
    """Delete a pod and its finalizer, and wait until it is gone."""
    cluster.request("DELETE", f"{PODS}/{name}?gracePeriodSeconds=1")
    patch = {"metadata": {"finalizers": None}}
    cluster.request("PATCH", f"{PODS}/{name}", patch, "application/merge-patch+json")
    eventually(lambda: cluster.request("GET", f"{PODS}/{name}")[0] == 404, f"{name} is gone")
