"""Stand-in for the kubelet of one node of a test cluster, with faults that the simulated kubelet does not have.

kwok plays a kubelet that works. The stand-in takes the node's Lease from kwok, renews that Lease (the node stays Ready)
and writes the statuses of the node's pods itself, as the kubelet does.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from tranche_testcluster import Cluster
from tranche_testcluster.annotations import START_SECONDS

Status = dict[str, Any]
Play = Callable[[dict[str, Any]], Status | None]
"""Returns the next status of a pod that is not over, or None to leave it as it is."""

RENEW_SECONDS = 2.0
CRASH_SECONDS = 1.0
"""Time from the start of a container until it fails on a node with a bad GPU."""
PODS = "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
STARTED = "kwok.tranche.dev/started"
IMAGE = "ImagePullBackOff"
NAME = "InvalidImageName"
_MERGE = "application/merge-patch+json"


class Kubelet:
    """Sets the states of a node's pods in the namespace default, from `take` to `release`; call `tend` often."""

    def __init__(self, cluster: Cluster, node: str, play: Play) -> None:
        self._cluster, self._node, self._play = cluster, node, play
        self._renewed = 0.0

    def take(self) -> None:
        """Replace kwok on the node.

        Raises:
            ClusterError: kwok does not let go of the node.
        """
        self._cluster.silence(self._node)
        self._renewed = time.monotonic()

    def tend(self) -> None:
        """Renew the node's Lease and write the changes of its pods' statuses; a missing API server is no error."""
        request = self._cluster.request
        try:
            if time.monotonic() >= self._renewed + RENEW_SECONDS:
                self._renewed = time.monotonic()
                request("PATCH", f"{LEASES}/{self._node}", {"spec": {"renewTime": _now(micro=True)}}, _MERGE)
            status, found = request("GET", f"{PODS}?fieldSelector=spec.nodeName={self._node}")
            for pod in found["items"] if status == 200 else ():
                self._write(pod)
        except OSError:
            return

    def release(self) -> None:
        """Give the node back to kwok."""
        self._cluster.revive(self._node)

    def _write(self, pod: dict[str, Any]) -> None:
        meta, request = pod["metadata"], self._cluster.request
        path = f"{PODS}/{meta['name']}"
        if pod["status"]["phase"] in ("Succeeded", "Failed"):
            if "deletionTimestamp" in meta and meta.get("deletionGracePeriodSeconds"):
                request("DELETE", path, {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}})
            return
        status = self._play(pod)
        if status is not None:
            body = {"metadata": {"resourceVersion": meta["resourceVersion"]}, "status": status}
            request("PATCH", f"{path}/status", body, _MERGE)


def crash(pod: dict[str, Any]) -> Status | None:
    """Start the containers; they exit with 1 soon, those that ran before too."""
    if "deletionTimestamp" in pod["metadata"]:
        return ended(pod, 143)
    if pod["status"]["phase"] == "Pending":
        return running(pod) if _is_due(pod) else None
    started = pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
    age = datetime.now(UTC) - datetime.fromisoformat(started)
    return ended(pod, 1) if age.total_seconds() >= CRASH_SECONDS else None


def hang(pod: dict[str, Any]) -> Status | None:
    """Start the containers; none ends, whatever the grace period."""
    if pod["status"]["phase"] == "Pending" and "deletionTimestamp" not in pod["metadata"] and _is_due(pod):
        return running(pod)
    return None


def _is_due(pod: dict[str, Any]) -> bool:
    """Return whether the containers start by now on a node of kwok; those of a job without an image never do."""
    seconds = float(pod["metadata"].get("annotations", {}).get(START_SECONDS, 0.0))
    bound = next(one for one in pod["status"]["conditions"] if one["type"] == "PodScheduled")["lastTransitionTime"]
    return (datetime.now(UTC) - datetime.fromisoformat(bound)).total_seconds() >= seconds


def refuse(reason: str) -> Play:
    """Refuse pods at admission; those that ran before run on."""

    def play(pod: dict[str, Any]) -> Status | None:
        if pod["status"]["phase"] == "Pending":
            return {"phase": "Failed", "reason": reason, "message": f"Pod was rejected: {reason}", "startTime": _now()}
        return ended(pod, 143) if "deletionTimestamp" in pod["metadata"] else None

    return play


def no_image(pod: dict[str, Any]) -> Status | None:
    """Start no container: the registry does not answer. A name that is not valid is not looked up."""
    if "deletionTimestamp" in pod["metadata"]:
        return ended(pod, 137, "ContainerStatusUnknown") if pod["status"]["phase"] == "Pending" else ended(pod, 143)
    states = [one.get("state", {}) for one in pod["status"].get("containerStatuses", ())]
    reasons = {state["waiting"]["reason"] for state in states if "waiting" in state}
    if pod["status"]["phase"] == "Pending" and not reasons & {IMAGE, NAME}:
        return waiting(pod, IMAGE, "Back-off pulling image: dial tcp: i/o timeout")
    return None


def waiting(pod: dict[str, Any], reason: str, message: str) -> Status:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"startTime": _now(), "containerStatuses": [_container(one, state) for one in pod["spec"]["containers"]]}


def running(pod: dict[str, Any]) -> Status:
    """Status of a running pod, with the condition from which kwok continues when it has the node again."""
    now = _now()
    started = {"type": STARTED, "status": "True", "lastTransitionTime": now, "message": str(round(time.time() * 1000))}
    others = [one for one in pod["status"].get("conditions", ()) if one["type"] not in (STARTED, "Ready")]
    return {
        "phase": "Running",
        "startTime": pod["status"].get("startTime") or now,
        "conditions": [*others, started, {"type": "Ready", "status": "True", "lastTransitionTime": now}],
        "containerStatuses": [
            {**_container(one, {"running": {"startedAt": now}}), "ready": True, "started": True}
            for one in pod["spec"]["containers"]
        ],
    }


def ended(pod: dict[str, Any], code: int, reason: str = "Error") -> Status:
    """Failed; containers that never started have no start time."""
    known = {one["name"]: one.get("state", {}) for one in pod["status"].get("containerStatuses", ())}
    statuses = []
    for container in pod["spec"]["containers"]:
        end: dict[str, Any] = {"exitCode": code, "reason": reason}
        if began := known.get(container["name"], {}).get("running", {}).get("startedAt"):
            end |= {"startedAt": began, "finishedAt": _now()}
        statuses.append(_container(container, {"terminated": end}))
    return {"phase": "Failed", "containerStatuses": statuses}


def _container(container: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    names = {"name": container["name"], "image": container["image"], "imageID": ""}
    return {**names, "ready": False, "started": False, "restartCount": 0, "state": state}


def _now(*, micro: bool = False) -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")
