"""Scenarios from recipes."""

from typing import Any

import pytest

from support.builders import job, node
from tranche.model import Site
from tranche.simulation.cluster_spec import GPU_LABEL, ClusterSpec
from tranche.simulation.job_log import TraceRow
from tranche.simulation.recipe import DrawnJobs, FixedCluster, GivenJobs, PresetCluster, Recipe, RowsLog
from tranche.simulation.scenario import run
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState

ROWS = tuple(TraceRow(f"r{i}", 60.0 * i, 1, 100.0) for i in range(20))


def with_own_times(**changes: Any) -> Recipe:
    """Return a job that takes 20 s on the only node, and declares 100 s for other GPU kinds."""
    one = job("a", seconds=100.0, step_seconds_by_kind={"A100": 0.2})
    cluster = ClusterSpec("one", (node("n", labels={GPU_LABEL: "A100"}),), (Site("edge-a"),))
    return Recipe(GivenJobs((one,)), FixedCluster(cluster), **changes)


@pytest.mark.parametrize("changes", [{}, {"unsized": 1.0}, {"estimate_sigma": 1.0}, {"speed_factor": 2.0}])
def test_own_times_on_kinds_follow_factors_and_no_estimate(changes: dict[str, Any]) -> None:
    (result,) = run(with_own_times(**changes).build("fifo", seed=1, load=None)).jobs
    assert result.jct_seconds == pytest.approx(20.0 / changes.get("speed_factor", 1.0))
    assert result.slowdown == pytest.approx(1.0)


def test_speed_factor_divides_processing_time_at_every_site() -> None:
    plain = Recipe(DrawnJobs(RowsLog(ROWS), 20), PresetCluster("jsac-cloud"))
    faster = Recipe(DrawnJobs(RowsLog(ROWS), 20), PresetCluster("jsac-cloud"), speed_factor=1.5)
    before, after = (one.build("chunk-faithful", seed=1, load=0.9) for one in (plain, faster))
    assert before.nodes == after.nodes
    cluster = ClusterState(sites={site.name: site for site in before.sites})
    for old, new in zip(before.jobs, after.jobs, strict=True):
        assert (old.submitted, old.chunks, old.chunk_bytes) == (new.submitted, new.chunks, new.chunk_bytes)
        for site in cluster.sites:
            for colocated in (False, True):
                slow = cluster.batch_seconds(JobState(old), site, colocated)
                assert slow / cluster.batch_seconds(JobState(new), site, colocated) == pytest.approx(1.5)
