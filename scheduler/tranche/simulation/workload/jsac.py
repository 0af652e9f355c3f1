"""Jobs drawn at random within the ranges of a published evaluation; no log says chunks, epochs or gradients.

Source: Wang et al., IEEE JSAC 40(8), 2022. Marks: [P2] printed there, known from a reader's quotation; [C2] from
a third party's partial re-implementation, which may be the paper's choice or that person's own; [I] ours.

[P2] the ranges of E, B, m, q, b and of the upload times. [C2] G, D by data set, and the requests of workers and
parameter servers. [I] the distributions: m, q and b span factors of 19 to 50 and are drawn log-uniformly unless an
option says otherwise: a uniform draw, as in [C2], puts nine tenths of them into the upper decade, so that the lower
ends are rare. E, G, CPU, memory and upload times span factors of at most 10 and are drawn uniformly, as the data set.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp, log

from tranche.estimate import NetworkPrior, batch_seconds, transfer_seconds
from tranche.model import OUTSIDE, Constraints, Job, PodShape, Resources, Site, Tier
from tranche.policies.seeded_choice import uniform
from tranche.simulation.cluster_spec import ClusterSpec
from tranche.simulation.workload.jsac_options import USUAL, Draw, JsacOptions

CHUNKS = {"CIFAR-10": 27, "ImageNet": 60, "Caltech-101": 115}
"""D by data set [C2]."""
MAX_CHUNKS = 2000
LOADS = (0.001, 1000.0)
JSAC_EDGES = 9
"""Edge sites [C2]."""
EPOCHS, BATCHES = (20, 60), 58
"""E and B [P2]."""
COMPUTE_SECONDS, FIXED_SECONDS = (3.6, 180.0), (0.010, 0.100)
"""m [P2: 0.001 to 0.05 slots of an hour] and G [C2], of one mini-batch."""
GRADIENT_BYTES, BANDWIDTH = (30e6, 575e6), (100e6, 5e9)
"""q in bytes, b in bit/s [P2]."""
EDGE_HOURS, CLOUD_HOURS = (1.0, 4.0), (10.0, 15.0)
"""Δ of one chunk: to an edge site, and to the cloud [P2]."""
MIN_DELAY_SECONDS = 0.001
"""Minimum Δ at any scale [I]: a site without the data needs a copy."""
CPUS, MEMORY_GB = (1, 4), (3, 6)
"""Requests of a worker and of a parameter server [C2]."""
PS_HOST_LABEL = "tranche.dev/ps-host"
"""Label of the machines that host parameter servers, if these are limited."""
FASTEST_LINK = 2.8e9
"""Bit/s of a link that brings a chunk in one hour [I]. The links of the presets ``jsac-…`` then have 0.19 to
2.8 Gbit/s: within the range of b."""
SLOWEST_EDGE_LINK, SLOWEST_CLOUD_LINK = FASTEST_LINK / EDGE_HOURS[1], FASTEST_LINK / CLOUD_HOURS[1]
"""Bit/s of links that bring a chunk in four and in fifteen hours. q and b of all jobs are scaled so that the largest b
is the first of them, or the second if data come from outside: only q/b counts, and so no link between edge sites (or
at all) is narrower than a job's own b."""
CHUNK_BYTES = FASTEST_LINK * 3600 / 8
"""Chunk size of every job: 1.26 TB. It stands for the time of the upload, and is not a realistic data set size."""


