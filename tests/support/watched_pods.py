"""Pods, nodes and Sites as a watch delivers them, for tests of the planner's events."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import Any

import msgspec

from tranche.kube.api.core_types import NodeObject, Pod
from tranche.kube.api.resources import SiteObject
from tranche.live.pods.pod_timeouts import Timeouts
from tranche.live.pods.scheduler_watch import SchedulerWatch
from tranche.live.pods.unreachable_nodes import UnreachableNodes
from tranche.live.settings import ControllerSettings
from tranche.planner import Planner

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


@dataclass(frozen=True)
class ServerPods:
    """Answers of the API server about pods; by default it has those of the watch."""

    unchanged: Callable[[Pod], bool] = lambda pod: True

    def confirmed_absent(self, namespace: str, name: str, job_uid: str) -> bool:
        return True

    def confirmed_unchanged(self, pod: Pod) -> bool:
        return self.unchanged(pod)


def limits(**seconds: float) -> ControllerSettings:
    """Return limits of 5 s for missing pods and 30 s for unschedulable ones; a container may start at any time."""
    known: dict[str, Any] = {"missing_pod_seconds": 5.0, "unschedulable_seconds": 30.0}
    known |= dict.fromkeys(("start_error_seconds", "image_pull_seconds", "pod_start_seconds"), inf)
    return ControllerSettings(**(known | seconds))


def timeouts_of(
    planner: Planner,
    pods: Mapping[str, Pod],
    unreachable: UnreachableNodes | None = None,
    settings: ControllerSettings | None = None,
    *,
    scheduler: SchedulerWatch | None = None,
    checks: ServerPods | None = None,
    may_be_created: Callable[[str, int], bool] = lambda job, attempt: False,
) -> Timeouts:
    """Return the timeouts of a planner's pods; without a `scheduler`, kube-scheduler is never silent."""
    return Timeouts(
        settings or limits(),
        planner.cluster,
        pods,
        unreachable or UnreachableNodes({}, {}),
        scheduler or SchedulerWatch(inf, inf),
        checks or ServerPods(),
        unpublished=(),
        may_be_created=may_be_created,
    )
