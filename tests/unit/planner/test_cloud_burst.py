"""Cloud bursting: the division of waiting chunks between nodes and unlimited sites."""

from typing import Any

import pytest

from support.builders import job, node, of_type, planner, worker
from tranche.model import Constraints, Job, Link, Requirement, Site, Tier
from tranche.planner import (
    Event,
    JobSubmitted,
    NodeRemoved,
    OpenWindow,
    Planner,
    SiteChanged,
    SiteRemoved,
    StageData,
    StagingEnded,
    Tick,
    WorkerEnded,
    WorkerStarted,
)

CHUNK_BYTES = 1000.0
UPLOAD_SECONDS = 120.0


def sites(**changes: Any) -> list[Site]:
    cloud = Site("cloud", Tier.CLOUD, unlimited=True, **changes)
    link = Link(8 * CHUNK_BYTES / UPLOAD_SECONDS, dedicated=True)
    return [Site("edge", Tier.EDGE, links={"cloud": link}), cloud]


def with_data(name: str, submitted: float = 0.0, **changes: Any) -> Job:
    return job(name, submitted, **{"data_site": "edge", "chunk_bytes": CHUNK_BYTES, **changes})


def opened(made: Planner, event: Event, now: float) -> list[str]:
    return [one.window.site for one in of_type(OpenWindow, made.handle(event, now))]


def test_chunk_starts_in_the_cloud_when_its_copy_is_complete() -> None:
    made = planner("chunk", [node("n1", "edge")], sites())
    instructions = made.handle(JobSubmitted(with_data("a", chunks=5, seconds=60.0)), 0.0)
    assert [one.window.site for one in of_type(OpenWindow, instructions)] == ["edge"]
    assert [(len(one.chunks), one.site) for one in of_type(StageData, instructions)] == [(2, "cloud")]
    assert opened(made, Tick(), UPLOAD_SECONDS) == ["cloud", "cloud"]


@pytest.mark.parametrize("policy", ["chunk", "srsf", "chunk-faithful"])
@pytest.mark.parametrize(
    ("constraints", "allowed"),
    [
        (Constraints(selector=(("zone", "edge"),)), False),
        (Constraints(affinity=((Requirement("zone", "NotIn", ("cloud",)),),)), False),
        (Constraints(selector=(("zone", "cloud"),)), True),
        (Constraints(selector=(("gpu", "a100"),)), True),
        (Constraints(affinity=((Requirement("zone", "NotIn", ("cloud",)),), (Requirement("gpu", "Exists"),))), True),
    ],
    ids=["other zone", "not there", "there", "label of some nodes", "one of two terms"],
)
def test_unlimited_site_that_constraints_exclude_gets_no_chunk(
    policy: str, constraints: Constraints, allowed: bool
) -> None:
    made = planner(policy, [node("n1", "edge", labels={"zone": "edge"})], sites(labels={"zone": "cloud"}))
    made.handle(JobSubmitted(job("a", chunks=5, seconds=600.0, worker=worker(constraints=constraints))), 0.0)
    made.handle(Tick(), UPLOAD_SECONDS)
    state = made.cluster.jobs["default/a"]
    places = {run.window.site for run in state.runs.values()} | set(state.cloud.values())
    assert ("cloud" in places) is allowed


def test_chunk_with_copy_under_way_starts_on_freed_node() -> None:
    made = planner("chunk", [node("n1", "edge", gpus=2)], sites())
    made.handle(JobSubmitted(with_data("a", chunks=2, seconds=1000.0)), 0.0)
    for attempt in (1, 2):
        made.handle(WorkerStarted("default/a", attempt, 0.0), 0.0)
    made.handle(JobSubmitted(with_data("b", 1.0, chunks=2, seconds=1000.0)), 1.0)
    assert made.cluster.jobs["default/b"].cloud == {0: "cloud", 1: "cloud"}
    ended = [WorkerEnded("default/a", attempt, "Succeeded", 50.0) for attempt in (1, 2)]
    instructions = made.handle_all(ended, 50.0)
    assert [one.window.site for one in of_type(OpenWindow, instructions)] == ["edge", "edge"]
    assert not opened(made, Tick(), 1.0 + UPLOAD_SECONDS)


def test_gradients_keep_a_job_whole_in_the_cloud() -> None:
    """Away from its server a chunk takes 200 s, beside it in the cloud 100 s: no chunk starts at the free edge."""
    heavy: dict[str, Any] = {"server": worker(gpus=0), "servers": 1, "gradient_bits": 0.5e6, "bits_per_second": 1e6}
    made = planner("chunk", [node("n1", "edge")], sites())
    made.handle(JobSubmitted(with_data("a", chunks=4, seconds=100.0, **heavy)), 0.0)
    state = made.cluster.jobs["default/a"]
    assert not state.runs
    assert state.cloud == dict.fromkeys(range(4), "cloud")
    made.handle(Tick(), UPLOAD_SECONDS)
    assert [server.planned.site for server in state.servers] == ["cloud"]
    assert {run.window.end for run in state.runs.values()} == {UPLOAD_SECONDS + 100.0}


