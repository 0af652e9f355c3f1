"""Presets: clusters and jobs drawn within the ranges that their sources give."""

import pickle
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise, permutations, product
from pathlib import Path
from statistics import mean

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tranche.estimate import LevelNetwork, NetworkPrior, batch_seconds, bits_per_second, transfer_seconds
from tranche.model import Job, Tier
from tranche.simulation.cluster_spec import GPU_LABEL, ClusterError, ClusterSpec, pool
from tranche.simulation.workload.jsac import CHUNK_BYTES, work_seconds
from tranche.simulation.workload.presets import PRESETS, jsac_jobs, preset_cluster

ROOT = Path(__file__).resolve().parents[3]
PRIOR = NetworkPrior()
HOUR = 3600.0
ARRIVALS = [float(at * at) for at in range(500)]


def drawn(cluster: ClusterSpec, *, jobs: int = 200, load: float = 0.9, scale: float = 1.0, seed: int = 1) -> list[Job]:
    return jsac_jobs(ARRIVALS, jobs=jobs, load=load, chunk_scale=scale, seed=seed, cluster=cluster)


@pytest.mark.parametrize("name", PRESETS)
def test_a_seed_draws_the_same_cluster_and_another_seed_another(name: str) -> None:
    assert preset_cluster(name, 7) == preset_cluster(name, 7)
    assert preset_cluster(name, 7) != preset_cluster(name, 8)
    assert pickle.loads(pickle.dumps(preset_cluster(name, 7))) == preset_cluster(name, 7)


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ClusterError, match="there is no preset 'fog': choose one of jsac-cloud, jsac-edge, jsac-cloud10, edge-cloud"
    ):
        preset_cluster("fog", 1)


@pytest.mark.parametrize("seed", range(5))
def test_jsac_edge_has_nine_edge_sites_of_three_or_four_workers(seed: int) -> None:
    spec = preset_cluster("jsac-edge", seed)
    assert [site.tier for site in spec.sites] == [Tier.EDGE] * 9
    by_site = [[node for node in spec.nodes if node.site == site.name] for site in spec.sites]
    assert {len(nodes) for nodes in by_site} <= {3, 4}
    assert {node.allocatable.gpus for node in spec.nodes} == {1}
    assert len({node.name for node in spec.nodes}) == len(spec.nodes)


def test_jsac_cloud_adds_a_cloud_to_the_sites_of_jsac_edge() -> None:
    edge, both = preset_cluster("jsac-edge", 3), preset_cluster("jsac-cloud", 3)
    assert both.nodes == edge.nodes
    assert both.sites[:-1] == edge.sites
    assert (both.sites[-1].tier, both.sites[-1].unlimited) == (Tier.CLOUD, True)


def test_jsac_cloud10_has_same_cloud_links_and_ten_workers() -> None:
    unlimited, limited = preset_cluster("jsac-cloud", 3), preset_cluster("jsac-cloud10", 3)
    assert limited.nodes[:-10] == unlimited.nodes
    assert [(node.site, node.allocatable.gpus) for node in limited.nodes[-10:]] == [("cloud", 1)] * 10
    assert limited.sites[:-1] == unlimited.sites[:-1]
    assert limited.sites[-1] == replace(unlimited.sites[-1], unlimited=False)


@pytest.mark.parametrize("seed", range(3))
def test_links_bring_a_chunk_in_the_hours_of_the_setting(seed: int) -> None:
    spec = preset_cluster("jsac-cloud", seed)
    sites = {site.name: site for site in spec.sites}
    job = replace(drawn(spec, jobs=1)[0], upload_seconds={})
    times: dict[Tier, list[float]] = {Tier.EDGE: [], Tier.CLOUD: []}
    for here, there in permutations(sites, 2):
        if sites[here].tier is Tier.EDGE:
            seconds = transfer_seconds(PRIOR, sites, replace(job, data_site=here), there)
            times[sites[there].tier].append(seconds / HOUR)
            assert 100e6 <= bits_per_second(PRIOR, sites, here, there) <= 5e9
            assert bits_per_second(PRIOR, sites, here, there) == bits_per_second(PRIOR, sites, there, here)
    edge, cloud = times[Tier.EDGE], times[Tier.CLOUD]
    assert (len(edge), len(cloud)) == (72, 9)
    assert 1 <= min(edge) < 1.5 < 3.5 < max(edge) <= 4
    assert 10 <= min(cloud) < max(cloud) <= 15
    assert transfer_seconds(PRIOR, sites, replace(job, data_site="edge-1"), "edge-1") == 0


