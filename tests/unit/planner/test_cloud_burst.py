"""Cloud bursting: the division of waiting chunks between nodes and unlimited sites."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from support.builders import gang, job, node, of_type, planner, worker
from tranche.model import Constraints, Job, Link, Preemption, Requirement, Site, Taint, Tier
from tranche.planner import (
    Event,
    JobSubmitted,
    NodeChanged,
    NodeJoined,
    NodeRemoved,
    OpenWindow,
    ParameterServerEnded,
    Planner,
    SiteChanged,
    SiteRemoved,
    StageData,
    StagingEnded,
    Tick,
    WorkerEnded,
    WorkerStarted,
    WorkerUnschedulable,
)
from tranche.planner.scheduling.cloud_burst import NodeForecast, _Option

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


def test_workers_of_a_cordoned_node_take_no_other_gpus() -> None:
    made = planner("srsf", [node("n1", "edge"), node("n2", "edge")], [Site("edge")])
    for number, seconds in enumerate((50.0, 9000.0), start=1):
        made.handle(JobSubmitted(job(f"on-n{number}", seconds=seconds)), 0.0)
        made.handle(WorkerStarted(f"default/on-n{number}", 1, 0.0), 0.0)
    made.handle(NodeChanged(node("n2", "edge", unschedulable=True)), 0.0)
    forecast = NodeForecast(made.cluster, 0.0, {})
    for state in made.cluster.jobs.values():
        assert state.runs
        forecast.occupy(state)
    assert forecast.gpus(forecast.pool_of(made.cluster.nodes["n1"])) == pytest.approx([50.0])


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


@pytest.mark.parametrize("policy", ["chunk", "srsf"])
@pytest.mark.parametrize("one", [gang("a", 1.0, seconds=3600.0), job("a", 1.0, seconds=3600.0, max_workers=1)])
@pytest.mark.parametrize(
    ("idle", "constraints"),
    [
        ({"taints": (Taint("team", "b"),)}, Constraints()),
        ({"labels": {"pool": "b"}}, Constraints(selector=(("pool", "a"),))),
    ],
    ids=["taint", "selector"],
)
def test_idle_nodes_of_others_keep_no_job_from_the_cloud(
    policy: str, one: Job, idle: dict[str, Any], constraints: Constraints
) -> None:
    """The nodes that would take the job are busy for long, and those that are idle do not take it."""
    others = [node(f"b{number}", "edge", **idle) for number in range(4)]
    own = [node(f"a{number}", "edge", labels={"pool": "a"}) for number in range(2)]
    made = planner(policy, [*own, *others], [Site("edge"), Site("cloud", unlimited=True, start_seconds=60.0)])
    shape = worker(constraints=constraints)
    for name in ("x", "y"):
        busy = job(name, seconds=1e6, preemption=Preemption.NEVER, priority=-8, worker=shape)
        made.handle(JobSubmitted(busy), 0.0)
        (run,) = made.cluster.jobs[busy.key].runs.values()
        made.handle(WorkerStarted(busy.key, run.window.attempt, 0.0), 0.0)
    assert set(opened(made, JobSubmitted(replace(one, worker=shape)), 1.0)) == {"cloud"}


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


@pytest.mark.parametrize(
    ("workers", "start", "copied"),
    [(8, 0.0, 0), (2, 0.0, 6), (1, 0.0, 7), (2, 100.0, 0)],
    ids=["all at once", "two at a time", "one at a time", "each waits for a node"],
)
def test_chunks_of_few_workers_take_turns_on_nodes_too(workers: int, start: float, copied: int) -> None:
    made = planner("chunk", [node(f"n{n}", "edge") for n in range(8)], sites(speed=4.0, start_seconds=start))
    instructions = made.handle(JobSubmitted(with_data("a", chunks=8, max_workers=workers)), 0.0)
    assert sum(len(one.chunks) for one in of_type(StageData, instructions)) == copied
    assert len(of_type(OpenWindow, instructions)) == workers


def test_few_workers_hold_few_nodes_in_the_forecast() -> None:
    made = planner("srsf", [node("n1", "edge"), node("n2", "edge")], [Site("edge")])
    made.handle(JobSubmitted(job("a", chunks=4, max_workers=1, suspended=True)), 0.0)
    state, forecast = made.cluster.jobs["default/a"], NodeForecast(made.cluster, 0.0, {})
    pool = forecast.pool_of(made.cluster.nodes["n1"])
    option, earliest = _Option(pool, 1.0, {}, 0.0), 0.0
    placed = []
    for chunk in range(4):
        one = forecast.place(state, [option], chunk, earliest)
        assert one is not None
        earliest = one.end
        placed.append(one)
    assert sorted(forecast.gpus(pool)) == pytest.approx([0.0, 400.0])
    forecast.undo(placed[1:])
    assert sorted(forecast.gpus(pool)) == pytest.approx([0.0, 100.0])


def test_gang_goes_to_no_cloud_that_excludes_its_chief() -> None:
    made = planner("chunk", [node("n1", "edge", labels={"zone": "edge"})], sites(labels={"zone": "cloud"}))
    chief = worker(gpus=0, constraints=Constraints(selector=(("zone", "edge"),)))
    assert opened(made, JobSubmitted(gang("free", chief=worker(gpus=0))), 0.0) == ["cloud", "cloud"]
    assert opened(made, JobSubmitted(gang("bound", 1.0, chief=chief)), 1.0) == []


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


FAST = Link(1e12)
CLOUDS = [
    Site("edge", links={"cloud-a": FAST, "cloud-b": FAST}),
    Site("cloud-a", Tier.CLOUD, unlimited=True, start_seconds=60.0),
    Site("cloud-b", Tier.CLOUD, unlimited=True, start_seconds=90.0),
]


def full_edge(policy: str, sites: list[Site]) -> Planner:
    """Return a planner whose only node runs a long job that is never preempted."""
    made = planner(policy, [node("n1", "edge")], sites)
    made.handle(JobSubmitted(job("busy", seconds=1e6, preemption=Preemption.NEVER)), 0.0)
    made.handle(WorkerStarted("default/busy", 1, 0.0), 0.0)
    return made


def refuse(made: Planner, now: float) -> set[str]:
    """Let the pods of job a find no place 15 min later; return their sites."""
    runs = made.cluster.jobs["default/a"].runs
    tried = {run.window.site for run in runs.values()}
    made.handle_all([WorkerUnschedulable("default/a", attempt, "0/1 nodes") for attempt in runs], now + 900.0)
    made.handle_all([WorkerEnded("default/a", attempt, "Lost", now + 900.0) for attempt in list(runs)], now + 900.0)
    return tried


def next_pods(made: Planner, now: float) -> float:
    """Return the time, in steps of 10 s, at which job a has pods."""
    while not made.cluster.jobs["default/a"].runs:
        now += 10.0
        made.handle(Tick(), now)
    return now


@pytest.mark.parametrize(
    ("policy", "one"),
    [
        ("chunk", job("a", 1.0, chunks=4, max_workers=2, seconds=3600.0)),
        ("srsf", job("a", 1.0, chunks=2, seconds=3600.0)),
        ("chunk", gang("a", 1.0, seconds=3600.0)),
        ("chunk-faithful", job("a", 1.0, chunks=4, max_workers=2, seconds=3600.0)),
        ("pd-ors-like", gang("a", 1.0, seconds=3600.0)),
    ],
)
def test_job_leaves_a_cloud_where_its_pods_find_no_place(policy: str, one: Job) -> None:
    made = full_edge(policy, CLOUDS)
    made.handle(JobSubmitted(one), 1.0)
    assert refuse(made, 1.0) == {"cloud-a"}
    assert next_pods(made, 901.0) == 901.0
    assert {run.window.site for run in made.cluster.jobs["default/a"].runs.values()} == {"cloud-b"}


def test_refused_job_preempts_on_nodes_as_before() -> None:
    """The pods of the cloud say nothing about nodes, so that the job, which ranks first, takes the node at once."""
    made = planner("srsf", [node("n1", "edge"), node("n2", "edge")], sites())
    for name in ("b", "c"):
        made.handle(JobSubmitted(job(name, seconds=2400.0)), 0.0)
        made.handle(WorkerStarted(f"default/{name}", 1, 0.0), 0.0)
    made.handle(JobSubmitted(job("a", 10.0, chunks=2, seconds=600.0)), 10.0)
    refuse(made, 10.0)
    assert {run.window.site for run in made.cluster.jobs["default/a"].runs.values()} == {"edge"}


def test_job_of_one_cloud_tries_it_with_growing_pauses() -> None:
    large = worker(gpus=4)
    made, starts = full_edge("chunk", CLOUDS[:2]), [1.0]
    made.handle(JobSubmitted(job("a", 1.0, seconds=3600.0, worker=large)), 1.0)
    for _ in range(9):
        assert refuse(made, starts[-1]) == {"cloud-a"}
        starts.append(next_pods(made, starts[-1] + 900.0))
    pauses = [later - before - 900.0 for before, later in pairwise(starts)]
    assert pauses == [0.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 360.0, 360.0]


def test_copy_to_the_cloud_at_take_over_starts_no_chunk_there() -> None:
    """The node has become free meanwhile, and the chunks complete sooner there, one after the other."""
    one = with_data("a", 1.0, chunks=2, seconds=60.0, max_workers=1, staged=True)
    made, busy = planner("chunk", [node("n1", "edge")], sites()), job("b", seconds=9000.0, preemption=Preemption.NEVER)
    made.handle(JobSubmitted(busy), 0.0)
    made.handle(WorkerStarted(busy.key, 1, 0.0), 0.0)
    made.handle(JobSubmitted(one), 1.0)
    (staging,) = made.cluster.jobs[one.key].stagings.values()
    assert (staging.site, set(made.cluster.jobs[one.key].cloud.values())) == ("cloud", {"cloud"})
    after = planner("chunk", [node("n1", "edge")], sites())
    known = made.plan_of(one.key, 30.0), made.progress_of(one.key)
    (first,) = of_type(OpenWindow, after.restore([JobSubmitted(one, *known)], 30.0))
    assert first.window.site == "edge"
    after.handle(WorkerStarted(one.key, first.window.attempt, 30.0), 30.0)
    assert opened(after, StagingEnded(one.key, staging.attempt, "Succeeded", 60.0), 60.0) == []
    assert after.cluster.jobs[one.key].cloud == {}
    assert opened(after, WorkerEnded(one.key, first.window.attempt, "Succeeded", 90.0), 90.0) == ["edge"]


@pytest.mark.parametrize("restored", [False, True])
def test_cloud_that_refuses_is_tried_again_after_an_hour(restored: bool) -> None:
    made, one = full_edge("chunk", CLOUDS), job("a", 1.0, chunks=9, max_workers=1, seconds=1800.0)
    made.handle(JobSubmitted(one), 1.0)
    refuse(made, 1.0)
    if restored:
        known = made.plan_of("default/a", 901.0), made.progress_of("default/a")
        made = planner("chunk", [], CLOUDS)
        made.restore([JobSubmitted(one, *known)], 901.0)
    places, now = [], 901.0
    for _ in range(3):
        (attempt, run), *_ = made.cluster.jobs["default/a"].runs.items()
        places.append(run.window.site)
        made.handle(WorkerStarted("default/a", attempt, now), now)
        now += 1800.0
        made.handle(WorkerEnded("default/a", attempt, "Succeeded", now), now)
    assert places == ["cloud-b", "cloud-b", "cloud-a"]


def test_cloud_with_a_new_node_takes_a_refused_job() -> None:
    made = full_edge("chunk", CLOUDS)
    made.handle(JobSubmitted(job("a", 1.0, seconds=3600.0)), 1.0)
    refuse(made, 1.0)
    made.handle(NodeJoined("a1", "cloud-a"), 1000.0)
    made.handle(WorkerEnded("default/a", 2, "Lost", 1000.0), 1000.0)
    assert {run.window.site for run in made.cluster.jobs["default/a"].runs.values()} == {"cloud-a"}


def test_server_leaves_a_cloud_where_it_finds_no_place() -> None:
    light: dict[str, Any] = {"server": worker(gpus=0), "servers": 1, "gradient_bits": 1.0, "bits_per_second": 1e9}
    made = full_edge("chunk", CLOUDS)
    made.handle(JobSubmitted(job("a", 1.0, seconds=3600.0, **light)), 1.0)
    state = made.cluster.jobs["default/a"]
    (server,) = state.servers
    assert server.planned.site == "cloud-a"
    made.handle(WorkerUnschedulable("default/a", server.planned.attempt, "0/1 nodes"), 901.0)
    made.handle(ParameterServerEnded("default/a", 0, server.planned.attempt), 901.0)
    made.handle_all([WorkerEnded("default/a", attempt, "Lost", 901.0) for attempt in list(state.runs)], 901.0)
    assert [one.planned.site for one in state.servers] == ["cloud-b"]
