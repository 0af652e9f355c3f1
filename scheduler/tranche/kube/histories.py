"""Training that ran under any scheduler, put together from its pods: jobs for the simulator, and how they fared."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import inf
from typing import Any, Literal

from tranche.kube.names import GPU_RESOURCE, LABEL_JOB
from tranche.kube.objects import pod_constraints, pod_requests, trainer
from tranche.kube.structs import Pod
from tranche.model import Job, PodShape

GROUP_LABELS = (
    "training.kubeflow.org/job-name",
    "jobset.sigs.k8s.io/jobset-name",
    "volcano.sh/job-name",
    "ray.io/cluster",
    "scheduling.x-k8s.io/pod-group",
    "batch.kubernetes.io/job-name",
    "job-name",
)
"""Labels by which pods of one training job know each other, the most telling first: Kubeflow's operator, Trainer (as
JobSets), Volcano, KubeRay, coscheduling, Kubernetes' own Jobs."""
WORKLOADS = frozenset(
    {"Job", "JobSet", "TrainJob", "PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "RayJob"}
)
"""Kinds whose creation is the submission of the pods that are named after them."""
SERVING = frozenset({"ReplicaSet", "StatefulSet", "DaemonSet"})
"""Owners whose pods are replicas of a service: each a job of its own."""
End = Literal["Succeeded", "Failed", "Running"]


@dataclass(frozen=True, slots=True)
class PastRun:
    """How a job really fared; seconds since the epoch."""

    key: str
    submitted: float
    started: float
    """When its first pod ran."""
    completed: float
    """When its last pod had ended; of one that still runs: when the history ends."""
    gpus: int
    """That its pods held at most together."""
    gpu_seconds: float
    """That they held in all."""
    end: End

    def moved(self, first: float) -> "PastRun":
        """The same on a clock that begins at `first`."""
        times = {name: getattr(self, name) - first for name in ("submitted", "started", "completed")}
        return replace(self, **times)


@dataclass(slots=True)
class _Group:
    key: str
    pods: list[Pod] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Stay:
    """One pod on its GPUs."""

    start: float
    end: float
    gpus: int
    over: bool
    failed: bool


def is_foreign(pod: Pod, gpu_resource: str = GPU_RESOURCE) -> bool:
    """Whether the pod trains under another scheduler: it asks for GPUs and belongs to no TrainingJob."""
    return LABEL_JOB not in pod.metadata.labels and pod_requests(pod, gpu_resource).gpus > 0


def group_key(pod: Pod) -> str:
    """``namespace/name`` of the job that the pod belongs to: that of its group, its owner, or its own."""
    metadata = pod.metadata
    name = next((metadata.labels[label] for label in GROUP_LABELS if label in metadata.labels), "")
    if not name:
        owner = next((one for one in metadata.owner_references if one.controller), None)
        name = f"{owner.kind.lower()}-{owner.uid}" if owner and owner.kind not in SERVING else metadata.name
    return f"{metadata.namespace}/{name}"


def histories(
    pods: Iterable[Pod], until: float, submissions: Mapping[str, float], gpu_resource: str = GPU_RESOURCE
) -> tuple[list[tuple[Job, PastRun]], int]:
    """Jobs that have run, by key, and how many have not begun: of those nobody knows how long they take.

    A job is a gang of as many members as its pods ran at the same time; the members take so long that the job needs
    the GPU time that its pods held. What they asked of CPU and memory is the largest pod's.

    Args:
        pods: That train under other schedulers (`is_foreign`).
        until: When the history ends: what runs has run until then.
        submissions: When jobs were handed in, by key; else their earliest pod's creation counts.
        gpu_resource: Name of the GPUs' resource.
    """
    groups: dict[str, _Group] = {}
    for pod in pods:
        key = group_key(pod)
        groups.setdefault(key, _Group(key)).pods.append(pod)
    found: list[tuple[Job, PastRun]] = []
    waiting = 0
    for key in sorted(groups):
        group = groups[key]
        stays = [stay for pod in group.pods if (stay := _stay(pod, until, gpu_resource)) is not None]
        if stays:
            found.append(_history(group, stays, submissions.get(key), gpu_resource))
        else:
            waiting += 1
    return found, waiting


def _stay(pod: Pod, until: float, gpu_resource: str) -> _Stay | None:
    """None if the pod has never run."""
    state = trainer(pod)
    began = state.terminated.started_at if state.terminated else state.running.started_at if state.running else None
    over = pod.status.phase in ("Succeeded", "Failed")
    ended = _last_end(pod) if over else None
    if began is None or (over and ended is None):
        return None
    end = ended.timestamp() if ended else until
    return _Stay(
        began.timestamp(),
        max(end, began.timestamp()),
        pod_requests(pod, gpu_resource).gpus,
        over,
        pod.status.phase == "Failed",
    )


def _last_end(pod: Pod) -> datetime | None:
    ends = [one.state.terminated.finished_at for one in pod.status.container_statuses if one.state.terminated]
    return max((end for end in ends if end is not None), default=None)


def _history(group: _Group, stays: list[_Stay], submitted: float | None, gpu_resource: str) -> tuple[Job, PastRun]:
    created = [pod.metadata.creation_timestamp for pod in group.pods if pod.metadata.creation_timestamp]
    first, last = min(stay.start for stay in stays), max(stay.end for stay in stays)
    arrival = min([first, *(at.timestamp() for at in created)]) if submitted is None else min(first, submitted)
    largest = max(group.pods, key=lambda pod: pod_requests(pod, gpu_resource).gpus)
    members = _most(stays, lambda stay: 1)
    gpu_seconds = sum(stay.gpus * (stay.end - stay.start) for stay in stays)
    request = pod_requests(largest, gpu_resource)
    ended = max(stays, key=lambda stay: stay.end)
    end: End = "Running" if not all(stay.over for stay in stays) else "Failed" if ended.failed else "Succeeded"
    job = Job(
        key=group.key,
        uid=group.key,
        submitted=arrival,
        worker=PodShape(request, pod_constraints(largest)),
        chunks=members,
        max_workers=members,
        min_workers=members,
        rigid=True,
        step_seconds=max(1.0, gpu_seconds / (request.gpus * members)),
    )
    past = PastRun(group.key, arrival, first, last, _most(stays, lambda stay: stay.gpus), gpu_seconds, end)
    return job, past


def _most(stays: list[_Stay], amount: Any) -> int:
    """The largest sum at any time; who ends makes room before who begins."""
    changes = [(stay.start, 1, amount(stay)) for stay in stays if stay.end > stay.start]
    changes += [(stay.end, 0, -amount(stay)) for stay in stays if stay.end > stay.start]
    most = now = 0
    for _, _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most or max(amount(stay) for stay in stays)


def latest(pods: Iterable[Pod], known: Iterable[float] = ()) -> float:
    """The last moment that anything in the history tells of; -inf of an empty one."""
    moments = list(known)
    for pod in pods:
        state = trainer(pod)
        times = [pod.metadata.creation_timestamp, _last_end(pod), state.running.started_at if state.running else None]
        moments += [at.timestamp() for at in times if at is not None]
    return max(moments, default=-inf)
