"""Use of each site by simulated jobs, in exact numbers: GPU time, chunks, copies, and unused copies."""

from dataclasses import replace
from math import fsum
from typing import Any

import pytest

from support.builders import job, node, worker
from tranche.model import Job, Link, Node, Site, Tier
from tranche.simulation.analysis.summary import summarize
from tranche.simulation.engine.result import JobResult, SimulationResult, SiteUse
from tranche.simulation.engine.site_use import add_uses
from tranche.simulation.scenario import NodeFailure, Scenario, run

CHUNK = 20e6
"""Bytes of a chunk: 20 s on a link of 8 Mbit/s."""
LINKS = {"cloud": Link(8e6), "edge-b": Link(8e6)}
EDGE = Site("edge-a", links=LINKS)
CLOUD = Site("cloud", Tier.CLOUD, unlimited=True)
HOME: dict[str, Any] = {"data_site": "edge-a", "chunk_bytes": CHUNK}


def ran(policy: str, jobs: list[Job], nodes: list[Node], sites: tuple[Site, ...], **changes: Any) -> SimulationResult:
    return run(Scenario(tuple(jobs), tuple(nodes), sites, policy, **changes))


def by_site(result: SimulationResult) -> dict[str, SiteUse]:
    return {one.site: one for one in result.sites}


def only(result: SimulationResult) -> JobResult:
    (one,) = result.jobs
    return one


def test_sites_of_an_edge_and_a_cloud_share_the_chunks() -> None:
    # Q at the edge behind k own chunks is 100 (k + 1) / 4, in the cloud (20 + 100) / 4: one chunk stays at the edge
    result = ran("chunk-faithful", [job("x", chunks=4, **HOME)], [node("a")], (EDGE, CLOUD), by_site=True)
    assert result.sites == (
        SiteUse("cloud", "Cloud", True, 300.0, 300.0, 3, 3 * CHUNK, 0.0),
        SiteUse("edge-a", "Edge", False, 100.0, 100.0, 1, 0.0, 0.0),
    )
    one = only(result)
    assert (one.cloud_gpu_seconds, one.use.copied_bytes, one.use.in_vain_bytes) == (300.0, 3 * CHUNK, 0.0)
    assert (one.gpu_seconds, one.jct_seconds) == (400.0, 160.0)  # the third upload ends at 60 s
    assert one.use.sites == result.sites


def test_use_of_nodes_counts_no_time_at_unlimited_sites() -> None:
    result = ran("chunk-faithful", [job("x", chunks=4, **HOME)], [node("a")], (EDGE, CLOUD))
    summary = summarize(result)
    assert (summary.gpu_seconds, summary.cloud_gpu_seconds, summary.makespan_seconds) == (400.0, 300.0, 160.0)
    assert summary.utilisation == 100 / 160


def test_nodes_of_unlimited_sites_are_no_capacity() -> None:
    result = ran("fifo", [job("x")], [node("a"), node("made", "cloud")], (EDGE, CLOUD))
    assert result.capacity_gpus == 1


def test_slowdown_is_over_the_fastest_node_or_unlimited_site() -> None:
    slow = replace(node("a"), speed=0.5)
    assert only(ran("fifo", [job("x")], [slow], (EDGE,))).slowdown == 1.0
    one = only(ran("fifo", [job("x", worker=worker(2))], [slow], (EDGE, CLOUD)))
    assert (one.jct_seconds, one.ideal_seconds, one.slowdown) == (100.0, 100.0, 1.0)
    fast = replace(CLOUD, speed=2.0)
    one = only(ran("fifo", [job("x", worker=worker(2))], [slow], (EDGE, fast)))
    assert (one.jct_seconds, one.ideal_seconds, one.slowdown) == (50.0, 50.0, 1.0)


def test_what_single_jobs_used_adds_up_to_what_the_run_used() -> None:
    jobs = [job(f"j{number}", 10.0 * number, chunks=3, **HOME) for number in range(4)]
    result = ran("chunk", jobs, [node("a")], (EDGE, CLOUD), by_site=True)
    assert len({one.use.sites for one in result.jobs}) > 1
    assert add_uses(use for one in result.jobs for use in one.use.sites) == result.sites
    assert {one.use.sites for one in ran("chunk", jobs, [node("a")], (EDGE, CLOUD)).jobs} == {()}, "not asked for"


