"""Jobs drawn at random within the ranges of a published evaluation; no log says chunks, epochs or gradients.

Source: Wang et al., JSAC 40(8), 2022, evaluation (algorithms.md 1.4). Marks: [P] printed there, read at second hand;
[I] ours.

[P] the ranges of E, B, m, q, b, G, D by data set, the upload times, and what workers and parameter servers ask for.
[I] their distributions, since only ranges are printed. m, q and b span factors of 19 to 50 and are drawn log-uniformly:
a uniform draw would put nine tenths of them into the upper decade, so that the lower ends would hardly be seen. E, G,
CPU, memory and upload times span factors of at most 10 and are drawn uniformly; so is the data set.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from math import exp, log

from tranche.estimate import batch_seconds
from tranche.model import Job, PodShape, Resources, Tier
from tranche.simulation.clusters import ClusterSpec

CHUNKS = {"CIFAR-10": 27, "ImageNet": 60, "Caltech-101": 115}
"""D by data set [P]."""
MAX_CHUNKS = 2000
LOADS = (0.001, 1000.0)
EPOCHS, BATCHES = (20, 60), 58
COMPUTE_SECONDS, FIXED_SECONDS = (3.6, 180.0), (0.010, 0.100)
"""m and G, of one mini-batch."""
GRADIENT_BYTES, BANDWIDTH = (30e6, 575e6), (100e6, 5e9)
"""q in bytes, b in bit/s."""
CPUS, MEMORY_GB = (1, 4), (3, 6)
FASTEST_LINK = 2.8e9
"""Bit/s of a link that brings a chunk in one hour [I]. The links of the presets ``jsac…`` then have 0.19 to 2.8 Gbit/s:
within the range of b."""
SLOWEST_EDGE_LINK = FASTEST_LINK / 4
"""Bit/s of a link that brings a chunk in four hours. q and b of all jobs are scaled so that the largest b is this one:
only q/b counts, and so no link between edge sites is narrower than a job's own b."""
CHUNK_BYTES = FASTEST_LINK * 3600 / 8
"""Of every job: 1.26 TB. It stands for the time that the upload takes, and is not meant as the size of a data set."""


def jsac_jobs(
    arrivals: Sequence[float], *, jobs: int, load: float, chunk_scale: float, seed: int, cluster: ClusterSpec
) -> list[Job]:
    """Draw jobs of the paper's setting; the same arguments draw the same jobs.

    The pattern of arrivals is a log's: `jobs` consecutive ones from a place that the seed chooses, stretched or
    compressed until Σ work / (slots × span of arrivals) is `load`. Work is D·E·B·(m + G + 2q/b) at a job's own site; a
    slot is a GPU and counts its node's speed; an unlimited site counts nothing.

    A simulated link has one bandwidth for data and gradients, where the paper draws Δ by job and site, and b by job. So
    all jobs have chunks of `CHUNK_BYTES`, and Δ depends on the pair of sites only; q and b are scaled alike (see
    `SLOWEST_EDGE_LINK`), so that communication takes 2q/b_j at and between all edge sites of the preset ``jsac``, as in
    the paper (up to 3.75 times as long from its cloud to an edge site). Δ = 0 at the site of the data. Every job has an
    owner of its own, so that a fair share is one among jobs, as in the paper's baseline DRF.

    Args:
        arrivals: Times of submission of a log, seconds, in any order.
        jobs: How many to draw.
        load: From 0.001 to 1000; 1 is as much work as the slots can do while jobs arrive.
        chunk_scale: D is multiplied by it, rounded, at least 1; the work of a chunk stays.
        seed: Of everything drawn.
        cluster: Data are at its edge sites that have nodes (at any site with nodes if no edge site has).

    Raises:
        ValueError: one line that says which argument is wrong.
    """
    _check(arrivals, jobs, load, chunk_scale)
    slots = sum(node.allocatable.gpus * node.speed for node in cluster.nodes)
    if not slots:
        raise ValueError(f"cluster {cluster.name}: no node has a GPU, so there is no load to aim at")
    draw = random.Random(f"jsac jobs {seed}")  # noqa: S311 - statistics, no secret
    moments = _stretch(arrivals, jobs, draw)
    homes = _data_sites(cluster)
    drawn = [_job(number, len(str(jobs)), seed, chunk_scale, draw.choice(homes), draw) for number in range(jobs)]
    span = sum(work_seconds(job) for job in drawn) / (slots * load)
    width = (moments[-1] - moments[0]) or 1.0
    return [replace(job, submitted=span * ((at - moments[0]) / width)) for job, at in zip(drawn, moments, strict=True)]