def jsac_jobs(
    arrivals: Sequence[float],
    *,
    jobs: int,
    load: float,
    chunk_scale: float,
    seed: int,
    cluster: ClusterSpec,
    options: JsacOptions = USUAL,
) -> list[Job]:
    """Draw jobs in the setting of JSAC'22; the same arguments draw the same jobs.

    The pattern of arrivals is a log's: `jobs` consecutive ones from a place that the seed chooses, stretched or
    compressed until Σ work / (slots × span of arrivals) is `load`. Work is D·E·B·(m + G + 2q/b); a slot is a GPU and
    counts its node's speed; an unlimited site counts nothing.

    Source of the data (`JsacOptions.delay`): ``outside``, the form of the paper: Δ is drawn by job and site, at every
    edge site from 1 to 4 h, at the cloud from 10 to 15 h, and there is no free site; communication takes 2q/b_j
    wherever the parameter server is. ``home`` [I]: the data of a job are at one edge site, where Δ = 0, and Δ depends
    on the pair of sites only, since a simulated link has one bandwidth for data and gradients; communication takes
    2q/b_j at and between all edge sites (up to 3.75 times as long from a cloud to an edge site). All jobs have chunks
    of `CHUNK_BYTES`, and q and b are scaled alike (see `SLOWEST_EDGE_LINK`).

    An option changes no draw that it does not concern. Every job has an owner of its own, so that a fair share is one
    among jobs [I].

    Args:
        arrivals: Times of submission of a log, seconds, in any order.
        jobs: Number of jobs to draw.
        load: Load from 0.001 to 1000; 1 is as much work as the slots can do while jobs arrive.
        chunk_scale: D is multiplied by it, rounded, at least 1; the work of a chunk stays.
        seed: Seed of all draws.
        cluster: Data at home are at its edge sites that have GPUs (at any site with GPUs if no edge site has).
        options: Options that the cluster was drawn with.

    Raises:
        ValueError: An argument is invalid; the text is one line that names it.
    """
    _check(arrivals, jobs, load, chunk_scale)
    slots = sum(node.allocatable.gpus * node.speed for node in cluster.nodes)
    if not slots:
        raise ValueError(f"cluster {cluster.name}: no node has a GPU, so a load cannot be set")
    draw = random.Random(f"jsac jobs {seed}")  # noqa: S311 - statistics, no secret
    moments = _stretch(arrivals, jobs, draw)
    homes, drawn = _data_sites(cluster), []
    for number in range(jobs):
        home = _home(homes, number, seed, options, draw)
        job = _job(number, len(str(jobs)), seed, chunk_scale, options, draw)
        drawn.append(_with_data(job, number, seed, home, cluster, options))
    span = sum(work_seconds(job) for job in drawn) / (slots * load)
    width = (moments[-1] - moments[0]) or 1.0
    return [replace(job, submitted=span * ((at - moments[0]) / width)) for job, at in zip(drawn, moments, strict=True)]


def work_seconds(job: Job) -> float:
    """Return the seconds that one worker needs for all chunks with its own bandwidth b."""
    return job.chunks * job.batches_per_chunk_total * batch_seconds(job, job.bits_per_second)


def _check(arrivals: Sequence[float], jobs: int, load: float, chunk_scale: float) -> None:
    if jobs < 1:
        raise ValueError(f"jobs is {jobs}: draw at least 1")
    if len(arrivals) < jobs:
        raise ValueError(f"jobs is {jobs:,}, but the log of arrivals has only {len(arrivals):,}: draw fewer")
    if not LOADS[0] <= load <= LOADS[1]:
        raise ValueError(f"load is {load}: it must be from {LOADS[0]} to {LOADS[1]}, such as 0.9")
    max_scale = MAX_CHUNKS / max(CHUNKS.values())
    if not 0 < chunk_scale <= max_scale:
        raise ValueError(
            f"chunk_scale is {chunk_scale}: it must be above 0, at most {max_scale:.1f} ({MAX_CHUNKS} chunks)"
        )


def _stretch(arrivals: Sequence[float], jobs: int, draw: random.Random) -> list[float]:
    """Return consecutive arrivals, not all at the same moment."""
    ordered = sorted(arrivals)
    starts = [i for i in range(len(ordered) - jobs + 1) if jobs == 1 or ordered[i + jobs - 1] > ordered[i]]
    if not starts:
        raise ValueError(f"the log has no {jobs} consecutive arrivals at different times, so a load cannot be set")
    first = draw.choice(starts)
    return ordered[first : first + jobs]


def _data_sites(cluster: ClusterSpec) -> list[str]:
    with_gpus = {node.site for node in cluster.nodes if node.allocatable.gpus}
    edges = [site.name for site in cluster.sites if site.tier is Tier.EDGE and site.name in with_gpus]
    return edges or sorted(with_gpus)


def _home(sites: Sequence[str], number: int, seed: int, options: JsacOptions, draw: random.Random) -> str:
    """Return the site of the job's data if they are in the cluster; another number of sites changes no later draw."""
    if options.edges in (None, JSAC_EDGES):
        return draw.choice(sites)
    draw.choice(range(JSAC_EDGES))
    return sites[int(uniform(seed, "home", number) * len(sites))]


