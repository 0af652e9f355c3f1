"""History of a cluster as jobs for the simulator, from ``kubectl tranche export`` or ``kubectl get … -o json``.

TrainingJobs are read directly; jobs of other schedulers are reconstructed from their pods
(`tranche.replay.pod_history`); nodes and Sites describe the cluster that they ran on.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import inf, isfinite
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
from pydantic import ValidationError

from tranche.kube.api.core_types import Metadata, NodeObject, Pod
from tranche.kube.api.invalid_object import first_problem
from tranche.kube.api.names import GPU_RESOURCES, GpuResources
from tranche.kube.api.resources import SiteObject, TrainingJob
from tranche.kube.convert.node import node_of
from tranche.kube.convert.site_membership import site_of
from tranche.kube.convert.trainingjob import gpu_seconds_per_batch, to_job, to_site
from tranche.model import Job, Node, Resources, Site
from tranche.replay.pod_history import UNKNOWN_SITE, WORKLOADS, PastRun, PastUse, histories, is_foreign, latest

MAX_BYTES = 2**30
"""Maximum size of an export, which is read into memory as a whole: about 200,000 jobs."""
_KIND = "TrainingJob"
_COMMAND = "kubectl get trainingjobs -A -o json, or kubectl get pods,nodes,jobs -A -o json"
ANNOTATION_EXPORTED = "tranche.dev/exported-at"
"""Annotation of a List: creation time of the export. Running jobs count as running until then."""
ANNOTATION_GPU_RESOURCES = "tranche.dev/gpu-resources"
"""Annotation of a List: resource names of the GPUs, separated by commas."""


class ExportError(ValueError):
    """An export cannot be read. The message is one line that names the file and, if applicable, the item."""


@dataclass(frozen=True, slots=True)
class Export:
    """Contents of an export."""

    jobs: tuple[Job, ...]
    """Jobs by submission time and key; `Job.submitted` is in seconds from the first submission."""
    problems: tuple[str, ...]
    """Items that cannot be simulated: one line each, with file, item and reason."""
    past_runs: Mapping[str, PastRun] = field(default_factory=lambda: MappingProxyType({}))
    """Recorded runs of the jobs that have started, by key, on the same clock."""
    nodes: tuple[Node, ...] = ()
    """Nodes, assumed to be ready and free of other pods; empty if the export contains none."""
    sites: tuple[Site, ...] = ()
    waiting: int = 0
    """Number of jobs of other schedulers that have not started; they are not in `jobs`."""


def scan_export(path: Path, gpu_resources: GpuResources = ()) -> Export:
    """Read an export; items that cannot be simulated become problems.

    A job that succeeded gets its measured time instead of the declared one: `step_seconds` is the GPU-seconds that its
    workers ran (``status.progress.attainedSeconds``), less those of batches that were lost and trained again, over GPUs
    of a worker × mini-batches. The planner counts lost batches at the estimated speed, so if that was too low, the
    result lies between the estimate and the true value. The measured time holds the communication of the places where
    the job ran and the speed of their GPUs: `gradient_bits` becomes 0, so that communication is not counted twice, and
    the declared times on GPU kinds are left out.

    A job that waits, runs, is suspended or failed keeps its prior (model.stepTime or estimatedDuration), because its
    true duration is unknown. Without a prior it is a problem: the hour that the live planner assumes until a chunk has
    been timed would be arbitrary here.

    Args:
        path: A List of TrainingJobs, pods, nodes, Sites and workloads of other kinds, or one TrainingJob.
        gpu_resources: Resource names of the GPUs; empty: those that the List records, else ``nvidia.com/gpu``.

    Raises:
        ExportError: the file cannot be read, or no item is a job for the simulator.
    """
    name = str(path) if str(path).isprintable() else ascii(str(path))
    document = _document(path, name)
    recorded = tuple(resource for resource in _annotation(document, ANNOTATION_GPU_RESOURCES).split(",") if resource)
    builder = _ExportBuilder(name, gpu_resources or recorded or GPU_RESOURCES)
    for index, item in enumerate(_items(document, name)):
        builder.add(item, index)
    return builder.export(_exported_at(document))


def export_of(
    pods: list[Pod],
    nodes: list[NodeObject],
    sites: dict[str, SiteObject],
    at: float,
    gpu_resources: GpuResources = GPU_RESOURCES,
) -> Export | None:
    """Build an export from objects in memory at a time in seconds since the epoch; None if no pod has run."""
    builder = _ExportBuilder("the cluster", gpu_resources)
    builder.pods, builder.nodes, builder.sites = pods, nodes, sites
    try:
        return builder.export(at)
    except ExportError:
        return None


class _ExportBuilder:
    """Builder of an export from single items."""

    def __init__(self, name: str, gpu_resources: GpuResources) -> None:
        self.name = name
        self.gpu_resources = gpu_resources
        self.jobs: dict[str, Job] = {}
        self.past_runs: dict[str, PastRun] = {}
        self.problems: list[str] = []
        self.pods: list[Pod] = []
        self.nodes: list[NodeObject] = []
        self.sites: dict[str, SiteObject] = {}
        self.submissions: dict[str, float] = {}

    def add(self, item: object, index: int) -> None:
        """Add one item; an item that cannot be used becomes a problem."""
        try:
            self._add(item)
        except ValueError as error:
            self.problems.append(f"{self.name}: {_title(item, index)}: {_one_line(error)}")

    def _add(self, item: object) -> None:
        kind = item.get("kind", _KIND) if isinstance(item, Mapping) else None
        if kind == "Pod":
            pod = msgspec.convert(item, Pod)
            if is_foreign(pod, self.gpu_resources):
                self.pods.append(pod)
        elif kind == "Node":
            self.nodes.append(msgspec.convert(item, NodeObject))
        elif kind == "Site":
            site = SiteObject.model_validate(item)
            self.sites[site.metadata.name] = site
        elif kind in WORKLOADS:
            metadata = msgspec.convert(item, _Workload).metadata
            if metadata.creation_timestamp is not None:
                self.submissions[f"{metadata.namespace}/{metadata.name}"] = metadata.creation_timestamp.timestamp()
        else:
            job, past = _job(item, self.gpu_resources)
            if job.key in self.jobs:
                raise ValueError("is a duplicate")
            self.jobs[job.key] = job
            if past is not None:
                self.past_runs[job.key] = past

    def export(self, exported_at: float | None) -> Export:
        """Build the export from all items.

        Raises:
            ExportError: there are no jobs.
        """
        ended = latest(self.pods, (past.completed for past in self.past_runs.values()))
        foreign, waiting = histories(
            self.pods,
            ended if exported_at is None else exported_at,
            self.submissions,
            self.gpu_resources,
            self._sites_of_nodes(),
        )
        for job, past in foreign:
            if job.key in self.jobs:
                self.problems.append(f"{self.name}: {job.key}: is a TrainingJob and a job of other pods: left out")
                continue
            self.jobs[job.key], self.past_runs[job.key] = job, past
        if not self.jobs:
            names = ", ".join(self.gpu_resources)
            hint = (
                self.problems[0].removeprefix(f"{self.name}: ")
                if self.problems
                else f"create it with {_COMMAND}, or name the resource of its GPUs with --gpu-resource"
            )
            raise ExportError(
                f"{self.name}: contains neither a {_KIND} that can be simulated nor pods that requested {names}: {hint}"
            )
        first = min(job.submitted for job in self.jobs.values())
        jobs = (replace(job, submitted=job.submitted - first) for job in self.jobs.values())
        return Export(
            tuple(sorted(jobs, key=lambda job: (job.submitted, job.key))),
            tuple(self.problems),
            {key: past.moved(first) for key, past in self.past_runs.items()},
            tuple(self._nodes()),
            tuple(to_site(site, self.gpu_resources) for site in self.sites.values()),
            waiting,
        )

    def _sites_of_nodes(self) -> dict[str, str]:
        site_names = {node.metadata.name: site_of(node.metadata.labels, self.sites) for node in self.nodes}
        return {node: site for node, site in site_names.items() if site is not None}

    def _nodes(self) -> Iterator[Node]:
        for observed in sorted(self.nodes, key=lambda node: node.metadata.name):
            site = site_of(observed.metadata.labels, self.sites)
            if site is None:
                continue
            try:
                node = node_of(observed, site, Resources(), self.gpu_resources)
            except ValueError as error:
                self.problems.append(f"{self.name}: node {observed.metadata.name}: {_one_line(error)}")
                continue
            yield replace(node, ready=True, unschedulable=False)


class _Workload(msgspec.Struct):
    """A workload object, such as a batch/v1 Job, whose pods trained."""

    metadata: Metadata


def _exported_at(document: Any) -> float | None:
    """Return the creation time of the export; None if it is not recorded."""
    try:
        return datetime.fromisoformat(_annotation(document, ANNOTATION_EXPORTED)).timestamp()
    except (ValueError, OverflowError):
        return None


def _annotation(document: Any, name: str) -> str:
    """Return an annotation of the List; empty if it has none."""
    metadata = document.get("metadata") if isinstance(document, dict) else None
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    text = annotations.get(name) if isinstance(annotations, dict) else None
    return text if isinstance(text, str) else ""


def _items(document: Any, name: str) -> list[Any]:
    if isinstance(document, dict) and document.get("kind") == _KIND:
        return [document]
    items = document.get("items") if isinstance(document, dict) else None
    if not isinstance(items, list):
        raise ExportError(f"{name}: is not a List of objects: create it with {_COMMAND}")
    return items


def _document(path: Path, name: str) -> Any:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ExportError(f"{name}: {error.strerror or error}") from None
    except ValueError as error:  # a name with a NUL
        raise ExportError(f"{name}: {error}") from None
    if len(content) > MAX_BYTES:
        raise ExportError(f"{name}: is larger than {MAX_BYTES / 2**30:g} GiB: export namespace by namespace")
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ExportError(f"{name}: is not valid JSON: {_one_line(error)}: create it with {_COMMAND}") from None


def _job(item: object, gpu_resources: GpuResources) -> tuple[Job, PastRun | None]:
    """Convert one item to a job, with its recorded run if it has ended; a ValueError names the problem."""
    if not isinstance(item, Mapping) or item.get("kind", _KIND) != _KIND:
        kind = item.get("kind") if isinstance(item, Mapping) else None
        found = f"is a {kind[:40]}, not" if isinstance(kind, str) else "is not"
        raise ValueError(f"{found} a {_KIND}: create the export with {_COMMAND}")
    resource = TrainingJob.model_validate(item)
    if resource.metadata.creation_timestamp is None:
        raise ValueError("has no metadata.creationTimestamp, so its submission time is unknown")
    job = replace(to_job(resource, gpu_resources), staged=False)  # staging pods are not simulated
    measured = _measured_step_seconds(resource, job)
    if measured is not None:
        timed = replace(job, step_seconds=measured, step_seconds_by_kind={}, gradient_bits=0.0, suspended=False)
        return timed, _past(resource, job)
    spec = resource.spec
    if not (spec.estimated_duration or (spec.model and spec.model.step_time)):
        phase = resource.status.phase or "not planned yet"
        raise ValueError(
            f"is {phase} and has neither model.stepTime nor estimatedDuration, so its duration is unknown: "
            "add one of them to the export"
        )
    if not 0 < job.step_seconds < inf:
        raise ValueError("has an estimated duration that is not positive and finite: correct it in the export")
    return job, None


def _past(resource: TrainingJob, job: Job) -> PastRun | None:
    """Return times and usage of a TrainingJob that has succeeded; None if its status has no times."""
    status, progress = resource.status, resource.status.progress
    if status.start_time is None or status.completion_time is None or progress is None:
        return None
    return PastRun(
        key=job.key,
        submitted=job.submitted,
        started=status.start_time.timestamp(),
        completed=status.completion_time.timestamp(),
        gpus=job.gpus * job.width,
        gpu_seconds=progress.attained_seconds,
        end="Succeeded",
        uses=tuple(PastUse(use.site, use.gpu_seconds, use.copied_bytes, use.in_vain_bytes) for use in progress.sites)
        or (PastUse(UNKNOWN_SITE, progress.attained_seconds),),
        preemptions=progress.preemptions,
        lost_gpu_seconds=progress.lost_batches * gpu_seconds_per_batch(progress),
        is_foreign=False,
    )


def _measured_step_seconds(resource: TrainingJob, job: Job) -> float | None:
    """Return the measured seconds per mini-batch; None if the job has not succeeded or its time was not recorded."""
    progress = resource.status.progress
    if resource.status.phase != "Succeeded" or progress is None:
        return None
    worked = progress.attained_seconds / max(1, job.gpus)
    if not (isfinite(worked) and worked > 0):
        return None
    lost = progress.lost_batches * job.step_seconds
    if 0 < lost < worked:
        worked -= lost
    return worked / (job.chunks * job.batches_per_chunk_total)


def _title(item: object, index: int) -> str:
    """Return the name of the item in messages: namespace and name, or its number."""
    metadata = item.get("metadata") if isinstance(item, Mapping) else None
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if not isinstance(metadata, Mapping) or not isinstance(name, str):
        return f"items[{index}]"
    text = f"{metadata.get('namespace', '')}/{name}"[:320]
    return text if text.isprintable() else ascii(text)


def _one_line(error: Exception) -> str:
    text = first_problem(error) if isinstance(error, ValidationError) else str(error)
    text = " ".join(text.split())
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= 300 else text[:300] + "..."
