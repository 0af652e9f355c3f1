"""Training under any scheduler, reconstructed from pods: jobs for the simulator and their recorded runs."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import inf, nan
from types import MappingProxyType
from typing import Any, Literal

from tranche.kube.api.core_types import Pod
from tranche.kube.api.names import GPU_RESOURCES, LABEL_JOB, GpuResources
from tranche.kube.convert.pod_shape import pod_constraints, pod_requests
from tranche.kube.convert.training_container import training_state
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
"""Labels that pods of one training job share, the most specific first: Kubeflow's operator, Trainer (as
JobSets), Volcano, KubeRay, coscheduling, Kubernetes' own Jobs."""
WORKLOADS = frozenset(
    {"Job", "JobSet", "TrainJob", "PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "RayJob"}
)
"""Kinds whose creation time is the submission time of the pods that they own."""
SERVING = frozenset({"ReplicaSet", "StatefulSet", "DaemonSet"})
"""Owners whose pods are replicas of a service; each pod counts as a separate job."""
UNKNOWN_SITE = "(unknown)"
"""Site of pods whose nodes no longer exist or belong to no Site; no object of Kubernetes can have this name."""
End = Literal["Succeeded", "Failed", "Running"]


@dataclass(frozen=True, slots=True)
class PastUse:
    """Use of one site by a job."""

    site: str
    gpu_seconds: float
    copied_bytes: float = nan
    """Bytes of uploads to the site; NaN: unknown, because a history of pods does not record them."""
    in_vain_bytes: float = nan


@dataclass(frozen=True, slots=True)
class PastRun:
    """Recorded run of a job; times in seconds since the epoch."""

    key: str
    submitted: float
    started: float
    """Start of its first pod."""
    completed: float
    """End of its last pod; for a running job, the end of the history."""
    gpus: int
    """Maximum number of GPUs that its pods held at the same time."""
    gpu_seconds: float
    """GPU-seconds that its pods held in total."""
    end: End
    uses: tuple[PastUse, ...] = ()
    """By site."""
    preemptions: int = 0
    """Number of its workers that were preempted, as far as it is known: jobs of other schedulers do not record it."""
    lost_gpu_seconds: float = 0.0
    """GPU-seconds of the training that was lost by preemptions and failures, as far as it is known."""

    def moved(self, first: float) -> "PastRun":
        """Return the run on a clock that starts at `first`."""
        times = {name: getattr(self, name) - first for name in ("submitted", "started", "completed")}
        return replace(self, **times)


@dataclass(slots=True)
class _Group:
    key: str
    pods: list[Pod] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Stay:
    """Time of one pod on its GPUs."""

    node: str
    start: float
    end: float
    gpus: int
    over: bool
    failed: bool


def is_foreign(pod: Pod, gpu_resources: GpuResources = GPU_RESOURCES) -> bool:
    """Whether the pod trains under another scheduler: it requests GPUs and belongs to no TrainingJob."""
    return LABEL_JOB not in pod.metadata.labels and pod_requests(pod, gpu_resources).gpus > 0


def group_key(pod: Pod) -> str:
    """Return ``namespace/name`` of the pod's job: of its group, its owner, or the pod itself."""
    metadata = pod.metadata
    name = next((metadata.labels[label] for label in GROUP_LABELS if label in metadata.labels), "")
    if not name:
        owner = next((one for one in metadata.owner_references if one.controller), None)
        name = f"{owner.kind.lower()}-{owner.uid}" if owner and owner.kind not in SERVING else metadata.name
    return f"{metadata.namespace}/{name}"


def histories(
    pods: Iterable[Pod],
    until: float,
    submissions: Mapping[str, float],
    gpu_resources: GpuResources = GPU_RESOURCES,
    sites: Mapping[str, str] = MappingProxyType({}),
) -> tuple[list[tuple[Job, PastRun]], int]:
    """Return the jobs that have run, by key, and the number of jobs that have not begun, whose durations are unknown.

    A job becomes a gang with as many members as pods ran at the same time. The duration of the members gives the job
    the same GPU time as its pods held. The CPU and memory requests are those of the largest pod.

    Args:
        pods: Pods of other schedulers (`is_foreign`).
        until: End of the history, which running pods have reached, in seconds since the epoch.
        submissions: Submission times by job key; default: the creation of the first pod.
        gpu_resources: Resource names of the GPUs.
        sites: The site of each node that is known.
    """
    groups: dict[str, _Group] = {}
    for pod in pods:
        key = group_key(pod)
        groups.setdefault(key, _Group(key)).pods.append(pod)
    found: list[tuple[Job, PastRun]] = []
    waiting = 0
    for key in sorted(groups):
        group = groups[key]
        stays = [stay for pod in group.pods if (stay := _stay(pod, until, gpu_resources)) is not None]
        if stays:
            found.append(_history(group, stays, submissions.get(key), gpu_resources, sites))
        else:
            waiting += 1
    return found, waiting


def _stay(pod: Pod, until: float, gpu_resources: GpuResources) -> _Stay | None:
    """The time of the pod on its GPUs; None if it has never run."""
    state = training_state(pod)
    began = state.terminated.started_at if state.terminated else state.running.started_at if state.running else None
    over = pod.status.phase in ("Succeeded", "Failed")
    ended = _last_end(pod) if over else None
    if began is None or (over and ended is None):
        return None
    end = ended.timestamp() if ended else until
    return _Stay(
        pod.spec.node_name,
        began.timestamp(),
        max(end, began.timestamp()),
        pod_requests(pod, gpu_resources).gpus,
        over,
        pod.status.phase == "Failed",
    )


def _last_end(pod: Pod) -> datetime | None:
    ends = [one.state.terminated.finished_at for one in pod.status.container_statuses if one.state.terminated]
    return max((end for end in ends if end is not None), default=None)


def _history(
    group: _Group, stays: list[_Stay], submitted: float | None, gpu_resources: GpuResources, sites: Mapping[str, str]
) -> tuple[Job, PastRun]:
    created = [pod.metadata.creation_timestamp for pod in group.pods if pod.metadata.creation_timestamp]
    first, last = min(stay.start for stay in stays), max(stay.end for stay in stays)
    arrival = min([first, *(at.timestamp() for at in created)]) if submitted is None else min(first, submitted)
    largest = max(group.pods, key=lambda pod: pod_requests(pod, gpu_resources).gpus)
    members = _most(stays, lambda stay: 1)
    gpu_seconds = sum(stay.gpus * (stay.end - stay.start) for stay in stays)
    request = pod_requests(largest, gpu_resources)
    ended = max(stays, key=lambda stay: stay.end)
    end: End = "Running" if not all(stay.over for stay in stays) else "Failed" if ended.failed else "Succeeded"
    job = Job(
        key=group.key,
        uid=group.key,
        submitted=arrival,
        worker=PodShape(request, pod_constraints(largest)),
        chunks=members,
        max_workers=members,
        is_gang=True,
        step_seconds=max(1.0, gpu_seconds / (request.gpus * members)),
    )
    most, uses = _most(stays, lambda stay: stay.gpus), tuple(_uses(stays, sites))
    return job, PastRun(group.key, arrival, first, last, most, gpu_seconds, end, uses)


def _uses(stays: list[_Stay], sites: Mapping[str, str]) -> Iterator[PastUse]:
    held: dict[str, float] = {}
    for stay in stays:
        site = sites.get(stay.node, UNKNOWN_SITE)
        held[site] = held.get(site, 0.0) + stay.gpus * (stay.end - stay.start)
    for site, seconds in sorted(held.items()):
        yield PastUse(site, seconds)


def _most(stays: list[_Stay], amount: Any) -> int:
    """Maximum sum at any time; at equal times, ends count before starts."""
    changes = [(stay.start, 1, amount(stay)) for stay in stays if stay.end > stay.start]
    changes += [(stay.end, 0, -amount(stay)) for stay in stays if stay.end > stay.start]
    most = now = 0
    for _, _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most or max(amount(stay) for stay in stays)


def latest(pods: Iterable[Pod], known: Iterable[float] = ()) -> float:
    """Return the last time in the history; -inf if it is empty."""
    moments = list(known)
    for pod in pods:
        state = training_state(pod)
        times = [pod.metadata.creation_timestamp, _last_end(pod), state.running.started_at if state.running else None]
        moments += [at.timestamp() for at in times if at is not None]
    return max(moments, default=-inf)
