"""Lower bounds on the average job completion time (JCT): no policy can be below them on the same jobs and cluster.

What is bounded [D, derived here]. Job j arrives at r_j with a_j GPU-seconds of work (at speed 1) and never holds more
than G_j GPUs; C = Σ GPUs × speed is the speed of the whole cluster. In any schedule, rigid or elastic, with or without
preemption and migration, the rate x_j(t) at which j progresses then satisfies ``0 ≤ x_j ≤ c_j``, ``Σ_j x_j ≤ C``,
``∫ x_j = a_j`` and ``x_j = 0`` before r_j, where c_j = min(C, G_j × speed of the fastest node). With p_j = a_j / c_j
and the mean busy time ``M_j = ∫ t·x_j(t) dt / a_j``:

(1) ``C_j ≥ r_j + p_j``: no job trains faster than all of its workers together.
(2) ``C_j ≥ M_j + p_j/2``: the latest mean busy time of a job that ends at C_j is that of running at full rate during
    ``[C_j − p_j, C_j]``.
(3) Without the limits c_j the cluster is one machine of speed C, on which preemptive SRPT has the least Σ C_j.

(4) For any prices π(t) ≥ 0 of a GPU-second, by (2) and ``Σ_j x_j ≤ C``,
    ``Σ (C_j − r_j) ≥ Σ_j [p_j/2 + min_x ∫ ((t − r_j)/a_j + π(t)) x_j(t) dt] − C ∫ π(t) dt``, each minimum over the
    rates of that job alone: it takes the p_j cheapest seconds. This is the Lagrangian dual of the mean busy time
    relaxation with limits c_j. π = 0 gives (1); the π that is optimal without limits gives about the classic mean busy
    time bound (Goemans, Queyranne, Schulz, Skutella, Wang, SIAM J. Discrete Math. 15, 2002). As every π gives a valid
    bound, π is constant within cells of time and improved by some steps of supergradient ascent, each in O(n log n) for
    jobs that are short against the cells.

`fluid_srpt_seconds` is the largest of (1), (3) and (4). Measured at the loads of data/traces/README.md (gangs):
0.85–0.99 of the average JCT of SRSF.

`bound_seconds` also knows sites, the cloud and uploads. Let Δ_js be the time to bring one chunk of job j to site s (0
where the data are, for a gang, and for a job without data), and p_jsv = E_j·B_j·(m_j/v + 2q_j/b_j) the time of one
chunk on a worker of speed v there, where b_j is at most the fastest link of the cluster, and the second term is 0 in
a cloud (ζ = 1) and without a parameter server.

(1') ``C_j ≥ r_j + T_j``, where T_j is the time that the job would take with the cluster for itself. At r_j + t it can
    train only at sites with ``Δ_js ≤ t``, since no data are anywhere else yet: an upload takes at least Δ_js, also
    where others share its link, and none begins before r_j. It has at most W_j = min(D_j, most workers) workers
    there, each on GPUs of one node, each at a rate of at most 1/p_jsv chunks a second. So it progresses at most at
    the rate ``R_j(t)``: the sum of the W_j largest of these rates over all places at those sites, without limit at an
    unlimited site. All D_j chunks need ``∫ R_j dt ≥ D_j`` over [0, C_j − r_j], also if chunks move between sites and
    keep their progress; T_j is the first time at which that holds.
(5) No job progresses before ``r_j + min_s Δ_js``. Hence (1), (3) and (4) hold with these times in the place of r_j,
    and the mean of ``min_s Δ_js`` added.

A job may declare times of its own on some GPU kinds. In (1') they count as its speeds there. In (1), (3) and (4), its
work counts as divided by its largest speed on any node over that of the node, so that it needs at most its true time on
each of them.

(1') and (5) hold neither for a reference whose data are everywhere at once (`PolicyTraits.free_data_movement`:
``srpt-pool``) nor where the true time of uploads is drawn; there Δ counts as 0.

Restart costs, packing into nodes, whole chunks and constraints are left out: they only delay. The bounds hold for what
a job specifies; a run with speeds or durations drawn at random (σ > 0) has other jobs than these.
"""

from bisect import insort
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement
from math import inf, nan
from statistics import fmean
from typing import NamedTuple

import numpy as np

from tranche.estimate import LevelNetwork, NetworkPrior, batch_seconds, transfer_seconds
from tranche.model import Job, Link, Node, Site, Tier
from tranche.simulation.analysis.relaxation import Pool, PriceBound, ascend, queue_prices, smallest_first, srpt_flow


def ideal_seconds(jobs: Sequence[Job], nodes: Sequence[Node], *, unlimited: bool = False) -> float:
    """Return the average JCT if every job had the cluster to itself: bound (1), in seconds; NaN without jobs."""
    if not jobs:
        return nan
    pool, others = relax(jobs, nodes, unlimited)
    return (float(pool.ideal.sum()) + others) / len(jobs)


