"""A cluster's history as jobs for the simulator: what ``kubectl get trainingjobs -A -o json`` prints."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite
from pathlib import Path
from typing import Any

import msgspec
from pydantic import ValidationError

from tranche.kube.converts import to_job
from tranche.kube.names import GPU_RESOURCE
from tranche.kube.resources import TrainingJob
from tranche.model import Job

MAX_BYTES = 2**30
"""Largest export that is read, unlike a log at once: some 200,000 jobs."""
_KIND = "TrainingJob"
_COMMAND = "kubectl get trainingjobs -A -o json"


class ExportError(ValueError):
    """An export cannot be read; the text is one line that names the file, and the item if it is about one."""


@dataclass(frozen=True, slots=True)
class Export:
    """What an export holds."""

    jobs: tuple[Job, ...]
    """By submission, then by key; `Job.submitted` counts seconds from the earliest of them."""
    problems: tuple[str, ...]
    """Items that are no job for the simulator: one line each with file, item and reason."""


def read_export(path: Path, *, gpu_resource: str = GPU_RESOURCE) -> list[Job]:
    """Read an export of which every item must be a job for the simulator; `scan_export` says what becomes of each.

    Raises:
        ExportError: one line about the file, or about the first item that is a problem.
    """
    export = scan_export(path, gpu_resource=gpu_resource)
    if export.problems:
        more = f" (and {len(export.problems) - 1:,} more)" if len(export.problems) > 1 else ""
        raise ExportError(f"{export.problems[0]}{more}")
    return list(export.jobs)


def scan_export(path: Path, *, gpu_resource: str = GPU_RESOURCE) -> Export:
    """Read an export; items that cannot be simulated become problems.

    A job that succeeded gets its measured time instead of what its author believed: `step_seconds` is the GPU-seconds
    that its workers ran (``status.progress.attainedSeconds``), less those of batches that were lost and trained again,
    over GPUs of a worker × mini-batches. Lost batches are counted by the planner at the believed speed, so if that was
    too low the result lies between the belief and the truth. The measured time holds the communication of the places
    where the job ran and the speed of their GPUs: `gradient_bits` becomes 0, lest communication be counted twice.

    A job that waits, runs, is suspended or failed keeps its prior (model.stepTime or estimatedDuration): what it would
    have taken is not known. Without a prior it is a problem: an hour, which the live planner assumes until a chunk has
    been timed, would be an invention here.

    Args:
        path: A List of TrainingJobs, or one TrainingJob.
        gpu_resource: Name of the GPUs' resource.

    Raises:
        ExportError: one line, if the file as a whole cannot be read or no item is a job for the simulator.
    """
    name = str(path) if str(path).isprintable() else ascii(str(path))
    jobs: list[Job] = []
    problems: list[str] = []
    keys: set[str] = set()
    for index, item in enumerate(_items(path, name)):
        try:
            job = _job(item, gpu_resource)
            if job.key in keys:
                raise ValueError("is there twice")
        except ValueError as error:
            problems.append(f"{name}: {_title(item, index)}: {_one_line(error)}")
        else:
            keys.add(job.key)
            jobs.append(job)
    if not jobs:
        more = f": {problems[0]}" if problems else f": make it with {_COMMAND}"
        raise ExportError(f"{name}: holds no {_KIND} that can be simulated{more}")
    first = min(job.submitted for job in jobs)
    moved = (replace(job, submitted=job.submitted - first) for job in jobs)
    return Export(tuple(sorted(moved, key=lambda job: (job.submitted, job.key))), tuple(problems))


def _items(path: Path, name: str) -> list[Any]:
    document = _document(path, name)
    if isinstance(document, dict) and document.get("kind") == _KIND:
        return [document]
    items = document.get("items") if isinstance(document, dict) else None
    if not isinstance(items, list):
        raise ExportError(f"{name}: is no List of objects: make it with {_COMMAND}")
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
        raise ExportError(f"{name}: is no JSON: {_one_line(error)}: make it with {_COMMAND}") from None


def _job(item: object, gpu_resource: str) -> Job:
    """One item as a job; a ValueError says why it is none."""
    if not isinstance(item, Mapping) or item.get("kind", _KIND) != _KIND:
        kind = item.get("kind") if isinstance(item, Mapping) else type(item).__name__
        raise ValueError(f"is a {str(kind)[:40]}, not a {_KIND}: make the export with {_COMMAND}")
    resource = TrainingJob.model_validate(item)
    if resource.metadata.creation_timestamp is None:
        raise ValueError("has no metadata.creationTimestamp, so nobody knows when it was submitted")
    job = replace(to_job(resource, gpu_resource), staged=False)  # nothing simulates its staging pods
    measured = _measured_step_seconds(resource, job)
    if measured is not None:
        return replace(job, step_seconds=measured, gradient_bits=0.0, suspended=False)
    spec = resource.spec
    if not (spec.estimated_duration or (spec.model and spec.model.step_time)):
        phase = resource.status.phase or "not planned yet"
        raise ValueError(
            f"is {phase} and says neither model.stepTime nor estimatedDuration, so nobody knows how long it takes: "
            "add one of them to the export"
        )
    if not 0 < job.step_seconds < inf:
        raise ValueError("has an estimate of no time at all, or of no finite one: correct it in the export")
    return job


def _measured_step_seconds(resource: TrainingJob, job: Job) -> float | None:
    """Seconds of one mini-batch as they were; None if the job has not succeeded or its time was not recorded."""
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
    """How a person finds the item: namespace and name, or its number."""
    metadata = item.get("metadata") if isinstance(item, Mapping) else None
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if not isinstance(metadata, Mapping) or not isinstance(name, str):
        return f"items[{index}]"
    text = f"{metadata.get('namespace', '')}/{name}"[:320]
    return text if text.isprintable() else ascii(text)


def _one_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        text = f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    else:
        text = str(error)
    text = " ".join(text.split())
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= 300 else text[:300] + "..."
