"""The lower bound that knows sites, uploads and an unlimited cloud."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.builders import job, node, worker
from tranche.estimate import LevelNetwork
from tranche.model import OUTSIDE, Job, Link, Node, Site, Tier
from tranche.policies import POLICIES, QueuePolicy
from tranche.simulation.analysis.lower_bound import bound_seconds, fluid_srpt_seconds
from tranche.simulation.scenario import Scenario, run
from tranche.simulation.study import lower_bound_seconds
from tranche.simulation.workload.jsac_options import Delay, JsacOptions
from tranche.simulation.workload.presets import jsac_jobs, preset_cluster

MOVING = sorted(
    name
    for name, policy in POLICIES.items()
    if not (isinstance(policy, QueuePolicy) and policy.traits.free_data_movement)
)
"""Policies that bring data to where they train."""
SITES = [Site("a"), Site("b"), Site("cloud", Tier.CLOUD, unlimited=True)]


def outside(name: str, *, a: float, b: float, cloud: float, **changes: object) -> Job:
    delays = {"a": a, "b": b, "cloud": cloud}
    return job(name, data_site=OUTSIDE, upload_seconds=delays, chunk_bytes=1.0, **changes)  # type: ignore[arg-type]


def test_a_job_alone_begins_when_its_first_data_arrive() -> None:
    one = outside("j", a=40.0, b=90.0, cloud=1000.0, chunks=2, seconds=100.0, max_workers=1)
    nodes = [node("a-1", "a"), node("b-1", "b")]
    assert bound_seconds([one], nodes, SITES) == pytest.approx(40 + 200)
    assert bound_seconds([one], nodes, SITES, uploads=False) == pytest.approx(200)


def test_a_job_alone_uses_more_sites_as_its_data_arrive() -> None:
    # a trains from 40 on, b from 90 on, the cloud the rest of ten chunks from 140 on: 100/100 + 50/100 are done then.
    one = outside("j", a=40.0, b=90.0, cloud=140.0, chunks=10, seconds=100.0)
    nodes = [node("a-1", "a"), node("b-1", "b")]
    assert bound_seconds([one], nodes, SITES) == pytest.approx(140 + (10 - 1.0 - 0.5) / (10 / 100))


def test_only_a_cloud_saves_communication() -> None:
    one = job("j", seconds=100.0, gradient_bits=1e6, bits_per_second=1e7, servers=1, server=worker(0))
    assert bound_seconds([one], [node("a-1", "a")], SITES[:1]) == pytest.approx(100 + 100 * 0.2)
    assert bound_seconds([one], [node("a-1", "a")], SITES) == pytest.approx(100)
    far = replace(one, data_site="a", chunk_bytes=1e6, upload_seconds={"cloud": 15.0})
    assert bound_seconds([far], [node("a-1", "a")], SITES) == pytest.approx(15 + 100 - 100 * 15 / 120)


def test_workers_of_many_gpus_need_nodes_that_hold_them() -> None:
    one = job("j", chunks=4, seconds=60.0, worker=worker(2))
    assert bound_seconds([one], [node("a-1", "a", gpus=3), node("b-1", "b", gpus=3)], SITES[:2]) == pytest.approx(120)


def test_faster_nodes_count_first() -> None:
    one = job("j", chunks=3, seconds=60.0, max_workers=2)
    nodes = [node("a-1", "a", speed=0.5), node("a-2", "a", speed=1.5), node("a-3", "a")]
    assert bound_seconds([one], nodes, SITES[:1]) == pytest.approx(3 * 60 / 2.5)


def test_time_on_a_kind_of_its_own_is_the_bound_of_a_job() -> None:
    """On kind k, the first job is four times as fast as declared, and the second half as fast."""
    nodes, sites = [node("a-1", "a", kind="k"), node("a-2", "a", kind="k")], SITES[:1]
    fast, slow = (job(f"j{n}", seconds=100.0, step_seconds_by_kind={"k": s}) for n, s in enumerate((0.25, 2.0)))
    assert bound_seconds([fast], nodes, sites) == pytest.approx(25)
    assert bound_seconds([slow], nodes, sites) == pytest.approx(200)
    queue = [replace(fast, key=f"default/q{i}", uid=f"q{i}") for i in range(4)]
    assert bound_seconds(queue, nodes[:1], sites) == pytest.approx((25 + 50 + 75 + 100) / 4)
    _holds([*queue, slow], nodes, sites, "srtf")


def test_fast_unlimited_site_lowers_the_bound() -> None:
    fast = Site("cloud", Tier.CLOUD, unlimited=True, gpu_kind="k", speed=4.0)
    jobs = [job("a", seconds=100.0), job("b", seconds=100.0, step_seconds_by_kind={"k": 0.1})]
    assert bound_seconds(jobs, [node("a-1", "a")], [SITES[0], fast]) == pytest.approx((25 + 10) / 2)


def test_links_within_a_node_lower_the_bound_of_a_network() -> None:
    network = LevelNetwork((1e12, 1e9, 1e9, 1e9))
    one = job("j", seconds=100.0, gradient_bits=1e9, servers=1, server=worker(0))
    _holds([one], [node("a-1", "a", gpus=2)], SITES[:1], "fifo", network)


def test_without_an_unlimited_site_queues_count_beside_uploads() -> None:
    jobs = [outside(f"j{i}", a=50.0, b=80.0, cloud=1.0, seconds=100.0) for i in range(4)]
    nodes = [node("a-1", "a")]
    without = fluid_srpt_seconds(jobs, nodes)
    assert without == pytest.approx(250)
    assert bound_seconds(jobs, nodes, SITES[:1]) == pytest.approx(50 + without)


def test_gangs_and_jobs_without_data_wait_for_no_upload() -> None:
    gang = job("gang", chunks=2, seconds=30.0, is_gang=True, data_site="a", chunk_bytes=1e12)
    assert bound_seconds([gang], [node("b-1", "b", gpus=2)], SITES[:2]) == pytest.approx(30)
    assert bound_seconds([job("j", seconds=30.0)], [node("b-1", "b")], SITES) == pytest.approx(30)


times = st.floats(0, 400)
drawn_jobs = st.lists(
    st.tuples(st.integers(0, 300), st.integers(1, 6), st.floats(5, 200), st.integers(1, 6), times, times, times),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("policy", MOVING)
@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(rows=drawn_jobs, from_outside=st.booleans(), cloud=st.booleans(), speed=st.sampled_from([0.5, 1.0, 2.0]))
def test_no_policy_is_below_the_bound_with_a_cloud(
    policy: str,
    rows: list[tuple[int, int, float, int, float, float, float]],
    *,
    from_outside: bool,
    cloud: bool,
    speed: float,
) -> None:
    jobs = []
    for i, (at, chunks, seconds, most, a, b, c) in enumerate(rows):
        one = outside(f"j{i}", a=a, b=b, cloud=c, submitted=float(at), chunks=chunks, seconds=seconds)
        one = replace(one, max_workers=most, gradient_bits=1e5, servers=i % 2, server=worker(0) if i % 2 else None)
        jobs.append(one if from_outside else replace(one, data_site="ab"[i % 2]))
    links = {name: Link(1e7) for name in ("a", "b", "cloud")}
    sites = [replace(site, links=links) for site in SITES[: 3 if cloud else 2]]
    nodes = [node("a-1", "a", speed=speed), node("a-2", "a"), node("b-1", "b", gpus=2)]
    _holds(jobs, nodes, sites, policy)


@pytest.mark.parametrize("policy", ["chunk", "chunk-faithful", "fifo", "drf", "least-loaded"])
@pytest.mark.parametrize("delay", ["outside", "home"])
@pytest.mark.parametrize("preset", ["jsac-cloud", "jsac-edge"])
def test_no_policy_is_below_the_bound_in_the_presets(preset: str, delay: Delay, policy: str) -> None:
    options = JsacOptions(delay=delay, speeds="mixed")
    cluster = preset_cluster(preset, 2, options)
    arrivals = [float(at * at) for at in range(50)]
    jobs = jsac_jobs(arrivals, jobs=10, load=1.1, chunk_scale=0.1, seed=2, cluster=cluster, options=options)
    _holds(jobs, list(cluster.nodes), list(cluster.sites), policy)


def _holds(
    jobs: list[Job], nodes: list[Node], sites: list[Site], policy: str, network: LevelNetwork | None = None
) -> None:
    scenario = Scenario(tuple(jobs), tuple(nodes), tuple(sites), policy, level_network=network)
    result = run(scenario)
    if result.jobs:
        bound = lower_bound_seconds(scenario, result)
        assert bound is not None
        assert 0 < bound <= result.average_jct_seconds * (1 + 1e-9)
