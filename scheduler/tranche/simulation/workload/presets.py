"""Named settings: clusters of published evaluations, drawn from a seed, and the jobs that go with them.

docs/reference/presets.md lists each parameter with its mark; docs/explanation/algorithms.md, "Marks and units",
explains the marks.
"""

import csv
import random
from collections.abc import Mapping
from importlib.resources import files
from itertools import combinations
from math import cos, hypot, radians
from types import MappingProxyType

from tranche.estimate import USUAL_BITS_PER_SECOND, LevelNetwork
from tranche.model import Link, Node, Resources, Site, Tier
from tranche.policies.seeded_choice import uniform
from tranche.simulation.cluster_spec import AMPLE, GPU_LABEL, ClusterError, ClusterSpec
from tranche.simulation.workload.jsac import CLOUD_HOURS, EDGE_HOURS, FASTEST_LINK, JSAC_EDGES, PS_HOST_LABEL, jsac_jobs
from tranche.simulation.workload.jsac_options import CLUSTER_OPTIONS, USUAL, JsacOptions

__all__ = ["DEPRECATED", "PRESETS", "JsacOptions", "jsac_jobs", "preset_cluster"]

PRESETS: Mapping[str, str] = MappingProxyType(
    {
        "jsac-cloud": "setting of JSAC'22: nine edge sites of three or four GPUs, and an unlimited cloud",
        "jsac-edge": "the same edge sites and links without the cloud",
        "jsac-cloud10": "the same edge sites with a cloud of ten GPUs",
        "edge-cloud": "twelve base stations in Melbourne with GPUs of several kinds, and 32 V100 in Singapore",
    }
)
"""Names and descriptions of the presets."""
DEPRECATED = {"jsac": "jsac-edge"}
"""Present names of presets, by their earlier names."""
CLOUD = "cloud"
JSAC_WORKERS = (3, 4)
"""Workers of an edge site [C2]."""
JSAC_CLOUD_WORKERS, JSAC_CLOUD_PS_HOSTS = 10, 5
"""Workers and parameter server hosts of a limited cloud [C2]."""
SPEEDS = (0.5, 1.5)
"""Range of speeds of mixed workers, mean 1 [I]."""
METRO_BANDWIDTH, METRO_LATENCY, SECONDS_PER_KM = 1e9, 0.002, 5e-6
"""Links between edge sites of one city [I]: 1 Gbit/s; 2 ms for the equipment, and light in fibre."""
INTERNAL_LINK = Link(10e9, 0.0002)
"""Link within a site of the preset ``edge-cloud`` [I]."""
EDGE_CLOUD_LEVELS = (
    USUAL_BITS_PER_SECOND[0],
    INTERNAL_LINK.bits_per_second,
    INTERNAL_LINK.bits_per_second,
    METRO_BANDWIDTH,
)
"""Capacities of the network model within a node, a rack and a site, and between sites [I]: the links of a site share
one uplink, which is as fast as each of them."""
CLOUD_REGION = "Singapore"
CLOUD_NODES, CLOUD_GPUS = 4, 8
EDGE_NODES, EDGE_GPUS = (2, 3), (1, 2, 4)


def preset_cluster(name: str, seed: int, options: JsacOptions = USUAL) -> ClusterSpec:
    """Draw the cluster of a preset; the same arguments draw the same cluster.

    ``jsac-cloud`` is the setting of JSAC'22: nine edge sites of three or four workers of one GPU each [C2], and a cloud
    without limit [P2]. ``jsac-edge`` [I] has the same edge sites and links for the same seed, and no cloud: with one,
    most chunks go there, and policies differ less. ``jsac-cloud10`` [I]: the cloud has ten workers of one GPU each.
    Each worker is a node; its CPU and memory never run out unless `JsacOptions.ps_hosts` limits the hosts of parameter
    servers. With data at home, the time Δ to bring a chunk from one edge site to another is drawn by pair from 1 to
    4 h, to the cloud by edge site from 10 to 15 h, uniformly [ranges P2, by pair I]; the bandwidth of a link is the one
    with which a chunk of `drawn_jobs.CHUNK_BYTES` takes Δ. With data from outside the jobs carry their own Δ.

    ``edge-cloud`` [I, of measured parts]: twelve base stations in the centre of Melbourne as edge sites, each with two
    or three equal nodes of one, two or four GPUs of a drawn kind, and a cloud of four nodes with eight V100. A kind's
    speed is the median over the models of Gavel's measurements, relative to V100. The path to the cloud is the one
    measured between AWS Sydney, the measured region nearest to Melbourne, and Singapore, nearest to it by latency;
    the latencies are read as round trips, so half is taken. No measurement of paths inside Melbourne is known: see
    `METRO_BANDWIDTH`. The network model is on: all that leaves or enters an edge site shares one uplink of that
    bandwidth (`EDGE_CLOUD_LEVELS`). With jobs of `jsac_jobs` a chunk that shares no link takes 2.8 h to another edge
    site and 3.4 h to the cloud.

    Raises:
        ClusterError: The preset does not exist, or an option does not apply to it.
    """
    name = DEPRECATED.get(name, name)
    if name not in PRESETS:
        raise ClusterError(f"there is no preset {name[:40]!r}: choose one of {', '.join(PRESETS)}")
    if name != "edge-cloud":
        return _jsac(name, seed, options)
    if wrong := [option for option in options.changed() if option in CLUSTER_OPTIONS]:
        raise ClusterError(f"{wrong[0]} is an option of the presets jsac-…, not of {name}")
    return _edge_cloud(random.Random(f"preset {seed}"))  # noqa: S311 - statistics, no secret


