"""Jobs run in the simulator as under the live controller, whose planner gets events of pods: the policies that place
gangs by topology level, and those that distribute workers."""

import asyncio
import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from math import inf

import msgspec
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from support.controller_course import DISTRIBUTING, Course, gang_of, submitted, valued
from support.live_controller import NOW, noted, taken_over
from tranche.kube.api.core_types import NodeObject
from tranche.kube.api.resources import TrainingJob
from tranche.live.controller import Controller
from tranche.live.planner_config import PlannerConfig
from tranche.model.topology import RACK_LEVEL
from tranche.planner import Event, JobSubmitted, NodeChanged, SiteChanged, Tick
from tranche.planner.journal import Fact
from tranche.simulation import Simulation
from tranche.state.progress_ledger import applied_in_order
from tranche.state.window import TrackedWindow

LEVELS = (1e12, 1e11, 1e10, 1e9)
"""Bit/s within a node, a rack and a site, and on the WAN: with `GRADIENTS`, a pair takes 20 s in a rack."""
GRADIENTS = "250G"
ARRIVALS = st.lists(
    st.tuples(st.sampled_from((7, 31, 61, 127)), st.integers(1, 4), st.sampled_from((53, 127, 509, 1021, 2039))),
    min_size=2,
    max_size=15,
)
"""Seconds since the job before, members, and declared seconds: sums of them rarely coincide."""

OPENED_AND_CLOSED = [(127, 3, 1021), (127, 3, 2039), (127, 4, 127), (61, 2, 2039), (61, 4, 509), (61, 4, 509)]
"""With timers of 100 and 50 s, one decision opens the windows of a gang and closes them for another one."""
CROWDED = [
    *[(61, 2, 2039), (127, 4, 509), (127, 3, 53), (61, 4, 2039), (7, 2, 127), (31, 1, 2039), (61, 1, 53)],
    *[(7, 1, 1021), (7, 3, 127), (61, 1, 2039), (31, 3, 509), (7, 2, 127), (61, 2, 509), (61, 4, 509), (127, 4, 53)],
]
"""Many gangs are preempted, some at the moment at which a worker that was stopped would have ended."""


def created(job: TrainingJob) -> float:
    """Return when the job was submitted."""
    assert job.metadata.creation_timestamp is not None
    return job.metadata.creation_timestamp.timestamp()


class PromptCourse(Course):
    """Course in which the planner gets all events of one instant together, as in the simulator.

    Stopped pods have saved all that they trained, and say so.
    """

    def __init__(self, controller: Controller, racks: str) -> None:
        super().__init__(controller)
        self.told: list[tuple[float, Event]] = []
        """All events that the planner got, with their times."""
        self.events: list[Event] = []
        for name, rack in zip(("n1", "n2", "n3"), racks, strict=True):
            node = msgspec.to_builtins(controller.watches.nodes.store[name])
            node["metadata"]["labels"][RACK_LEVEL] = rack
            noted(controller, "nodes", name, msgspec.convert(node, NodeObject))
            controller.step()
        controller.handle = self.events.append  # type: ignore[method-assign, assignment]

    @staticmethod
    def stamp(at: float) -> str:
        """Return the time without rounding to seconds."""
        return datetime.fromtimestamp(at, UTC).isoformat()

    def message(self, job: str, run: TrackedWindow) -> str:
        """Return what a stopped worker has saved."""
        state = self.controller.planner.cluster.jobs[job]
        assert run.started is not None
        before = {chunk: state.partial.get(chunk, 0.0) for chunk in run.window.chunks}
        trained = (self.now - run.started) / run.declared_batch_seconds
        total = state.job.batches_per_chunk_total
        return json.dumps({str(k): v for k, v in applied_in_order(run.window.chunks, before, total, trained).items()})

    def run(self, jobs: list[TrainingJob]) -> None:
        """Submit the jobs at their times, and advance the clock until no worker is left."""
        planner, waiting = self.controller.planner, list(jobs)
        while True:
            ends = [run.window.end for _, run in self.runs() if self.trains(run)]
            arrivals = [created(one) for one in waiting]
            due = min([*ends, *arrivals, planner.next_wakeup() or inf])
            if due == inf:
                return
            self.now = max(self.now, due)
            while waiting and created(waiting[0]) <= self.now:
                noted(self.controller, "jobs", waiting[0].key, waiting.pop(0))
            self.decide()

    def decide(self) -> None:
        """Let the planner decide until nothing more happens at this instant."""
        first = True
        while True:
            for key, run in sorted(self.runs(), key=lambda one: not one[1].closing):
                self.go_on(key, run)
            self.controller.step()
            told = [*self.events]
            self.events.clear()
            if not told and not first:
                return
            first = False
            self.told += [(self.now, event) for event in told]
            self.controller._handle(told or [Tick()])
            self.write()


