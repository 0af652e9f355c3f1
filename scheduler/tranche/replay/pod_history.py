"""Training under any scheduler, reconstructed from pods: jobs for the simulator and their recorded runs."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import inf, nan
from types import MappingProxyType
from typing import Literal

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
    """GPU-seconds that its pods held in total; of a TrainingJob, those in which they trained."""
    end: End
    uses: tuple[PastUse, ...] = ()
    """By site."""
    preemptions: int = 0
    """Number of its workers that were preempted, as far as it is known: jobs of other schedulers do not record it."""
    lost_gpu_seconds: float = 0.0
    """GPU-seconds of the training that was lost by preemptions and failures, as far as it is known."""
    is_foreign: bool = True
    """Whether another scheduler ran it."""

    def moved(self, first: float) -> "PastRun":
        """Return the run on a clock that starts at `first`."""
        times = {name: getattr(self, name) - first for name in ("submitted", "started", "completed")}
        return replace(self, **times)


@dataclass(slots=True)
class _Group:
    key: str
    pods: list[Pod] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _PodRun:
    """Time of one pod on its GPUs."""

    node: str
    start: float
    end: float
    gpus: int
    over: bool
    failed: bool


def is_foreign(pod: Pod, gpu_resources: GpuResources = GPU_RESOURCES) -> bool:
    """Return whether the pod trains under another scheduler: it requests GPUs and belongs to no TrainingJob."""
    return LABEL_JOB not in pod.metadata.labels and pod_requests(pod, gpu_resources).gpus > 0


def group_key(pod: Pod) -> str:
    """Return ``namespace/name`` of the pod's job: of its group, its owner, or the pod itself."""
    metadata = pod.metadata
    name = next((metadata.labels[label] for label in GROUP_LABELS if label in metadata.labels), "")
    if not name:
        owner = next((reference for reference in metadata.owner_references if reference.controller), None)
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
    runs: list[tuple[Job, PastRun]] = []
    waiting = 0
    for key in sorted(groups):
        group = groups[key]
        pod_runs = [pod_run for pod in group.pods if (pod_run := _run_of(pod, until, gpu_resources)) is not None]
        if pod_runs:
            runs.append(_history(group, pod_runs, submissions.get(key), gpu_resources, sites))
        else:
            waiting += 1
    return runs, waiting


def _run_of(pod: Pod, until: float, gpu_resources: GpuResources) -> _PodRun | None:
    """Return the time of the pod on its GPUs; None if it has never run."""
    state = training_state(pod)
    began = state.terminated.started_at if state.terminated else state.running.started_at if state.running else None
    over = pod.status.phase in ("Succeeded", "Failed")
    ended = _last_end(pod) if over else None
    if began is None or (over and ended is None):
        return None
    end = ended.timestamp() if ended else until
    return _PodRun(
        pod.spec.node_name,
        began.timestamp(),
        max(end, began.timestamp()),
        pod_requests(pod, gpu_resources).gpus,
        over,
        pod.status.phase == "Failed",
    )


def _last_end(pod: Pod) -> datetime | None:
    ends = [
        container.state.terminated.finished_at
        for container in pod.status.container_statuses
        if container.state.terminated
    ]
    return max((end for end in ends if end is not None), default=None)


def _history(
    group: _Group,
    pod_runs: list[_PodRun],
    submitted: float | None,
    gpu_resources: GpuResources,
    sites: Mapping[str, str],
) -> tuple[Job, PastRun]:
    created = [pod.metadata.creation_timestamp for pod in group.pods if pod.metadata.creation_timestamp]
    first, last = min(pod_run.start for pod_run in pod_runs), max(pod_run.end for pod_run in pod_runs)
    arrival = min([first, *(at.timestamp() for at in created)]) if submitted is None else min(first, submitted)
    largest = max(group.pods, key=lambda pod: pod_requests(pod, gpu_resources).gpus)
    members = _largest_sum(pod_runs, lambda pod_run: 1)
    gpu_seconds = sum(pod_run.gpus * (pod_run.end - pod_run.start) for pod_run in pod_runs)
    request = pod_requests(largest, gpu_resources)
    ended = max(pod_runs, key=lambda pod_run: pod_run.end)
    end: End = "Running" if not all(pod_run.over for pod_run in pod_runs) else "Failed" if ended.failed else "Succeeded"
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
    max_gpus, uses = _largest_sum(pod_runs, lambda pod_run: pod_run.gpus), tuple(_uses(pod_runs, sites))
    return job, PastRun(group.key, arrival, first, last, max_gpus, gpu_seconds, end, uses)


def _uses(pod_runs: list[_PodRun], sites: Mapping[str, str]) -> Iterator[PastUse]:
    gpu_seconds: dict[str, float] = {}
    for pod_run in pod_runs:
        site = sites.get(pod_run.node, UNKNOWN_SITE)
        gpu_seconds[site] = gpu_seconds.get(site, 0.0) + pod_run.gpus * (pod_run.end - pod_run.start)
    for site, seconds in sorted(gpu_seconds.items()):
        yield PastUse(site, seconds)


def _largest_sum(pod_runs: list[_PodRun], amount: Callable[[_PodRun], int]) -> int:
    """Return the maximum of the summed amounts at any time; at equal times, ends count before starts."""
    changes = [(pod_run.start, 1, amount(pod_run)) for pod_run in pod_runs if pod_run.end > pod_run.start]
    changes += [(pod_run.end, 0, -amount(pod_run)) for pod_run in pod_runs if pod_run.end > pod_run.start]
    largest = total = 0
    for _, _, change in sorted(changes):
        total += change
        largest = max(largest, total)
    return largest or max(amount(pod_run) for pod_run in pod_runs)


def latest(pods: Iterable[Pod], times_known: Iterable[float] = ()) -> float:
    """Return the last time in the history; -inf if it is empty."""
    moments = list(times_known)
    for pod in pods:
        state = training_state(pod)
        times = [pod.metadata.creation_timestamp, _last_end(pod), state.running.started_at if state.running else None]
        moments += [at.timestamp() for at in times if at is not None]
    return max(moments, default=-inf)