def work_seconds(job: Job) -> float:
    """Seconds that one worker needs for all chunks with its own bandwidth b."""
    return job.chunks * job.batches_per_chunk_total * batch_seconds(job, job.bits_per_second)


def _check(arrivals: Sequence[float], jobs: int, load: float, chunk_scale: float) -> None:
    if jobs < 1:
        raise ValueError(f"jobs is {jobs}: draw at least 1")
    if len(arrivals) < jobs:
        raise ValueError(f"jobs is {jobs:,}, but the log of arrivals has only {len(arrivals):,}: draw fewer")
    if not LOADS[0] <= load <= LOADS[1]:
        raise ValueError(f"load is {load}: it must be from {LOADS[0]} to {LOADS[1]}, such as 0.9")
    most = MAX_CHUNKS / max(CHUNKS.values())
    if not 0 < chunk_scale <= most:
        raise ValueError(f"chunk_scale is {chunk_scale}: it must be above 0, at most {most:.1f} ({MAX_CHUNKS} chunks)")


def _stretch(arrivals: Sequence[float], jobs: int, draw: random.Random) -> list[float]:
    """Consecutive arrivals, not all at the same moment."""
    ordered = sorted(arrivals)
    starts = [i for i in range(len(ordered) - jobs + 1) if jobs == 1 or ordered[i + jobs - 1] > ordered[i]]
    if not starts:
        raise ValueError(f"the log has no {jobs} consecutive arrivals at different times, so no load can be aimed at")
    first = draw.choice(starts)
    return ordered[first : first + jobs]


def _data_sites(cluster: ClusterSpec) -> list[str]:
    with_nodes = {node.site for node in cluster.nodes}
    edges = [site.name for site in cluster.sites if site.tier is Tier.EDGE and site.name in with_nodes]
    return edges or sorted(with_nodes)


def _job(number: int, digits: int, seed: int, chunk_scale: float, home: str, draw: random.Random) -> Job:
    name = f"job-{number:0{digits}d}"
    chunks = max(1, round(draw.choice(sorted(CHUNKS.values())) * chunk_scale))
    epochs = draw.randint(*EPOCHS)
    step = _log_uniform(draw, COMPUTE_SECONDS) + draw.uniform(*FIXED_SECONDS)
    gradient, bandwidth = _log_uniform(draw, GRADIENT_BYTES), _log_uniform(draw, BANDWIDTH)
    return Job(
        key=f"jsac/{name}",
        uid=f"jsac-{seed}-{name}",
        submitted=0.0,
        worker=_shape(draw, gpus=1),
        server=_shape(draw, gpus=0),
        servers=1,
        chunks=chunks,
        max_workers=chunks,
        epochs=epochs,
        batches_per_chunk=BATCHES,
        step_seconds=step,
        gradient_bits=8 * gradient * SLOWEST_EDGE_LINK / BANDWIDTH[1],
        bits_per_second=bandwidth * SLOWEST_EDGE_LINK / BANDWIDTH[1],
        chunk_bytes=CHUNK_BYTES,
        data_site=home,
        owner=name,
    )


def _shape(draw: random.Random, *, gpus: int) -> PodShape:
    return PodShape(Resources(draw.randint(*CPUS) * 1000, draw.randint(*MEMORY_GB) * 10**9, gpus, pods=1))


def _log_uniform(draw: random.Random, bounds: tuple[float, float]) -> float:
    return exp(draw.uniform(log(bounds[0]), log(bounds[1])))
