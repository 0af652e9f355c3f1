"""Pods of real nodes: containers that mount this machine's libraries and Python read-only, and run Python programs."""

import sys
from pathlib import Path
from typing import Any

from support.waiting import eventually
from tranche_testcluster import Cluster
from tranche_testcluster.node import PAUSE_IMAGE

PODS = "/api/v1/namespaces/default/pods"
PYTHON = str(Path(sys.base_prefix) / "bin" / "python3")
"""Interpreter in the container; the environment of the tests itself is not mounted."""
FINALIZER = "tests.tranche.dev/kept"
_MOUNTED = {"libraries": "/usr"} | ({} if Path(sys.base_prefix) == Path("/usr") else {"python": sys.base_prefix})
VOLUMES = [{"name": name, "hostPath": {"path": path, "type": "Directory"}} for name, path in _MOUNTED.items()]
"""Volumes of each pod."""
MOUNTS = [{"name": name, "mountPath": path, "readOnly": True} for name, path in _MOUNTED.items()]
"""Mounts of each container."""


def container(program: str = "", name: str = "main", **fields: Any) -> dict[str, Any]:
    """Return a container that runs a Python program, or waits if there is none."""
    command = [PYTHON, "-I", "-S", "-c", program] if program else ["/pause"]
    own = {"name": name, "image": PAUSE_IMAGE, "imagePullPolicy": "Never", "command": command, "volumeMounts": MOUNTS}
    return {**own, "env": [{"name": "LD_LIBRARY_PATH", "value": f"{sys.base_prefix}/lib"}], **fields}


def create_pod(cluster: Cluster, name: str, main: dict[str, Any], node: str = "", **spec: Any) -> None:
    """Create a pod, on this node if one is named; its object outlives its deletion until `remove_pod`."""
    body = {
        "metadata": {"name": name, "finalizers": [FINALIZER]},
        "spec": {
            "containers": [main],
            "volumes": VOLUMES,
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
    eventually(
        lambda: read_pod(cluster, name)["status"]["phase"] in wanted, f"{name} {' or '.join(phases)}", seconds=60
    )
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
