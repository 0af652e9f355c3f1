"""GPU time of jobs, by job and by namespace, from the statuses of TrainingJobs.

What is counted, in GPU-seconds (seconds times the GPUs of a worker):

* held: from the opening of a worker's window to the end of its pod (`tranche.state.site_accounting`). A pod that never
  got a node of an unlimited site has held nothing.
* trained: the part from the start of the container to the end of the pod. Work that was lost is included.
* lost: the part of `trained` whose mini-batches were lost and had to be trained again. Statuses count lost mini-batches
  and not their time, so this is an estimate: all mini-batches of a job count as equally long.
* running: what open windows have held so far. It becomes part of the others when the pods end.

GPUs of parameter servers, chiefs and pods that are not of a TrainingJob are not counted.
"""

from collections.abc import Iterable
from datetime import datetime
from math import fsum

import msgspec

from tranche.client.api_session import OVER
from tranche.kube.api.names import GpuResources
from tranche.kube.api.resources import TrainingJob
from tranche.kube.convert.trainingjob import gpu_seconds_per_batch, to_job
from tranche.web.job_views import phase_of


class SiteHours(msgspec.Struct, frozen=True, rename="camel"):
    """GPU time of a job at one site."""

    site: str
    held_gpu_seconds: float
    trained_gpu_seconds: float


class JobUsage(msgspec.Struct, frozen=True, rename="camel"):
    """GPU time of one job, or of all jobs of a namespace."""

    namespace: str
    name: str
    """Name of the job; empty for a namespace."""
    uid: str
    """UID of the job, which differs between jobs of the same name; empty for a namespace."""
    phase: str
    """Phase of the job; empty for a namespace."""
    jobs: int
    """Number of jobs."""
    created: datetime | None
    completed: datetime | None
    """End of the job; None for a job that has not ended, and for a namespace."""
    held_gpu_seconds: float
    trained_gpu_seconds: float
    lost_gpu_seconds: float
    running_gpu_seconds: float
    sites: list[SiteHours] = []
    """Ended windows by site: the 64 sites with the highest use; empty for a namespace."""


def usage_of(job: TrainingJob, gpu_resources: GpuResources, now: float) -> JobUsage:
    """Return the GPU time of a job.

    Args:
        job: The job.
        gpu_resources: Resource names of the GPUs.
        now: Seconds since the epoch.
    """
    progress = job.status.progress
    sites = [
        SiteHours(site.site, float(site.gpu_seconds), float(site.trained_gpu_seconds))
        for site in (progress.sites if progress else ())
    ]
    trained = progress.attained_seconds if progress else 0.0
    return JobUsage(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        uid=job.metadata.uid,
        phase=phase_of(job),
        jobs=1,
        created=job.metadata.creation_timestamp,
        completed=job.status.completion_time,
        held_gpu_seconds=max(trained, fsum(site.held_gpu_seconds for site in sites)),
        trained_gpu_seconds=trained,
        lost_gpu_seconds=progress.lost_batches * gpu_seconds_per_batch(progress) if progress else 0.0,
        running_gpu_seconds=0.0 if job.status.phase in OVER else _running(job, gpu_resources, now),
        sites=sites,
    )


def by_namespace(jobs: Iterable[JobUsage]) -> list[JobUsage]:
    """Return the sums of the jobs of each namespace, by name."""
    groups: dict[str, list[JobUsage]] = {}
    for usage in jobs:
        groups.setdefault(usage.namespace, []).append(usage)
    return [
        JobUsage(
            namespace=namespace,
            name="",
            uid="",
            phase="",
            jobs=len(group),
            created=None,
            completed=None,
            held_gpu_seconds=fsum(usage.held_gpu_seconds for usage in group),
            trained_gpu_seconds=fsum(usage.trained_gpu_seconds for usage in group),
            lost_gpu_seconds=fsum(usage.lost_gpu_seconds for usage in group),
            running_gpu_seconds=fsum(usage.running_gpu_seconds for usage in group),
        )
        for namespace, group in sorted(groups.items())
    ]


def ended_within(job: TrainingJob, since: datetime | None, until: datetime | None) -> bool:
    """Return whether a job ended in the half-open period; one that has not ended is in each period without an end."""
    ended = job.status.completion_time
    if ended is None:
        return until is None
    return (since is None or since <= ended) and (until is None or ended < until)


def _running(job: TrainingJob, gpu_resources: GpuResources, now: float) -> float:
    """Return the GPU-seconds of open windows since their start in the plan; those without a node yet hold none."""
    windows = job.status.plan.workers if job.status.plan else ()
    starts = [window.start.timestamp() for window in windows if window.start and window.node]
    if not starts:
        return 0.0
    try:
        gpus = max(1, to_job(job, gpu_resources).gpus)
    except ValueError:  # the planner cannot read the job, so it counts nothing for it either
        return 0.0
    return fsum(max(0.0, now - start) for start in starts) * gpus