@pytest.mark.parametrize(("price", "in_cloud"), [(0.0, 7), (0.9, 7), (1.1, 0)])
def test_price_keeps_chunks_on_nodes(price: float, in_cloud: int) -> None:
    """Each of seven chunks in the cloud spares the job 60 s and costs 60 GPU-seconds there."""
    made = planner(f"chunk:price={price}", [node("n1", "edge")], sites())
    made.handle(JobSubmitted(with_data("a", chunks=10, seconds=60.0)), 0.0)
    assert len(made.cluster.jobs["default/a"].cloud) == in_cloud


def test_start_time_of_the_cloud_counts() -> None:
    made = planner("fifo", [node("n1", "edge")], sites(start_seconds=1000.0))
    made.handle(JobSubmitted(job("a", chunks=2, seconds=60.0)), 0.0)
    assert not made.cluster.jobs["default/a"].cloud


def test_strict_queue_head_in_cloud_does_not_block_nodes() -> None:
    made = planner("fifo", [node("n1", "edge")], sites())
    large = job("large", seconds=60.0, worker=worker(gpus=4))
    assert opened(made, JobSubmitted(large), 0.0) == ["cloud"]
    assert opened(made, JobSubmitted(job("small", 1.0, seconds=60.0)), 1.0) == ["edge"]


def test_chunk_that_fails_is_compared_with_the_cloud_again() -> None:
    made = planner("fifo", [node("n1", "edge", gpus=2)], sites())
    made.handle(JobSubmitted(job("a", chunks=2, seconds=60.0)), 0.0)
    made.handle(JobSubmitted(job("b", 1.0, chunks=1, seconds=60.0)), 1.0)
    assert [run.home.site for run in made.cluster.jobs["default/b"].runs.values()] == ["cloud"]
    made.handle(NodeRemoved("n1"), 2.0)
    made.handle(WorkerEnded("default/a", 1, "Lost", 3.0), 3.0)
    made.handle(WorkerEnded("default/a", 2, "Lost", 3.0), 3.0)
    made.handle(Tick(), 4.0)
    assert [run.home.site for run in made.cluster.jobs["default/a"].runs.values()] == ["cloud", "cloud"]


def test_chunks_are_released_when_site_is_no_longer_unlimited() -> None:
    made = planner("chunk", [node("n1", "edge")], sites())
    made.handle(JobSubmitted(with_data("a", chunks=5, seconds=60.0)), 0.0)
    assert made.cluster.jobs["default/a"].cloud
    made.handle(SiteRemoved("cloud"), 10.0)
    assert not made.cluster.jobs["default/a"].cloud


def test_staged_chunk_starts_in_cloud_after_its_staging_pod() -> None:
    made = planner("chunk", [node("n1", "edge")], sites())
    instructions = made.handle(JobSubmitted(with_data("a", chunks=4, seconds=100.0, staged=True)), 0.0)
    assert [(one.site, one.chunks) for one in of_type(StageData, instructions)] == [("cloud", (2, 3))]
    staging = made.cluster.jobs["default/a"].stagings["cloud"]
    assert not opened(made, Tick(), UPLOAD_SECONDS)
    assert opened(made, StagingEnded("default/a", staging.attempt, "Succeeded", 240.0), 130.0) == ["cloud", "cloud"]


def test_job_that_stays_with_its_data_uses_no_other_node() -> None:
    made = planner("chunk", [node("n1", "edge"), node("n2", "far")], [*sites(start_seconds=9.0), Site("far")])
    assert opened(made, JobSubmitted(job("lost", data_site="nowhere")), 0.0) == ["cloud"]
    assert opened(made, JobSubmitted(job("near", data_site="edge")), 1.0) == ["edge"]


def test_job_without_a_node_near_its_data_has_no_planned_start() -> None:
    made = planner("chunk", [node("n1", "edge"), node("n2", "far")], [*sites(), Site("far")])
    edge_only = worker(constraints=Constraints(affinity=((Requirement("zone", "NotIn", ("cloud",)),),)))
    cloud = Site("cloud", Tier.CLOUD, unlimited=True, labels={"zone": "cloud"})
    made.handle(SiteChanged(cloud), 0.0)
    made.handle(JobSubmitted(job("lost", data_site="nowhere", worker=edge_only)), 0.0)
    made.forecast(1.0)
    plan = made.plan_of("default/lost", 1.0)
    assert (plan.estimated_start, plan.unplannable) == (None, "Unschedulable")
    assert plan.explanation.startswith("no node takes a worker: 2 of 2 nodes are not at nowhere")