def _jsac(name: str, seed: int, options: JsacOptions) -> ClusterSpec:
    """Draw the nine usual sites in any case, so that an option that adds or removes sites changes no other draw."""
    draw = random.Random(f"preset {seed}")  # noqa: S311 - statistics, no secret
    usual = range(JSAC_EDGES)
    workers = {edge: draw.randint(*JSAC_WORKERS) for edge in usual}
    hours = {pair: draw.uniform(*EDGE_HOURS) for pair in combinations(usual, 2)}
    far = {edge: draw.uniform(*CLOUD_HOURS) for edge in usual}
    count = options.edges or JSAC_EDGES
    for edge in range(JSAC_EDGES, count):
        low, high = JSAC_WORKERS
        workers[edge] = low + int(uniform(seed, "workers", edge) * (high - low + 1))
        far[edge] = _between(CLOUD_HOURS, uniform(seed, "far", edge))
        hours |= {(other, edge): _between(EDGE_HOURS, uniform(seed, "hours", other, edge)) for other in range(edge)}
    names = [f"edge-{number}" for number in range(1, count + 1)]
    links = {edge: {edge: Link(FASTEST_LINK)} for edge in names}
    for first, second in combinations(range(count), 2):
        path = Link(FASTEST_LINK / hours[first, second], dedicated=True)
        links[names[first]][names[second]] = links[names[second]][names[first]] = path
    nodes = []
    for edge, site in enumerate(names):
        nodes += _jsac_nodes(site, options.workers_per_edge or workers[edge], options.ps_hosts or 0, seed, options)
    sites = [Site(site, Tier.EDGE, links=links[site]) for site in names]
    if name != "jsac-edge":
        paths = {site: Link(FASTEST_LINK / far[edge], dedicated=True) for edge, site in enumerate(names)}
        unlimited = name == "jsac-cloud"
        sites.append(Site(CLOUD, Tier.CLOUD, unlimited=unlimited, links=paths))
        if not unlimited:
            hosts = JSAC_CLOUD_PS_HOSTS if options.ps_hosts else 0
            nodes += _jsac_nodes(CLOUD, JSAC_CLOUD_WORKERS, hosts, seed, options)
    return ClusterSpec(name, tuple(nodes), tuple(sites))


def _jsac_nodes(site: str, workers: int, ps_hosts: int, seed: int, options: JsacOptions) -> list[Node]:
    """Return workers of one GPU, and machines without GPU that have room for one parameter server each."""
    nodes = []
    for index in range(workers):
        name = f"{site}-{index}"
        speed = _between(SPEEDS, uniform(seed, "speed", name)) if options.speeds == "mixed" else 1.0
        nodes.append(_node(name, site, Resources(AMPLE.cpu, AMPLE.memory, 1, AMPLE.pods), speed=speed))
    for index in range(ps_hosts):
        host = Resources(AMPLE.cpu, AMPLE.memory, 0, pods=1)
        nodes.append(_node(f"{site}-ps-{index}", site, host, {PS_HOST_LABEL: "true"}))
    return nodes


def _between(bounds: tuple[float, float], share: float) -> float:
    return bounds[0] + (bounds[1] - bounds[0]) * share


def _edge_cloud(draw: random.Random) -> ClusterSpec:
    speeds = {row["kind"]: float(row["speed"]) for row in _table("gpu_speeds.csv")}
    places = {f"eua-{row['site_id']}": _kilometres(row) for row in _table("edge_sites.csv")}
    measured = {row["region"]: row for row in _table("wan_links.csv")}[CLOUD_REGION]
    wan = Link(1e9 * float(measured["bandwidth_gbps"]), float(measured["latency_ms"]) / 2000)
    links = {edge: {edge: INTERNAL_LINK, CLOUD: wan} for edge in places}
    for first, second in combinations(places, 2):
        distance = hypot(places[first][0] - places[second][0], places[first][1] - places[second][1])
        path = Link(METRO_BANDWIDTH, METRO_LATENCY + distance * SECONDS_PER_KM)
        links[first][second] = links[second][first] = path
    nodes = []
    for edge in places:
        kind, gpus = draw.choice(sorted(speeds)), draw.choice(EDGE_GPUS)
        nodes += [_gpu_node(edge, i, gpus, kind, speeds[kind]) for i in range(draw.randint(*EDGE_NODES))]
    nodes += [_gpu_node(CLOUD, i, CLOUD_GPUS, "V100", speeds["V100"]) for i in range(CLOUD_NODES)]
    sites = [Site(edge, Tier.EDGE, links=links[edge]) for edge in places]
    sites.append(Site(CLOUD, Tier.CLOUD, links={CLOUD: INTERNAL_LINK}))
    return ClusterSpec("edge-cloud", tuple(nodes), tuple(sites), level_network=LevelNetwork(EDGE_CLOUD_LEVELS))


def _gpu_node(site: str, index: int, gpus: int, kind: str, speed: float) -> Node:
    """Return a GPU node; each GPU comes with 16 cores and 64 GiB: also room for the parameter servers."""
    offered = Resources(16_000 * gpus, 64 * 2**30 * gpus, gpus, 110)
    return _node(f"{site}-{index}", site, offered, {GPU_LABEL: kind}, speed)


def _node(name: str, site: str, offered: Resources, labels: dict[str, str] | None = None, speed: float = 1.0) -> Node:
    return Node(name, site, offered, labels=labels or {}, speed=speed)


def _kilometres(row: dict[str, str]) -> tuple[float, float]:
    """Return the position on a plane: good to a metre over the few kilometres of a city's centre."""
    latitude, longitude = float(row["latitude"]), float(row["longitude"])
    return (111.2 * latitude, 111.2 * longitude * cos(radians(-37.8)))


def _table(name: str) -> list[dict[str, str]]:
    text = files("tranche.simulation").joinpath("data", name).read_text()
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))
