"""Pods, nodes and Sites as a watch delivers them, for tests of the planner's events."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from tranche.kube.api.core_types import NodeObject, Pod
from tranche.kube.api.resources import SiteObject

NOW = 1_800_000_000.0
GPU = "nvidia.com/gpu"


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def pod(name: str = "a-worker-0-3", role: str = "worker", ours: bool = True, **parts: Any) -> Pod:
    labels = {"tranche.dev/job": "a", "tranche.dev/role": role, "tranche.dev/index": "0", "tranche.dev/attempt": "3"}
    owner = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "uid": "uid-a", "controller": True}
    metadata: dict[str, Any] = {"name": name, "namespace": "default", "uid": "u"}
    metadata |= {"labels": labels, "ownerReferences": [owner]} if ours else {}
    requests = {"cpu": "2", "memory": "1Gi", GPU: "1"}
    spec = {"containers": [{"name": "t", "resources": {"requests": requests}}], **parts.pop("spec", {})}
    return msgspec.convert(
        {"metadata": {**metadata, **parts.pop("metadata", {})}, "spec": spec, "status": parts}, Pod, strict=False
    )


def running(at: float = NOW) -> dict[str, Any]:
    return {"phase": "Running", "containerStatuses": [{"name": "t", "state": {"running": {"startedAt": stamp(at)}}}]}


MESSAGE = "0/1 nodes are available: 1 Insufficient rdma/hca."
UNSCHEDULABLE: dict[str, Any] = {
    "phase": "Pending",
    "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": MESSAGE}],
}
BOUND = pod(spec={"nodeName": "n1"}, phase="Pending")
RUNNING = pod(spec={"nodeName": "n1"}, **running())
DONE = pod(spec={"nodeName": "n1"}, phase="Succeeded")


def observed(name: str, zone: str) -> NodeObject:
    labels = {"topology.kubernetes.io/zone": zone}
    status = {
        "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110", GPU: "4"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return msgspec.convert({"metadata": {"name": name, "labels": labels}, "status": status}, NodeObject)


def site(name: str) -> SiteObject:
    spec = {"nodeSelector": {"topology.kubernetes.io/zone": name}}
    return SiteObject.model_validate({"metadata": {"name": name}, "spec": spec})