def gang(number: int, job: TrainingJob) -> TrainingJob:
    """Return three of four jobs as gangs."""
    return gang_of(job, GRADIENTS) if number % 4 else job


def of_value(number: int, job: TrainingJob) -> TrainingJob:
    """Return three of four jobs with a utility, and a third of all as gangs."""
    return valued(number, gang_of(job, GRADIENTS) if number % 3 == 1 else job)


async def live(
    arrivals: list[tuple[int, int, int]],
    racks: str,
    config: PlannerConfig,
    shape: Callable[[int, TrainingJob], TrainingJob] = gang,
) -> tuple[list[Fact], PromptCourse]:
    """Run the jobs under the live controller; return the facts of all windows, and the course."""
    facts: list[Fact] = []
    course = PromptCourse(await taken_over(config=config, note=facts.append), racks)
    at, jobs = NOW, []
    for number, (gap, members, seconds) in enumerate(arrivals):
        at += gap
        jobs.append(shape(number, submitted(number, members, seconds, at)))
    course.run(jobs)
    return facts, course


def simulated(course: PromptCourse, config: PlannerConfig) -> list[Fact]:
    """Simulate the same jobs on the same nodes; return the facts of all windows."""
    facts: list[Fact] = []
    simulation = Simulation(config.planner(facts.append, validate=True), now=NOW)
    cluster = course.controller.planner.cluster
    for site in cluster.sites.values():
        simulation.planner.handle(SiteChanged(site), NOW)
    for one in cluster.nodes.values():
        simulation.planner.handle(NodeChanged(one.node), NOW)
    for at, event in course.told:
        if isinstance(event, JobSubmitted):
            simulation.at(at, event)
    simulation.run()
    return facts


def windows(facts: Iterable[Fact]) -> dict[tuple[str, int, str], tuple[float, str]]:
    """Return time and place or outcome by job, attempt and kind, times since the beginning."""
    return {(one.job, one.attempt, one.kind): (one.at - NOW, one.node or one.outcome) for one in facts}


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["dally-like", "dally-like:timers=100/50", "consolidate", "no-wait"])
@settings(max_examples=1, phases=(Phase.explicit, Phase.generate))
@given(arrivals=ARRIVALS, racks=st.sampled_from(("xxy", "xyz")))
@example(arrivals=OPENED_AND_CLOSED, racks="xyz")
@example(arrivals=CROWDED, racks="xyz")
def test_simulator_and_live_controller_decide_alike(
    policy: str, arrivals: list[tuple[int, int, int]], racks: str
) -> None:
    check_alike(arrivals, racks, PlannerConfig(policy, level_bandwidths=LEVELS), gang)


@pytest.mark.slow
@pytest.mark.parametrize("policy", DISTRIBUTING)
@settings(max_examples=1, phases=(Phase.explicit, Phase.generate))
@given(arrivals=ARRIVALS)
@example(arrivals=CROWDED)
def test_simulator_and_live_controller_distribute_alike(policy: str, arrivals: list[tuple[int, int, int]]) -> None:
    check_alike(arrivals, "xyz", PlannerConfig(policy), of_value)


def check_alike(
    arrivals: list[tuple[int, int, int]],
    racks: str,
    config: PlannerConfig,
    shape: Callable[[int, TrainingJob], TrainingJob],
) -> None:
    facts, course = asyncio.run(live(arrivals, racks, config, shape))
    ours, theirs = windows(simulated(course, config)), windows(facts)
    assert ours.keys() == theirs.keys()
    assert {what: place for what, (_, place) in ours.items()} == {what: place for what, (_, place) in theirs.items()}
    assert [at for at, _ in ours.values()] == pytest.approx([theirs[what][0] for what in ours], abs=1e-3)
