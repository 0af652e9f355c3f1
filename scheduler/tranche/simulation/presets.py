"""Named settings: clusters of published evaluations, drawn from a seed, and the jobs that go with them."""

import csv
import random
from importlib.resources import files
from itertools import combinations
from math import cos, hypot, radians

from tranche.model import Link, Node, Resources, Site, Tier
from tranche.simulation.clusters import AMPLE, GPU_LABEL, ClusterError, ClusterSpec
from tranche.simulation.drawn_jobs import FASTEST_LINK, jsac_jobs

__all__ = ["PRESETS", "jsac_jobs", "preset_cluster"]

PRESETS = ("jsac", "jsac-cloud", "jsac-cloud10", "edge-cloud")
CLOUD = "cloud"
JSAC_SITES = 9
JSAC_WORKERS = (3, 4)
JSAC_CLOUD_WORKERS = 10
JSAC_EDGE_HOURS, JSAC_CLOUD_HOURS = (1.0, 4.0), (10.0, 15.0)
"""Δ: to bring one chunk to another edge site, and to the cloud."""
METRO_BANDWIDTH, METRO_LATENCY, SECONDS_PER_KM = 1e9, 0.002, 5e-6
"""Between edge sites of one city [I]: 1 Gbit/s; 2 ms for the equipment, and light in fibre."""
INTERNAL_LINK = Link(10e9, 0.0002)
"""Within a site of the preset ``edge-cloud`` [I]."""
CLOUD_REGION = "Singapore"
CLOUD_NODES, CLOUD_GPUS = 4, 8
EDGE_NODES, EDGE_GPUS = (2, 3), (1, 2, 4)


def preset_cluster(name: str, seed: int) -> ClusterSpec:
    """Draw the cluster of a preset; the same arguments draw the same cluster.

    ``jsac``: nine edge sites of three or four workers of one GPU each [P, second hand: algorithms.md 1.4], without the
    paper's cloud: it has no limit, takes most chunks, and hides what the policies do. ``jsac-cloud``: the same sites
    and links (for the same seed), and that cloud. ``jsac-cloud10``: the cloud has ten workers of one GPU each [I], so
    that it helps and still has queues. Each worker is a node; its CPU and memory never run out, since
    nothing is known about the hosts of parameter servers [I]. The time Δ to bring a chunk from one edge site to another
    is drawn by pair from 1 to 4 h, to the cloud by edge site from 10 to 15 h, uniformly [I]; the bandwidth is what
    takes so long for a chunk of `drawn_jobs.CHUNK_BYTES`.

    ``edge-cloud`` [I, of measured parts]: twelve base stations in the centre of Melbourne as edge sites, each with two
    or three equal nodes of one, two or four GPUs of a drawn kind, and a cloud of four nodes with eight V100. A kind's
    speed is the median over the models of Gavel's measurements, relative to V100. The path to the cloud is the one
    measured between AWS Sydney, the measured region nearest to Melbourne, and Singapore, nearest to it by latency;
    the latencies are read as round trips, so half is taken. Nobody measured paths inside Melbourne: see
    `METRO_BANDWIDTH`. With jobs of `jsac_jobs` a chunk takes 2.8 h to another edge site and 3.4 h to the cloud.

    Raises:
        ClusterError: there is no such preset.
    """
    draw = random.Random(f"preset {seed}")  # noqa: S311 - statistics, no secret
    if name == "edge-cloud":
        return _edge_cloud(draw)
    if name in ("jsac", "jsac-cloud", "jsac-cloud10"):
        return _jsac(name, draw)
    raise ClusterError(f"there is no preset {name[:40]!r}: choose one of {', '.join(PRESETS)}")


def _jsac(name: str, draw: random.Random) -> ClusterSpec:
    edges = [f"edge-{number}" for number in range(1, JSAC_SITES + 1)]
    links = {edge: {edge: Link(FASTEST_LINK)} for edge in edges}
    nodes = []
    for edge in edges:
        workers = draw.randint(*JSAC_WORKERS)
        nodes += [_jsac_worker(edge, i) for i in range(workers)]
    for one, other in combinations(edges, 2):
        links[one][other] = links[other][one] = Link(FASTEST_LINK / draw.uniform(*JSAC_EDGE_HOURS), dedicated=True)
    sites = [Site(edge, Tier.EDGE, links=links[edge]) for edge in edges]
    if name != "jsac":
        paths = {edge: Link(FASTEST_LINK / draw.uniform(*JSAC_CLOUD_HOURS), dedicated=True) for edge in edges}
        unlimited = name == "jsac-cloud"
        sites.append(Site(CLOUD, Tier.CLOUD, unlimited=unlimited, links=paths))
        nodes += [] if unlimited else [_jsac_worker(CLOUD, i) for i in range(JSAC_CLOUD_WORKERS)]
    return ClusterSpec(name, tuple(nodes), tuple(sites))


def _jsac_worker(site: str, index: int) -> Node:
    return _node(f"{site}-{index}", site, Resources(AMPLE.cpu, AMPLE.memory, 1, AMPLE.pods))


def _edge_cloud(draw: random.Random) -> ClusterSpec:
    speeds = {row["kind"]: float(row["speed"]) for row in _table("gpu_speeds.csv")}
    places = {f"eua-{row['site_id']}": _kilometres(row) for row in _table("edge_sites.csv")}
    measured = {row["region"]: row for row in _table("wan_links.csv")}[CLOUD_REGION]
    wan = Link(1e9 * float(measured["bandwidth_gbps"]), float(measured["latency_ms"]) / 2000)
    links = {edge: {edge: INTERNAL_LINK, CLOUD: wan} for edge in places}
    for one, other in combinations(places, 2):
        distance = hypot(places[one][0] - places[other][0], places[one][1] - places[other][1])
        path = Link(METRO_BANDWIDTH, METRO_LATENCY + distance * SECONDS_PER_KM)
        links[one][other] = links[other][one] = path
    nodes = []
    for edge in places:
        kind, gpus = draw.choice(sorted(speeds)), draw.choice(EDGE_GPUS)
        nodes += [_gpu_node(edge, i, gpus, kind, speeds[kind]) for i in range(draw.randint(*EDGE_NODES))]
    nodes += [_gpu_node(CLOUD, i, CLOUD_GPUS, "V100", speeds["V100"]) for i in range(CLOUD_NODES)]
    sites = [Site(edge, Tier.EDGE, links=links[edge]) for edge in places]
    sites.append(Site(CLOUD, Tier.CLOUD, links={CLOUD: INTERNAL_LINK}))
    return ClusterSpec("edge-cloud", tuple(nodes), tuple(sites))


def _gpu_node(site: str, index: int, gpus: int, kind: str, speed: float) -> Node:
    """Each GPU comes with 16 cores and 64 GiB: also room for the parameter servers."""
    offered = Resources(16_000 * gpus, 64 * 2**30 * gpus, gpus, 110)
    return _node(f"{site}-{index}", site, offered, {GPU_LABEL: kind}, speed)


def _node(name: str, site: str, offered: Resources, labels: dict[str, str] | None = None, speed: float = 1.0) -> Node:
    return Node(name, site, offered, labels=labels or {}, speed=speed)


def _kilometres(row: dict[str, str]) -> tuple[float, float]:
    """Position on a plane: good to a metre over the few kilometres of a city's centre."""
    latitude, longitude = float(row["latitude"]), float(row["longitude"])
    return (111.2 * latitude, 111.2 * longitude * cos(radians(-37.8)))


def _table(name: str) -> list[dict[str, str]]:
    text = files("tranche.simulation").joinpath("data", name).read_text()
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))