def test_drawn_jobs_cover_the_published_ranges() -> None:
    spec = preset_cluster("jsac-edge", 1)
    sites = {site.name: site for site in spec.sites}
    jobs = drawn(spec, jobs=500)
    assert {job.chunks for job in jobs} == {27, 60, 115}
    assert all(job.max_workers == job.chunks and not job.is_gang for job in jobs)
    assert {job.data_site for job in jobs} == set(sites)
    assert {job.batches_per_chunk for job in jobs} == {58}
    assert (min(job.epochs for job in jobs), max(job.epochs for job in jobs)) == (20, 60)
    steps = sorted(job.step_seconds for job in jobs)
    assert 3.61 <= steps[0] < 5
    assert 150 < steps[-1] <= 180.1
    assert steps[250] == pytest.approx((3.6 * 180) ** 0.5, rel=0.2)  # the median of a log-uniform draw
    for job in jobs:
        own = batch_seconds(job, bits_per_second(PRIOR, sites, job.data_site or "", job.data_site or ""))
        assert 2 * 30e6 * 8 / 5e9 <= own - job.step_seconds <= 2 * 575e6 * 8 / 100e6
        assert job.server is not None
        assert (job.worker.requests.gpus, job.server.requests.gpus, job.servers) == (1, 0, 1)
        for shape in (job.worker, job.server):
            assert 1000 <= shape.requests.cpu <= 4000
            assert 3e9 <= shape.requests.memory <= 6e9


def test_communication_between_edge_sites_is_as_fast_as_within() -> None:
    spec = preset_cluster("jsac-edge", 2)
    sites = {site.name: site for site in spec.sites}
    for job in drawn(spec, jobs=20):
        own = batch_seconds(job, job.bits_per_second)
        for here, there in product(sites, repeat=2):
            assert batch_seconds(job, bits_per_second(PRIOR, sites, here, there)) == pytest.approx(own)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("load", [0.7, 1.1])
def test_the_offered_load_is_the_one_asked_for(name: str, load: float) -> None:
    spec = preset_cluster(name, 1)
    jobs = drawn(spec, load=load)
    slots = sum(node.allocatable.gpus * node.speed for node in spec.nodes)
    span = jobs[-1].submitted - jobs[0].submitted
    work = sum(j.chunks * j.epochs * 58 * (j.step_seconds + 2 * j.gradient_bits / j.bits_per_second) for j in jobs)
    assert work / (slots * span) == pytest.approx(load)
    assert work == pytest.approx(sum(work_seconds(job) for job in jobs))


def test_the_pattern_of_arrivals_is_a_stretch_of_the_log() -> None:
    jobs = drawn(preset_cluster("jsac-edge", 1), jobs=50)
    gaps = [later.submitted - one.submitted for one, later in pairwise(jobs)]
    # The gaps of the squares are 2k+1, so consecutive ones differ by the same amount.
    steps = [later - one for one, later in pairwise(gaps)]
    assert steps == pytest.approx([steps[0]] * 48, rel=1e-6)
    assert jobs[0].submitted == 0
    starts = {round(gaps[0] / steps[0]) for gaps, steps in (_shape_of(seed) for seed in range(5))}
    assert len(starts) > 1


def _shape_of(seed: int) -> tuple[list[float], list[float]]:
    jobs = drawn(preset_cluster("jsac-edge", 1), jobs=50, seed=seed)
    gaps = [later.submitted - one.submitted for one, later in pairwise(jobs)]
    return gaps, [later - one for one, later in pairwise(gaps)]


def test_the_scale_multiplies_chunks_and_leaves_their_work() -> None:
    spec = preset_cluster("jsac-edge", 1)
    whole, tenth, least = drawn(spec), drawn(spec, scale=0.1), drawn(spec, scale=1e-6)
    assert {(a.chunks, b.chunks) for a, b in zip(whole, tenth, strict=True)} == {(27, 3), (60, 6), (115, 12)}
    assert {job.chunks for job in least} == {1}
    assert [job.batches_per_chunk_total * job.step_seconds for job in whole] == [
        job.batches_per_chunk_total * job.step_seconds for job in tenth
    ]
    assert {job.chunk_bytes for job in whole + tenth} == {CHUNK_BYTES}


def test_a_seed_draws_the_same_jobs_and_another_seed_others() -> None:
    spec = preset_cluster("jsac-edge", 1)
    assert drawn(spec, seed=5) == drawn(spec, seed=5)
    one, other = drawn(spec, seed=5), drawn(spec, seed=6)
    assert [job.step_seconds for job in one] != [job.step_seconds for job in other]
    assert len({job.key for job in one}) == len(one)
    assert [job.key for job in one] == sorted(job.key for job in one)


