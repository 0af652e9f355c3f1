"""Workers that stop for an idle GPU of a faster kind (option `faster` of `chunk`), and starts at the faster site."""

from dataclasses import replace

import pytest

from support.builders import job, node, of_type, planner
from tranche.model import Job, Link, Node, Preemption, Site
from tranche.model.gpu_kind import GpuKinds
from tranche.planner import (
    CloseWindow,
    JobSubmitted,
    KubeSchedulerChanged,
    NodeChanged,
    OpenWindow,
    StageData,
    Tick,
    WorkerBound,
    WorkerEnded,
    WorkerStarted,
    WorkerUnschedulable,
)
from tranche.planner.events import Event
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
    instructions = p.handle(WorkerStarted(again.job, again.window.attempt, 80.0), 80.0)
    assert len(of_type(CloseWindow, [*instructions, *p.handle(Tick(), 131.0)])) == moves


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


class TestPodsThatFindNoPlace:
    """A worker on a slow node trains there until a faster GPU comes, whose node its pod cannot take."""

    JOB = job("a", chunks=2, seconds=3600.0, restart_seconds=60.0, restart_declared=True)

    @pytest.fixture
    def course(self) -> "Course":
        return Course(self.JOB)

    def test_worker_that_finds_no_place_moves_once_an_hour(self, course: "Course") -> None:
        course.play(100.0)
        course.handle(NodeChanged(kind("fast", "home", 1.0, 1)))
        course.play(100.0 + 3600.0)
        assert course.stops == 1
        course.play(100.0 + 3 * 3600.0)
        assert course.stops == 2, "after a pause of an hour, and not again within the two hours after that"

    def test_worker_is_not_moved_while_kube_scheduler_is_silent(self, course: "Course") -> None:
        course.play(100.0)
        course.handle(KubeSchedulerChanged(responds=False))
        course.handle(NodeChanged(kind("fast", "home", 1.0, 1)))
        course.play(1000.0)
        assert course.stops == 0
        course.handle(KubeSchedulerChanged(responds=True))
        course.play(1100.0)
        assert course.stops == 1


class Course:
    """Planner with a job on a slow node, in virtual time; pods of the job are placed there and on no other node."""

    def __init__(self, one: Job) -> None:
        self.kinds = GpuKinds(speeds={"speed-0.25": 0.25})
        self.planner = planner("chunk", [SLOW], [Site("home")], gpu_kinds=self.kinds)
        self.key, self.now, self.stops = one.key, 0.0, 0
        self.pending: dict[int, tuple[str | None, float]] = {}
        self.handle(JobSubmitted(one))

    def handle(self, event: Event) -> None:
        for one in self.planner.handle(event, self.now):
            if isinstance(one, OpenWindow):
                self.pending[one.window.attempt] = one.window.node, self.now
            elif isinstance(one, CloseWindow):
                waited = self.pending.pop(one.window.attempt, None) is not None
                self.stops += not waited
                kept = dict.fromkeys(one.window.chunks, 1)
                end = WorkerEnded(self.key, one.window.attempt, "Preempted", self.now, kept)
                self.handle(end._replace(outcome="Lost", progress=None) if waited else end)

    def play(self, until: float) -> None:
        while self.now < until:
            for attempt, (node_name, since) in list(self.pending.items()):
                if node_name == "slow":
                    del self.pending[attempt]
                    self.handle(WorkerBound(self.key, attempt, "slow"))
                    self.handle(WorkerStarted(self.key, attempt, self.now))
                elif self.now - since >= 30.0:
                    self.handle(WorkerUnschedulable(self.key, attempt, "volume node affinity conflict"))
            self.now += 10.0
            self.handle(Tick())