@pytest.mark.parametrize("policy", ["chunk-faithful", "chunk"])
def test_cloud_copies_are_either_used_or_wasted(policy: str) -> None:
    """Ten chunks of 60 s at an edge of one GPU; each may be copied to the cloud within 120 s."""
    home = Site("edge-a", links={"cloud": Link(8 * CHUNK / 120, dedicated=True)})
    result = ran(policy, [job("x", chunks=10, seconds=60.0, **HOME)], [node("a")], (home, CLOUD))
    use = by_site(result)
    assert only(result).jct_seconds <= 180.0
    assert use["cloud"].copied_bytes - use["cloud"].in_vain_bytes == use["cloud"].chunks * CHUNK
    assert (use["cloud"].gpu_seconds, use["edge-a"].gpu_seconds) == (7 * 60.0, 3 * 60.0)


def test_data_that_are_everywhere_cost_no_bytes() -> None:
    result = ran("chunk-faithful", [job("x", chunks=4)], [node("a")], (EDGE, CLOUD))
    assert fsum(one.gpu_seconds for one in result.sites) == 400.0
    assert all(one.copied_bytes == 0.0 for one in result.sites)


def test_restart_costs_are_held_and_not_trained() -> None:
    result = ran("fifo", [job("x", chunks=2, max_workers=1)], [node("a")], (Site("edge-a"),), restart_seconds=30.0)
    use = by_site(result)["edge-a"]
    assert use.trained_gpu_seconds == 200.0
    assert use.gpu_seconds - use.trained_gpu_seconds == 30.0 * only(result).starts


def test_a_site_without_windows_is_listed_with_zeros() -> None:
    result = ran("fifo", [job("x")], [node("a"), node("b", "edge-b")], (Site("edge-a"), Site("edge-b")))
    assert by_site(result)["edge-b"] == SiteUse("edge-b", "Edge", False)


class TestBindingPolicies:
    def test_each_placement_away_from_the_data_is_one_upload(self) -> None:
        nodes = [node("a"), node("b", "edge-b")]
        result = ran("least-loaded", [job("x", chunks=4, **HOME)], nodes, (EDGE, Site("edge-b")))
        assert by_site(result)["edge-b"].copied_bytes == by_site(result)["edge-b"].chunks * CHUNK
        assert by_site(result)["edge-b"].chunks > 0
        assert by_site(result)["edge-a"].copied_bytes == 0.0

    def test_a_preempted_chunk_is_not_uploaded_again(self) -> None:
        sites = (EDGE, Site("edge-b"))
        late = job("short", 50.0, seconds=10.0)
        result = ran("chunk-faithful", [job("far", **HOME), late], [node("b", "edge-b")], sites)
        use = by_site(result)["edge-b"]
        assert [one.preemptions for one in result.jobs if one.key == "default/far"] == [1]
        assert (use.copied_bytes, use.in_vain_bytes, use.chunks) == (CHUNK, 0.0, 2)


class TestQueuePolicies:
    SITES = (EDGE, Site("edge-b"))
    ONLY_B = (node("b", "edge-b"),)

    def test_a_window_away_from_the_data_brings_its_chunks_once(self) -> None:
        jobs = [job("far", **HOME), job("short", 50.0, seconds=10.0)]
        result = ran("srsf:uploads=held", jobs, list(self.ONLY_B), self.SITES)
        use = by_site(result)["edge-b"]
        assert (use.copied_bytes, use.in_vain_bytes) == (CHUNK, 0.0)
        assert use.trained_gpu_seconds == 110.0

    def test_interrupted_upload_is_wasted(self) -> None:
        jobs = [job("far", **HOME), job("short", 10.0, seconds=5.0)]  # 10 s into the upload of 20 s
        result = ran("srsf:uploads=held", jobs, list(self.ONLY_B), self.SITES)
        use = by_site(result)["edge-b"]
        assert (use.copied_bytes, use.in_vain_bytes) == (2 * CHUNK, CHUNK)

    def test_uploads_ahead_go_to_every_site_with_nodes(self) -> None:
        links = {name: Link(8e6, dedicated=True) for name in ("edge-b", "edge-c")}
        sites = (Site("edge-a", links=links), Site("edge-b"), Site("edge-c"))
        nodes = [node("b", "edge-b"), node("c", "edge-c")]
        use = by_site(ran("fifo", [job("x", chunks=2, **HOME)], nodes, sites))
        assert [(one.copied_bytes, one.in_vain_bytes, one.chunks) for one in use.values()] == [
            (0.0, 0.0, 0),
            (2 * CHUNK, CHUNK, 1),
            (2 * CHUNK, CHUNK, 1),
        ]

    def test_srpt_pool_copies_nothing(self) -> None:
        result = ran("srpt-pool", [job("far", chunks=3, **HOME)], list(self.ONLY_B), self.SITES)
        assert by_site(result)["edge-b"].copied_bytes == 0.0


