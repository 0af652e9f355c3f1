"""From rows of a job log to jobs: rigid (gang), or in chunks that train one by one (elastic).

A log says GPUs and duration. Gang: one worker holds all GPUs for the duration, if some node is large enough; else equal
members, as few as fit. Elastic: `chunks_per_gpu` chunks per GPU, each on one GPU, so that the job takes its logged
duration when all its GPUs work (linear scaling, which no log confirms). Whole seconds stay whole: a mini-batch is a
second long where the duration allows it, so that the arithmetic is exact.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import ceil

from tranche.model import Job, Node, PodShape, Resources, Tier
from tranche.policies.choices import uniform
from tranche.simulation.clusters import ClusterSpec
from tranche.simulation.readers import TraceRow

NAMESPACE = "default"


def gang_jobs(rows: Iterable[TraceRow], nodes: Sequence[Node]) -> list[Job]:
    """One job a row; all its GPUs or none. Rows of one instant keep their order.

    Args:
        rows: Of the log.
        nodes: The cluster; its largest node says how many members a gang needs.
    """
    largest = max((node.allocatable.gpus for node in nodes), default=0)
    shapes: dict[int, PodShape] = {}
    return [replace(_gang(row, largest, shapes), order=order) for order, row in enumerate(rows)]


def elastic_jobs(rows: Iterable[TraceRow], chunks_per_gpu: int = 1) -> list[Job]:
    """One job a row, in chunks of one GPU, at most as many at once as the log says GPUs."""
    shapes: dict[int, PodShape] = {}
    jobs = []
    for order, row in enumerate(rows):
        batches, step = _batches(row.duration_seconds / chunks_per_gpu)
        job = _job(row, _shape(1, shapes), batches, step)
        jobs.append(replace(job, chunks=row.gpus * chunks_per_gpu, max_workers=row.gpus, order=order))
    return jobs


def with_data(
    jobs: Sequence[Job], chunk_bytes: float, gradient_bits: float, cluster: ClusterSpec, seed: int
) -> list[Job]:
    """The same jobs with data that have to be brought and gradients that have to be sent, which no log tells.

    Args:
        jobs: Elastic ones.
        chunk_bytes: Size of every chunk; each job's data are at one edge site, drawn uniformly; 0: at every site.
        gradient_bits: q of every job, whose parameter server needs no GPU; 0: no server.
        cluster: Its sites.
        seed: Of the draw.
    """
    sites = [site.name for site in cluster.sites if site.tier is Tier.EDGE] or [site.name for site in cluster.sites]
    server = PodShape(Resources(pods=1))
    changed = []
    for job in jobs:
        if chunk_bytes and sites:
            job = replace(
                job, chunk_bytes=chunk_bytes, data_site=sites[int(uniform(seed, job.uid, "site") * len(sites))]
            )
        changed.append(replace(job, gradient_bits=gradient_bits, servers=1, server=server) if gradient_bits else job)
    return changed


def scaled_to_load(jobs: Sequence[Job], capacity_gpus: int, load: float) -> list[Job]:
    """The same jobs with their submissions stretched so that Σ GPU-seconds = load × capacity × span of submissions.

    Raises:
        ValueError: the load is not positive, or the jobs do not spread over any time.
    """
    if not load > 0 or capacity_gpus <= 0:
        raise ValueError(f"the load must be positive, and the cluster must have GPUs (load {load:g})")
    first = min((job.submitted for job in jobs), default=0.0)
    span = max((job.submitted for job in jobs), default=0.0) - first
    if span <= 0:
        raise ValueError("all jobs are submitted at once: their submissions cannot be stretched to a load")
    work = sum(job.chunks * job.batches_per_chunk_total * job.step_seconds * job.gpus for job in jobs)
    stretch = work / (load * capacity_gpus) / span
    return [replace(job, submitted=(job.submitted - first) * stretch) for job in jobs]


def _gang(row: TraceRow, largest: int, shapes: dict[int, PodShape]) -> Job:
    members = 1
    if 0 < largest < row.gpus:
        members = next(n for n in range(ceil(row.gpus / largest), row.gpus + 1) if row.gpus % n == 0)
    batches, step = _batches(row.duration_seconds)
    job = _job(row, _shape(row.gpus // members, shapes), batches, step)
    return replace(job, chunks=members, max_workers=members, is_gang=True) if members > 1 else job


def _job(row: TraceRow, worker: PodShape, batches: int, step: float) -> Job:
    return Job(
        key=f"{NAMESPACE}/{row.job_id}",
        uid=row.job_id,
        submitted=row.submit_seconds,
        worker=worker,
        batches_per_chunk=batches,
        step_seconds=step,
        owner=row.tenant,
    )


def _shape(gpus: int, shapes: dict[int, PodShape]) -> PodShape:
    """One object per GPU count: jobs of one shape are recognised as such at once."""
    if gpus not in shapes:
        shapes[gpus] = PodShape(Resources(gpus=gpus, pods=1))
    return shapes[gpus]


def _batches(seconds: float) -> tuple[int, float]:
    """Mini-batches of about a second, and their exact length."""
    batches = max(1, round(seconds))
    return batches, seconds / batches
