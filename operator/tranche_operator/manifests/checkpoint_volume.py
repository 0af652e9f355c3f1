"""Mounts of the job's checkpoint volume: a directory for each job, named by its name and UID.

A volume may outlive its jobs and serve several of them, and the attempts of each job start at 1. In a shared directory,
a job would resume from a file of another one.
"""

from collections.abc import Mapping
from typing import Any

from tranche.kube.api.resources import TrainingJob
from tranche.kube.convert.trainingjob import PASSING_VOLUMES

CHECKPOINT_VOLUME = "tranche-checkpoint"
DIRECTORY_VARIABLE = "TRANCHE_CHECKPOINT_DIR"
"""Environment variable with the path at which the job's directory is mounted."""
ROOT = "/"
"""Directory of a job that began before jobs had directories of their own, and whose files are at the volume's root."""


def assigned_directory(job: TrainingJob, mounted: str | None) -> str:
    """Return the job's directory for its status.

    It never changes once it is in the status. If the status was lost, pods that run mount the directory in which they
    save. Otherwise, a job with a volume but without a directory is either new or began under an earlier release of the
    operator, which mounted the root of the volume; such a job must find its files again.

    Args:
        job: The job.
        mounted: Result of `mounted_directory` for a pod of the job; None without such a pod.
    """
    status = job.status
    if status.checkpoint_directory or _volume(job) is None:
        return status.checkpoint_directory or _directory_name(job)
    began = status.start_time is not None or bool(status.progress and status.progress.attempts)
    return mounted or (ROOT if began else _directory_name(job))


def mounted_directory(pod: Mapping[str, Any]) -> str | None:
    """Return the directory of the job's checkpoint volume in which a pod saves; None if it does not mount the volume.

    Args:
        pod: The pod as JSON.
    """
    spec = pod["spec"]
    for container in (*spec["containers"], *(spec.get("initContainers") or ())):
        paths = {one.get("value") for one in container.get("env") or () if one["name"] == DIRECTORY_VARIABLE}
        for mount in container.get("volumeMounts") or ():
            if mount["name"] == CHECKPOINT_VOLUME and mount["mountPath"] in paths:
                return str(mount.get("subPath") or ROOT)
    return None


def awaits_directory(job: TrainingJob) -> bool:
    """Return whether pods have to wait until the job's directory is in its status.

    A pod that exists first would make a restarted operator take the job for one that began under an earlier release.
    """
    return _volume(job) is not None and job.status.checkpoint_directory is None


def resume_path(job: TrainingJob, mount_path: str) -> str | None:
    """Return the mount path of the directory that checkpoint.resumeFrom names; None without one."""
    checkpoint = job.spec.checkpoint
    named = checkpoint is not None and checkpoint.volume is not None and checkpoint.resume_from is not None
    return f"{mount_path}-resume" if named else None


def mounts(job: TrainingJob, mount_path: str) -> list[dict[str, Any]]:
    """Return the volume mounts of every container of the job's pods."""
    volume, checkpoint = _volume(job), job.spec.checkpoint
    if volume is None or checkpoint is None:
        return []
    own = {"name": CHECKPOINT_VOLUME, "mountPath": mount_path}
    if PASSING_VOLUMES.isdisjoint(volume):  # such a volume is of one pod alone
        own |= _sub_path(job.status.checkpoint_directory or _directory_name(job))
    earlier = resume_path(job, mount_path)
    if earlier is None:
        return [own]
    source = _sub_path(checkpoint.resume_from or ROOT)
    return [own, {"name": CHECKPOINT_VOLUME, "mountPath": earlier, "readOnly": True, **source}]


def _volume(job: TrainingJob) -> dict[str, Any] | None:
    return job.spec.checkpoint.volume if job.spec.checkpoint is not None else None


def _directory_name(job: TrainingJob) -> str:
    return f"{job.metadata.name}-{job.metadata.uid}"


def _sub_path(directory: str) -> dict[str, str]:
    return {} if directory == ROOT else {"subPath": directory}