class TestChunk:
    def test_copies_of_chunks_that_train_at_home_are_wasted(self) -> None:
        # copies of both chunks go to edge-b ahead of need (20 s each, one after the other); the node there is lost
        # before the first has come, so all of them train at home
        nodes = [node("a"), node("b", "edge-b")]
        failures = (NodeFailure("b", 5.0),)
        result = ran("chunk", [job("x", chunks=2, **HOME)], nodes, (EDGE, Site("edge-b")), failures=failures)
        use = by_site(result)
        assert (use["edge-b"].copied_bytes, use["edge-b"].in_vain_bytes) == (2 * CHUNK, 2 * CHUNK)
        assert (use["edge-a"].chunks, use["edge-b"].chunks) == (2, 0)
        assert only(result).use.in_vain_bytes == 2 * CHUNK

    def test_copy_used_for_training_is_not_wasted(self) -> None:
        nodes = [node("a"), node("b", "edge-b")]
        result = ran("chunk", [job("x", chunks=2, **HOME)], nodes, (EDGE, Site("edge-b")))
        use = by_site(result)["edge-b"]
        assert (use.chunks, use.copied_bytes, use.in_vain_bytes) == (1, 2 * CHUNK, CHUNK)

    def test_copies_of_an_unfinished_job_are_not_yet_wasted(self) -> None:
        nodes = [node("a"), node("b", "edge-b")]
        failures = (NodeFailure("a", 5.0), NodeFailure("b", 6.0))
        result = ran("chunk", [job("x", chunks=2, **HOME)], nodes, (EDGE, Site("edge-b")), failures=failures)
        assert list(result.unfinished) == ["default/x"]
        assert (by_site(result)["edge-b"].copied_bytes, by_site(result)["edge-b"].in_vain_bytes) == (2 * CHUNK, 0.0)


@pytest.mark.parametrize("policy", ["fifo", "srsf", "drf", "chunk", "chunk-faithful", "least-loaded", "srpt-pool"])
def test_the_sums_over_sites_are_those_over_jobs(policy: str) -> None:
    """Every GPU-second and chunk is at exactly one site, with restart costs, preemption and a lost node."""
    jobs = [
        job(f"j{number}", 40.0 * number, chunks=1 + number % 4, seconds=30.0 + 25 * (number % 3), order=number, **HOME)
        for number in range(12)
    ]
    nodes = [node("a", gpus=2), node("b", "edge-b")]
    sites = (EDGE, Site("edge-b"), CLOUD)
    failures = (NodeFailure("b", 130.0, 300.0),)
    result = ran(policy, jobs, nodes, sites, restart_seconds=7.0, failures=failures)
    assert len(result.jobs) == 12
    assert sum(one.chunks for one in result.sites) == sum(one.chunks for one in jobs)
    assert fsum(one.gpu_seconds for one in result.sites) == pytest.approx(fsum(one.gpu_seconds for one in result.jobs))
    assert fsum(one.copied_bytes for one in result.sites) == fsum(one.use.copied_bytes for one in result.jobs)
    assert fsum(one.in_vain_bytes for one in result.sites) == fsum(one.use.in_vain_bytes for one in result.jobs)
    cloud = fsum(one.gpu_seconds for one in result.sites if one.is_cloud)
    assert cloud == pytest.approx(fsum(one.cloud_gpu_seconds for one in result.jobs))
    assert all(0.0 <= one.in_vain_bytes <= one.copied_bytes for one in result.sites)
    assert all(one.trained_gpu_seconds <= one.gpu_seconds for one in result.sites)
