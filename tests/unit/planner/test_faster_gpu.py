"""Workers that stop for an idle GPU of a faster kind (option `faster` of `chunk`), and starts at the faster site."""

from dataclasses import replace

import pytest

from support.builders import job, node, of_type, planner
from tranche.model import Job, Link, Node, Preemption, Site
from tranche.model.gpu_kind import GpuKinds
from tranche.planner import CloseWindow, JobSubmitted, OpenWindow, StageData, Tick, WorkerEnded, WorkerStarted
from tranche.policies.queue.chunk import Chunk
from tranche.simulation.engine.result import JobResult
from tranche.simulation.scenario import Scenario, run

DELTA = 50.0
"""Seconds that a chunk takes between the two sites."""
SITES = (Site("home", links={"away": Link(1e9)}), Site("away", links={"home": Link(1e9)}))


def kind(name: str, site: str, speed: float, gpus: int = 2) -> Node:
    return node(name, site, gpus, labels={"nvidia.com/gpu.product": f"speed-{speed:g}"}, speed=speed)


SLOW, FAST = kind("slow", "home", 0.25), kind("fast", "away", 1.0)
CHUNKS = job("a", chunks=2, seconds=100.0, data_site="home", chunk_bytes=DELTA * 1e9 / 8)
"""Two chunks, each of 400 s on the slow node and 100 s on the fast one."""


def simulated(policy: str, one: Job = CHUNKS, nodes: tuple[Node, ...] = (SLOW, FAST)) -> JobResult:
    (found,) = run(Scenario((one,), nodes, SITES, policy)).jobs
    return found


@pytest.mark.parametrize(("copies", "ends"), [(6, [137.5, 175.0]), (0, [160.0, 197.5])])
def test_rests_follow_their_data_to_idle_faster_gpus(copies: int, ends: list[float]) -> None:
    """Copies begin at arrival, or after 30 s of training, and take 50 s each; a quarter of a mini-batch per second."""
    assert simulated(f"chunk:faster=0:copies={copies}").completed == 400.0
    found = simulated(f"chunk:copies={copies}")
    assert sorted(found.chunk_completions) == ends
    assert (found.starts, found.lost_gpu_seconds) == (4, 0.0)


def test_worker_goes_on_if_the_gain_is_below_the_factor() -> None:
    """With the transfer of 50 s, the rest of the first chunk takes 150 s there and 400 s here, of the second 200 s."""
    assert simulated("chunk:faster=3:copies=0").starts == 2
    assert simulated("chunk:faster=2.5:copies=0").starts == 3
    nearly = kind("fast", "away", 0.37)
    assert simulated("chunk:copies=0", nodes=(SLOW, nearly)).starts == 2


def test_restart_counts_against_a_move() -> None:
    one = replace(CHUNKS, restart_seconds=130.0)
    assert simulated("chunk:faster=1.5:copies=0", one).starts == 2, "280 s there, 400 s here"


def test_worker_that_may_not_be_stopped_stays() -> None:
    assert simulated("chunk", replace(CHUNKS, preemption=Preemption.AT_CHUNK_END)).completed == 400.0


def test_equal_gpus_are_left_alone() -> None:
    nodes = (kind("one", "home", 1.0), kind("other", "away", 1.0))
    assert simulated("chunk", nodes=nodes).starts == 2


def test_worker_stops_only_when_its_data_are_there() -> None:
    p = planner("chunk:copies=0", [SLOW, FAST], list(SITES), gpu_kinds=GpuKinds(speeds={"speed-0.25": 0.25}))
    for opened in of_type(OpenWindow, p.handle(JobSubmitted(CHUNKS), 0.0)):
        p.handle(WorkerStarted(opened.job, opened.window.attempt, 0.0), 0.0)
    assert [one.site for one in of_type(StageData, p.handle(Tick(), 30.0))] == ["away", "away"]
    assert of_type(CloseWindow, p.handle(Tick(), 79.0)) == []
    assert len(of_type(CloseWindow, p.handle(Tick(), 80.0))) == 1
    assert p.cluster.jobs[CHUNKS.key].job.chunks == 2


@pytest.mark.parametrize(("saved", "moves"), [({0: 20.0}, 1), ({}, 0)])
def test_workers_move_only_if_stopped_ones_save(saved: dict[int, float], moves: int) -> None:
    p = planner("chunk:copies=0", [SLOW, FAST], list(SITES), gpu_kinds=GpuKinds(speeds={"speed-0.25": 0.25}))
    for opened in of_type(OpenWindow, p.handle(JobSubmitted(CHUNKS), 0.0)):
        p.handle(WorkerStarted(opened.job, opened.window.attempt, 0.0), 0.0)
    p.handle(Tick(), 30.0)
    [stopped] = of_type(CloseWindow, p.handle(Tick(), 80.0))
    ended = WorkerEnded(CHUNKS.key, stopped.window.attempt, "Preempted", 80.0, saved)
    [again] = of_type(OpenWindow, p.handle(ended, 80.0))
    told = p.handle(WorkerStarted(again.job, again.window.attempt, 80.0), 80.0)
    assert len(of_type(CloseWindow, [*told, *p.handle(Tick(), 131.0)])) == moves


def test_rest_does_not_move_while_a_faster_gpu_ends_soon() -> None:
    """Otherwise, it would wait for that GPU, take its slow one again meanwhile, and so on without end."""
    nodes = (kind("fast", "home", 1.0, 1), kind("slow", "away", 0.25))
    found = simulated("chunk", replace(CHUNKS, chunks=6, max_workers=6), nodes)
    assert found.starts <= 8


def test_chunk_starts_at_the_site_with_the_faster_free_gpu() -> None:
    """At 100 s, the last copy arrives at the slow site, and the fast GPU at home becomes free."""
    nodes = (kind("fast", "home", 1.0, 1), kind("slow", "away", 0.25))
    found = simulated("chunk:faster=0", replace(CHUNKS, chunks=3, max_workers=3), nodes)
    assert found.chunk_completions == (100.0, 200.0, 300.0)


def test_factor_below_one_is_an_error() -> None:
    with pytest.raises(ValueError, match="faster ≥ 1"):
        Chunk(faster=0.5)
