"""Counts of the planner by site, in a job's ledger and over all jobs: exact numbers, also after a take-over."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from support.builders import job, node, of_type, planner
from tranche.model import ChunkRequest, Link, Site, SiteProgress, Tier
from tranche.planner import (
    ChunksRequested,
    JobRemoved,
    JobSubmitted,
    NodeChanged,
    NodeRemoved,
    OpenWindow,
    Planner,
    SiteChanged,
    StageData,
    StagingEnded,
    WorkerBound,
    WorkerEnded,
    WorkerStarted,
)
from tranche.state.site_usage import SiteUsage

KEY = "default/j"
CHUNK = 50e9 / 8
"""Bytes of a chunk: 50 s on the link."""
SITES = [Site("here", links={"there": Link(1e9)}), Site("there", Tier.CLOUD, links={"here": Link(1e9)})]
THERE = ("there", Tier.CLOUD)


def cluster(policy: str = "chunk", *names: str) -> Planner:
    return planner(policy, [node(name, name, 1) for name in names or ("here", "there")], SITES)


def submit(p: Planner, at: float = 0.0, **changes: Any) -> None:
    """The job comes, and its first worker trains 10 s later."""
    one = job("j", at, **{"data_site": "here", "chunk_bytes": CHUNK, "chunks": 3, **changes})
    for opened in of_type(OpenWindow, p.handle(JobSubmitted(one), at)):
        p.handle(WorkerStarted(opened.job, opened.window.attempt, at + 10), at + 10)


def used(p: Planner) -> dict[str, SiteProgress]:
    return {one.site: one for one in p.progress_of(KEY).sites}


def end(p: Planner, attempt: int, at: float, outcome: Any = "Succeeded") -> None:
    p.handle(WorkerEnded(KEY, attempt, outcome, at), at)


def taken_over(p: Planner, at: float) -> Planner:
    """Another planner of the same cluster, with what this one would have written."""
    state = p.cluster.jobs[KEY]
    other = Planner(p.policy, p.settings)
    for site in p.cluster.sites.values():
        other.handle(SiteChanged(site), at)
    for known in p.cluster.nodes.values():
        other.handle(NodeChanged(known.node), at)
    other.restore([JobSubmitted(state.job, p.plan_of(KEY, at), p.progress_of(KEY))], at)
    for run in state.runs.values():
        if run.started is not None:
            other.handle(WorkerStarted(KEY, run.window.attempt, run.started), at)
    return other


def test_site_use_counts_from_open_and_training_from_start() -> None:
    p = cluster("fifo", "here")
    submit(p)
    end(p, 1, 110.0)
    assert used(p) == {"here": SiteProgress("here", 110.0, 100.0, 1)}
    assert p.cluster.site_uses == {("here", Tier.EDGE): SiteUsage(110.0, 100.0, 1)}
    assert p.cluster.namespace_uses == {"default": SiteUsage(110.0, 100.0, 1)}


def test_a_window_that_never_trained_has_completed_nothing() -> None:
    p = cluster("fifo", "here")
    p.handle(JobSubmitted(job("j", chunks=2)), 0.0)
    end(p, 1, 30.0, "Lost")
    assert used(p)["here"] == SiteProgress("here", 30.0, 0.0, 0)


@pytest.mark.parametrize(("bound", "held"), [(False, 0.0), (True, 30.0)])
def test_an_unlimited_site_counts_from_the_first_node_on(bound: bool, held: float) -> None:
    """GPUs of a node that no autoscaler can create, whatever their number, are not held."""
    p = planner("chunk", [], [Site("cloud", Tier.CLOUD, unlimited=True)])
    p.handle(JobSubmitted(job("j", chunks=1)), 0.0)
    if bound:
        p.handle(WorkerBound(KEY, 1, "cloud-7"), 20.0)
    end(p, 1, 30.0, "Lost")
    assert used(p).get("cloud", SiteProgress("cloud", 0.0, 0.0, 0)).gpu_seconds == held


def test_a_renewed_window_counts_each_second_once() -> None:
    p = cluster("chunk", "here")
    submit(p, max_workers=1)
    p.handle(ChunksRequested(ChunkRequest(KEY, 1, 1, {0: 100.0}), 110.0), 110.0)
    (run,) = p.cluster.jobs[KEY].runs.values()
    assert run.window.renewed
    end(p, 1, 210.0)
    assert (used(p)["here"].gpu_seconds, used(p)["here"].trained_gpu_seconds) == (210.0, 200.0)


def test_started_copies_count_at_once_and_not_as_wasted() -> None:
    p = cluster()
    submit(p)
    there = used(p)["there"]
    assert (there.copied_bytes, there.in_vain_bytes, there.unused) == (3 * CHUNK, 0.0, frozenset({0, 1, 2}))


def test_copy_is_wasted_when_its_chunk_completes_elsewhere() -> None:
    p = cluster()
    submit(p, max_workers=1)
    end(p, 1, 110.0)
    there = used(p)["there"]
    assert (there.in_vain_bytes, there.unused) == (CHUNK, frozenset({1, 2}))
    assert p.cluster.site_uses[THERE] == SiteUsage(0.0, 0.0, 0, 3 * CHUNK, CHUNK)


def test_namespace_use_is_the_sum_over_sites_and_outlives_jobs() -> None:
    p = cluster()
    submit(p)
    end(p, 1, 110.0)
    p.handle(JobRemoved(KEY), 140.0)
    sites = p.cluster.site_uses.values()
    whole = p.cluster.namespace_uses["default"]
    assert whole.gpu_seconds == sum(one.gpu_seconds for one in sites) > 110.0
    assert whole.trained_gpu_seconds == sum(one.trained_gpu_seconds for one in sites)


def test_copies_of_a_deleted_job_are_wasted() -> None:
    p = cluster()
    submit(p, max_workers=1)
    p.handle(JobRemoved(KEY), 40.0)
    assert p.cluster.site_uses[THERE].in_vain_bytes == 3 * CHUNK
    assert p.cluster.site_uses["here", Tier.EDGE].gpu_seconds == 40.0


def test_copies_of_a_failed_staging_pod_are_wasted() -> None:
    p = cluster()
    one = job("j", 0.0, data_site="here", chunk_bytes=CHUNK, staged=True, chunks=2, seconds=1000.0, max_workers=1)
    (stage,) = of_type(StageData, p.handle(JobSubmitted(one), 0.0))
    attempt = p.cluster.jobs[KEY].stagings["there"].attempt
    p.handle(StagingEnded(KEY, attempt, "Failed"), 20.0)
    assert used(p)["there"].copied_bytes == len(stage.chunks) * CHUNK
    (again,) = of_type(StageData, p.handle(WorkerStarted(KEY, 1, 100.0), 100.0))
    there = used(p)["there"]
    assert (there.copied_bytes, there.in_vain_bytes) == (2 * len(again.chunks) * CHUNK, len(again.chunks) * CHUNK)


def test_a_ledger_that_is_restored_goes_on_where_it_was() -> None:
    """Both planners handle the same ends; one of them took over between two of them."""
    first = cluster("chunk")
    submit(first, max_workers=1)
    end(first, 1, 110.0)
    (run,) = first.cluster.jobs[KEY].runs.values()
    first.handle(WorkerStarted(KEY, run.window.attempt, 120.0), 120.0)
    second = taken_over(first, 150.0)
    assert second.progress_of(KEY).sites == first.progress_of(KEY).sites
    assert second.cluster.site_uses == {}
    for p in (first, second):
        end(p, run.window.attempt, 220.0)
    assert second.progress_of(KEY).done == first.progress_of(KEY).done == {0, 1}
    sites = second.progress_of(KEY).sites
    # the pod's start is all that anybody still knows of the second window's opening at 110 s
    assert [replace(one, gpu_seconds=one.trained_gpu_seconds) for one in sites] == [
        replace(one, gpu_seconds=one.trained_gpu_seconds) for one in first.progress_of(KEY).sites
    ]


def test_unstarted_window_keeps_its_open_time_after_restore() -> None:
    first = cluster("fifo", "here")
    first.handle(JobSubmitted(job("j", chunks=2, max_workers=1)), 5.0)
    second = taken_over(first, 20.0)
    second.handle(WorkerStarted(KEY, 1, 30.0), 30.0)
    end(second, 1, 130.0)
    assert (used(second)["here"].gpu_seconds, used(second)["here"].trained_gpu_seconds) == (125.0, 100.0)


def test_a_forecast_uses_nothing() -> None:
    """The forecast simulates the same job to its end."""
    p = cluster()
    submit(p, max_workers=1)
    end(p, 1, 110.0)
    before = p.progress_of(KEY).sites, deepcopy((p.cluster.site_uses, p.cluster.namespace_uses))
    assert p.forecast(111.0)[KEY].completion > 300.0
    assert (p.progress_of(KEY).sites, (p.cluster.site_uses, p.cluster.namespace_uses)) == before


def test_uploads_ahead_that_a_former_planner_began_count_once() -> None:
    first = cluster("fifo")
    submit(first, max_workers=1)
    assert used(first)["there"].copied_bytes == 3 * CHUNK
    second = taken_over(first, 20.0)
    assert used(second)["there"].copied_bytes == 3 * CHUNK
    assert THERE not in second.cluster.site_uses


def test_what_was_used_stays_with_the_tier_of_that_time() -> None:
    p = cluster("fifo", "here")
    submit(p)
    end(p, 1, 110.0)
    p.handle(SiteChanged(replace(SITES[0], tier=Tier.CLOUD)), 120.0)
    (attempt,) = p.cluster.jobs[KEY].runs
    end(p, attempt, 150.0, "Lost")
    assert p.cluster.site_uses["here", Tier.EDGE].gpu_seconds == 110.0
    assert p.cluster.site_uses["here", Tier.CLOUD].gpu_seconds == 40.0
    p.handle(NodeRemoved("here"), 160.0)
    assert p.cluster.site_uses["here", Tier.EDGE].gpu_seconds == 110.0