def _with_data(job: Job, number: int, seed: int, home: str, cluster: ClusterSpec, options: JsacOptions) -> Job:
    """Return the job with its data in place, and with the matching scale of q and b."""
    if options.delay_of(cluster.name) == "outside":
        if any(site.name == OUTSIDE for site in cluster.sites):
            raise ValueError(f"cluster {cluster.name}: with delay=outside no site may be called {OUTSIDE!r}")
        upload = {site.name: _upload_seconds(site, number, seed, options) for site in cluster.sites}
        slowest = SLOWEST_CLOUD_LINK
        job = replace(job, data_site=OUTSIDE, upload_seconds=upload)
    else:
        job = replace(job, data_site=home)
        job = replace(job, upload_seconds=_scaled_links(job, cluster, options))
        slowest = SLOWEST_EDGE_LINK
    largest = BANDWIDTH[1] * options.bandwidth_scale
    gradient, bandwidth = job.gradient_bits * slowest / largest, job.bits_per_second * slowest / largest
    return replace(job, gradient_bits=gradient, bits_per_second=bandwidth)


def _upload_seconds(site: Site, number: int, seed: int, options: JsacOptions) -> float:
    """Return Δ of one chunk from outside to the site."""
    low, high = CLOUD_HOURS if site.tier is Tier.CLOUD else EDGE_HOURS
    seconds = 3600 * (low + (high - low) * uniform(seed, "delay", number, site.name))
    return max(MIN_DELAY_SECONDS, seconds * _delay_scale(site, options))


def _scaled_links(job: Job, cluster: ClusterSpec, options: JsacOptions) -> Mapping[str, float]:
    """Return Δ of one chunk from the job's home to the other sites where it differs from the links' value."""
    scaled = [site for site in cluster.sites if site.name != job.data_site and _delay_scale(site, options) != 1]
    if not scaled:
        return {}
    by_name = {site.name: site for site in cluster.sites}
    if not all(link.dedicated for site in by_name.values() for to, link in site.links.items() if to != site.name):
        raise ValueError(f"cluster {cluster.name}: uploads share links, so Δ can be scaled only with delay=outside")
    prior = NetworkPrior()
    seconds = {
        site.name: transfer_seconds(prior, by_name, job, site.name) * _delay_scale(site, options) for site in scaled
    }
    return {name: max(MIN_DELAY_SECONDS, value) for name, value in seconds.items()}


def _delay_scale(site: Site, options: JsacOptions) -> float:
    return options.cloud_delay_scale if site.tier is Tier.CLOUD else options.edge_delay_scale


def _job(number: int, digits: int, seed: int, chunk_scale: float, options: JsacOptions, draw: random.Random) -> Job:
    """Return the job before its data are placed, with q and b in their own units."""
    name = f"job-{number:0{digits}d}"
    chunks = max(1, round(draw.choice(sorted(CHUNKS.values())) * chunk_scale))
    epochs = draw.randint(*EPOCHS)
    step = _spread(draw, COMPUTE_SECONDS, options.draw) + draw.uniform(*FIXED_SECONDS)
    gradient = _spread(draw, GRADIENT_BYTES, options.draw) * options.gradient_scale
    bandwidth = _spread(draw, BANDWIDTH, options.draw) * options.bandwidth_scale
    worker, server = _shape(draw, gpus=1), _shape(draw, gpus=0)
    if options.ps_hosts is not None:
        server = replace(server, constraints=Constraints(selector=((PS_HOST_LABEL, "true"),)))
    return Job(
        key=f"jsac/{name}",
        uid=f"jsac-{seed}-{name}",
        submitted=0.0,
        worker=worker,
        server=server,
        servers=1,
        chunks=chunks,
        max_workers=chunks,
        epochs=options.epochs or epochs,
        batches_per_chunk=BATCHES,
        step_seconds=step,
        gradient_bits=8 * gradient,
        bits_per_second=bandwidth,
        chunk_bytes=CHUNK_BYTES,
        owner=name,
    )


def _shape(draw: random.Random, *, gpus: int) -> PodShape:
    return PodShape(Resources(draw.randint(*CPUS) * 1000, draw.randint(*MEMORY_GB) * 10**9, gpus, pods=1))


def _spread(draw: random.Random, bounds: tuple[float, float], how: Draw) -> float:
    """Return a number within the bounds, from one number of the generator."""
    low, high = bounds
    return draw.uniform(low, high) if how == "uniform" else exp(draw.uniform(log(low), log(high)))