def fluid_srpt_seconds(
    jobs: Sequence[Job], nodes: Sequence[Node], *, unlimited: bool = False, passes: int = 40
) -> float:
    """Return a lower bound on the average JCT by fluid relaxations, in seconds; NaN without jobs.

    Args:
        jobs: Jobs whose average is bounded; leave out jobs that never complete, as their average does.
        nodes: The cluster.
        unlimited: Whether a site creates capacity on demand; then no job queues, and the ideal times are the bound.
        passes: Number of ascent steps over prices; more give a higher bound.

    Returns:
        The largest of the bounds (1), (3) and (4) that the module derives.
    """
    if not jobs:
        return nan
    pool, others = relax(jobs, nodes, unlimited)
    best = float(pool.ideal.sum())
    if pool.capacity < inf and pool.work.size:
        served = list(smallest_first(pool))
        cells = max(500, min(2000, 20_000_000 // len(jobs)))  # of time, each with a price: 80,000 jobs take seconds
        prices = PriceBound(pool, cells, served[-1][1])
        queue = queue_prices(prices, served)
        starts = [share * queue for share in (0.0, 0.25, 0.5, 1.0)]
        best = max(best, srpt_flow(pool), ascend(prices, starts, passes))
    return (best + others) / len(jobs)


def with_own_speeds(jobs: Sequence[Job], nodes: Sequence[Node], sites: Sequence[Site]) -> list[Job]:
    """Return the jobs with the step time that is the least with the speeds of the nodes, for the bounds above.

    A job whose GPU kinds have times of its own, or that is faster at an unlimited site, has less work on nodes of
    speed 1 than it declares.
    """
    kinds = {(node.gpu_kind, node.speed, node.speed) for node in nodes if node.allocatable.gpus}
    kinds |= {(site.gpu_kind, site.speed, 1.0) for site in sites if site.unlimited}
    scaled = []
    for job in jobs:
        ratio = max((job.speed_on(kind, speed) / counted for kind, speed, counted in kinds), default=1.0)
        scaled.append(job if ratio == 1.0 else replace(job, step_seconds=job.step_seconds / ratio))
    return scaled


def with_least_communication(
    jobs: Sequence[Job], nodes: Sequence[Node], sites: Sequence[Site], network: LevelNetwork | None = None
) -> list[Job]:
    """Return the jobs with the unavoidable part of their communication counted as computation, for the bounds above.

    A mini-batch takes ``m/s + 2q/b`` on a node of speed s; no b is above the fastest link, no s below the slowest node,
    so ``(m + s_min·2q/b_max)/s`` is at most that. With all workers in an unlimited cloud (ζ = 1) nothing is sent.
    """
    if any(site.unlimited for site in sites):
        return list(jobs)
    widest = _widest_path(nodes, sites, network)
    slowest = min((node.speed for node in nodes), default=1.0)
    seconds = {job.key: batch_seconds(job, widest) - job.step_seconds for job in jobs if job.servers}
    return [
        replace(job, step_seconds=job.step_seconds + slowest * seconds[job.key]) if job.key in seconds else job
        for job in jobs
    ]


def _widest_path(nodes: Sequence[Node], sites: Sequence[Site], network: LevelNetwork | None) -> float:
    """Return the largest bandwidth that a worker and a parameter server can have between them, in bit/s."""
    links = {site.name: site.links for site in sites}
    bandwidths = [link.bits_per_second for of_site in links.values() for link in of_site.values()]
    places = sorted({node.site for node in nodes} | {site.name for site in sites if site.unlimited})
    unknown = [pair for pair in combinations_with_replacement(places, 2) if not _described(links, *pair)]
    prior = NetworkPrior()
    bandwidths += {(prior.internal if first == second else prior.external).bits_per_second for first, second in unknown}
    return max([*bandwidths, *(network.bits_per_second if network is not None else ())], default=inf)


def _described(links: Mapping[str, Mapping[str, Link]], first: str, second: str) -> bool:
    return second in links.get(first, {}) or first in links.get(second, {})


class Room(NamedTuple):
    """Group of equal nodes of a site."""

    site: str
    cloud: bool
    kind: str
    speed: float
    gpus: float
    """GPUs of one node; infinite at an unlimited site."""
    nodes: int

    def workers(self, gpus: int) -> float:
        """Return how many workers of `gpus` GPUs each the nodes can hold together."""
        return inf if not gpus or self.gpus == inf else self.nodes * (self.gpus // gpus)


def bound_seconds(
    jobs: Sequence[Job],
    nodes: Sequence[Node],
    sites: Sequence[Site],
    *,
    uploads: bool = True,
    network: LevelNetwork | None = None,
) -> float:
    """Return a lower bound on the average JCT with sites, links and unlimited clouds, in seconds; NaN without jobs.

    Args:
        jobs: Jobs whose average is bounded; leave out jobs that never complete, as their average does.
        nodes: The cluster.
        sites: Sites of the nodes, and unlimited sites.
        uploads: Whether an upload takes at least the time that jobs and links specify; else Δ counts as 0.
        network: Links between the nodes of a site by topology level; None: those of the sites.

    Returns:
        The larger of the bounds (1') and (5) that the module derives.
    """
    if not jobs:
        return nan
    rooms, by_name = _rooms(nodes, sites), {site.name: site for site in sites}
    widest = _widest_path(nodes, sites, network)
    alone, waits = [], []
    for job in jobs:
        delays = _delays(job, rooms, by_name) if uploads else {}
        alone.append(_alone_seconds(job, rooms, widest, delays))
        waits.append(min(delays.values(), default=0.0))
    delayed = [
        replace(job, submitted=job.submitted + wait) if wait else job for job, wait in zip(jobs, waits, strict=True)
    ]
    delayed = with_least_communication(with_own_speeds(delayed, nodes, sites), nodes, sites, network)
    unlimited = any(site.unlimited for site in sites)
    return max(fmean(alone), fluid_srpt_seconds(delayed, nodes, unlimited=unlimited) + fmean(waits))


def _rooms(nodes: Sequence[Node], sites: Sequence[Site]) -> list[Room]:
    clouds = {site.name for site in sites if site.unlimited or site.tier is Tier.CLOUD}
    equal = Counter((node.site, node.gpu_kind, node.speed, node.allocatable.gpus) for node in nodes)
    rooms = [Room(site, site in clouds, kind, speed, gpus, count) for (site, kind, speed, gpus), count in equal.items()]
    return rooms + [Room(site.name, True, site.gpu_kind, site.speed, inf, 1) for site in sites if site.unlimited]


def _delays(job: Job, rooms: Sequence[Room], sites: Mapping[str, Site]) -> dict[str, float]:
    """Return Δ_js at the sites that could train the job, if its data have to be copied."""
    if job.data_site is None or not job.chunk_bytes or job.is_gang:
        return {}
    prior = NetworkPrior()
    return {room.site: transfer_seconds(prior, sites, job, room.site) for room in rooms if room.workers(job.gpus)}


def _alone_seconds(job: Job, rooms: Sequence[Room], widest: float, delays: Mapping[str, float]) -> float:
    """Return T_j of the bound (1'); 0 if no place could train the job."""
    max_workers = float(job.chunks if job.is_gang else job.width)
    places: dict[float, dict[float, float]] = {}
    """Number of workers by the time at which data can be there and the seconds of one chunk."""
    for room in rooms:
        path = widest if job.servers and not room.cloud else None
        speed = job.speed_on(room.kind, room.speed)
        seconds = job.batches_per_chunk_total * batch_seconds(job, path, speed)
        workers_by_seconds = places.setdefault(delays.get(room.site, 0.0), {})
        workers_by_seconds[seconds] = workers_by_seconds.get(seconds, 0.0) + room.workers(job.gpus)
    open_now: list[tuple[float, float]] = []
    now = done = rate = 0.0
    for delay, workers in sorted(places.items()):
        if done + rate * (delay - now) >= job.chunks:
            break
        now, done = delay, done + rate * (delay - now)
        for place in workers.items():
            insort(open_now, place)
        rate, free_workers = 0.0, max_workers
        for seconds, count in open_now:
            rate += min(free_workers, count) / seconds
            free_workers -= min(free_workers, count)
    return now + (job.chunks - done) / rate if rate else 0.0


def relax(jobs: Sequence[Job], nodes: Sequence[Node], unlimited: bool) -> tuple[Pool, float]:
    """Return the jobs that use GPUs on one pool, and Σ of the ideal times of the other jobs in seconds."""
    fastest = max((node.speed for node in nodes), default=1.0)
    capacity = sum(node.allocatable.gpus * node.speed for node in nodes)
    if unlimited or not capacity:
        fastest, capacity = max(fastest, 1.0), inf
    rows: list[tuple[float, float, float]] = []
    others = 0.0
    for job in sorted(jobs, key=lambda job: (job.submitted, job.key)):
        seconds = job.chunks * job.batches_per_chunk_total * job.step_seconds
        parallel = job.chunks if job.is_gang else min(job.max_workers, job.chunks)
        if job.gpus:
            work = seconds * job.gpus
            rows.append((job.submitted, work, work / min(parallel * job.gpus * fastest, capacity)))
        else:
            others += seconds / (parallel * fastest)
    columns = np.array(rows, dtype=np.float64).reshape(-1, 3)
    release = columns[:, 0] - (rows[0][0] if rows else 0.0)
    return Pool(release, columns[:, 1], columns[:, 2], capacity), others
