"""Jobs from rows of a job log: rigid (gang), or in chunks that train one by one (elastic).

A log has GPUs and duration. Gang: one worker holds all GPUs for the duration, if some node is large enough; else equal
members, as few as fit. Elastic: `chunks_per_gpu` chunks per GPU, each on one GPU, so that the job takes its logged
duration when all its GPUs work (linear scaling, which no log confirms). Whole seconds stay whole: a mini-batch is a
second long where the duration allows it, so that the arithmetic is exact.

`oversized` finds jobs that request more GPUs than the whole cluster has; the planner explains other waits.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import ceil

from tranche.model import Job, Node, PodShape, Resources, Site, Tier
from tranche.policies.seeded_choice import uniform
from tranche.simulation.cluster_spec import ClusterSpec
from tranche.simulation.job_log import TraceRow

NAMESPACE = "default"


def gang_jobs(rows: Iterable[TraceRow], nodes: Sequence[Node], member_gpus: int | None = None) -> list[Job]:
    """Return one job a row, which gets all its GPUs or none. Rows of one instant keep their order.

    Args:
        rows: Rows of the log.
        nodes: Nodes of the cluster; the largest one decides how many members a gang needs.
        member_gpus: Most GPUs of a member; None: as many as the largest node has.
    """
    largest = max((node.allocatable.gpus for node in nodes), default=0)
    if member_gpus is not None:
        largest = min(largest, member_gpus) or member_gpus
    shapes: dict[int, PodShape] = {}
    return [_gang(row, order, largest, shapes) for order, row in enumerate(rows)]


def elastic_jobs(rows: Iterable[TraceRow], chunks_per_gpu: int = 1) -> list[Job]:
    """Return one job a row, in chunks of one GPU, with as many workers at most as the log has GPUs."""
    shapes: dict[int, PodShape] = {}
    jobs = []
    for order, row in enumerate(rows):
        batches, step = _batches(row.duration_seconds / chunks_per_gpu)
        chunks = row.gpus * chunks_per_gpu
        jobs.append(_job(row, order, _shape(1, shapes), batches, step, chunks=chunks, max_workers=row.gpus))
    return jobs


def with_data(
    jobs: Sequence[Job], chunk_bytes: float, gradient_bits: float, cluster: ClusterSpec, seed: int
) -> list[Job]:
    """Return the same jobs with data that must be copied and gradients that must be sent, which no log contains.

    Args:
        jobs: Elastic jobs.
        chunk_bytes: Size of every chunk; each job's data are at one edge site, drawn uniformly; 0: at every site.
        gradient_bits: Gradient size q of every job, whose parameter server needs no GPU; 0: no server.
        cluster: Cluster with its sites.
        seed: Seed of the draw.
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
    """Return the jobs with submissions stretched so that Σ GPU-seconds = load × capacity × span of submissions.

    Raises:
        ValueError: The load is not positive, or all jobs are submitted at one instant.
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


def _gang(row: TraceRow, order: int, largest: int, shapes: dict[int, PodShape]) -> Job:
    members = 1
    if 0 < largest < row.gpus:
        members = next(n for n in range(ceil(row.gpus / largest), row.gpus + 1) if row.gpus % n == 0)
    batches, step = _batches(row.duration_seconds)
    worker = _shape(row.gpus // members, shapes)
    return _job(row, order, worker, batches, step, chunks=members, max_workers=members, is_gang=members > 1)


def _job(
    row: TraceRow,
    order: int,
    worker: PodShape,
    batches: int,
    step: float,
    *,
    chunks: int,
    max_workers: int,
    is_gang: bool = False,
) -> Job:
    return Job(
        key=f"{NAMESPACE}/{row.job_id}",
        uid=row.job_id,
        submitted=row.submit_seconds,
        worker=worker,
        chunks=chunks,
        batches_per_chunk=batches,
        step_seconds=step,
        max_workers=max_workers,
        is_gang=is_gang,
        order=order,
        owner=row.tenant,
    )


def _shape(gpus: int, shapes: dict[int, PodShape]) -> PodShape:
    """Return one shared object per GPU count, so that jobs of one shape are recognized quickly."""
    if gpus not in shapes:
        shapes[gpus] = PodShape(Resources(gpus=gpus, pods=1))
    return shapes[gpus]


def _batches(seconds: float) -> tuple[int, float]:
    """Return the number of mini-batches of about a second, and their exact length."""
    batches = max(1, round(seconds))
    return batches, seconds / batches


def oversized(jobs: Iterable[Job], nodes: Sequence[Node], sites: Iterable[Site]) -> list[Job]:
    """Return the jobs that do not fit into an empty cluster, by GPUs alone."""
    if any(site.unlimited for site in sites):
        return []
    places: dict[int, int] = {}
    too_large: list[Job] = []
    for job in jobs:
        if job.gpus < 1:
            continue
        if job.gpus not in places:
            places[job.gpus] = sum(node.allocatable.gpus // job.gpus for node in nodes)
        if places[job.gpus] < job.min_available:
            too_large.append(job)
    return too_large
