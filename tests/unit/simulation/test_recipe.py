"""Scenarios from recipes."""

import pytest

from tranche.simulation.job_log import TraceRow
from tranche.simulation.recipe import DrawnJobs, PresetCluster, Recipe, RowsLog
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState

ROWS = tuple(TraceRow(f"r{i}", 60.0 * i, 1, 100.0) for i in range(20))


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