def test_the_same_seed_draws_the_same_jobs_at_every_load() -> None:
    spec = preset_cluster("jsac-edge", 1)
    low, high = drawn(spec, load=0.5), drawn(spec, load=1.0)
    assert [replace(job, submitted=0.0) for job in low] == [replace(job, submitted=0.0) for job in high]
    assert low[-1].submitted == pytest.approx(2 * high[-1].submitted)


def test_a_single_job_arrives_at_once() -> None:
    assert [job.submitted for job in drawn(preset_cluster("jsac-edge", 1), jobs=1)] == [0.0]


def test_without_edge_sites_the_data_are_where_the_nodes_are() -> None:
    assert {job.data_site for job in drawn(pool(4), jobs=10)} == {"pool"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"jobs": 0}, "jobs is 0: draw at least 1"),
        ({"jobs": 501}, "jobs is 501, but the log of arrivals has only 500: draw fewer"),
        ({"load": 0.0}, "load is 0.0: it must be from 0.001 to 1000"),
        ({"load": float("nan")}, "load is nan: it must be from 0.001 to 1000"),
        ({"load": float("inf")}, "load is inf: it must be from 0.001 to 1000"),
        ({"chunk_scale": 0.0}, "chunk_scale is 0.0: it must be above 0, at most 17.4"),
        ({"chunk_scale": 18.0}, "chunk_scale is 18.0: it must be above 0, at most 17.4"),
        ({"chunk_scale": float("nan")}, "chunk_scale is nan"),
        ({"arrivals": [5.0] * 300}, "no 200 consecutive arrivals at different times"),
        ({"cluster": ClusterSpec("bare", (), ())}, "cluster bare: no node has a GPU"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: dict[str, object], words: str) -> None:
    good = {
        "arrivals": ARRIVALS,
        "jobs": 200,
        "load": 0.9,
        "chunk_scale": 1.0,
        "cluster": preset_cluster("jsac-edge", 1),
    }
    chosen = {**good, **arguments, "seed": 1}
    with pytest.raises(ValueError, match=words):
        jsac_jobs(chosen.pop("arrivals"), **chosen)  # type: ignore[arg-type]


@settings(max_examples=30)
@example([0.0, 5e-324], 2, 0)
@given(st.lists(st.floats(0, 1e9), min_size=2, max_size=40), st.integers(1, 40), st.integers(0, 3))
def test_arrivals_never_go_back_in_time(arrivals: list[float], jobs: int, seed: int) -> None:
    try:
        made = jsac_jobs(
            arrivals, jobs=jobs, load=0.9, chunk_scale=0.1, seed=seed, cluster=preset_cluster("jsac-edge", seed)
        )
    except ValueError:
        return
    times = [job.submitted for job in made]
    assert times == sorted(times)
    assert len(made) == jobs


def test_edge_cloud_has_twelve_uniform_sites_and_limited_cloud() -> None:
    spec = preset_cluster("edge-cloud", 1)
    assert [site.tier for site in spec.sites] == [Tier.EDGE] * 12 + [Tier.CLOUD]
    assert not any(site.unlimited for site in spec.sites)
    for site in spec.sites[:-1]:
        nodes = [node for node in spec.nodes if node.site == site.name]
        assert len(nodes) in (2, 3)
        assert len({(node.speed, node.labels[GPU_LABEL], node.allocatable) for node in nodes}) == 1
    assert sum(node.allocatable.gpus for node in spec.nodes if node.site == "cloud") == 32
    speeds = {node.labels[GPU_LABEL]: node.speed for node in spec.nodes}
    assert speeds == {"K80": 0.247, "P100": 0.813, "V100": 1.0}


def test_only_edge_cloud_has_the_network_model() -> None:
    networks = {name: preset_cluster(name, 1).level_network for name in PRESETS}
    assert networks.pop("edge-cloud") == LevelNetwork((300e9, 10e9, 10e9, 1e9))
    assert set(networks.values()) == {None}


def test_the_paths_of_edge_cloud_are_the_measured_ones() -> None:
    sites = {site.name: site for site in preset_cluster("edge-cloud", 1).sites}
    edges = [name for name in sites if name != "cloud"]
    for edge in edges:
        assert sites[edge].links["cloud"].bits_per_second == pytest.approx(0.816e9)
        assert sites[edge].links["cloud"].latency_seconds == pytest.approx(0.046)
    latencies = [sites[a].links[b].latency_seconds for a, b in permutations(edges, 2)]
    assert 0.002 < min(latencies) < mean(latencies) < max(latencies) < 0.0021


def test_the_shipped_figures_are_those_of_the_profiles() -> None:
    command = [sys.executable, str(ROOT / "benchmarks/derive_presets.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
