"""Delays of a control plane in virtual time."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from support.builders import job, node
from tranche.model import Job, Node, Site
from tranche.planner import NodeChanged, Planner, PlannerSettings
from tranche.planner.journal import Fact, JournaledPlanner
from tranche.policies import get_policy
from tranche.simulation.engine.control_plane_delays import DelayedSimulation, Delays
from tranche.simulation.engine.result import JobResult
from tranche.simulation.engine.simulation import prepare, simulate

DELAYS = Delays(start_seconds=1.0, notice_seconds=2.0, save_seconds=0.5, handover_seconds=0.25)


def ran(
    jobs: Sequence[Job], nodes: Sequence[Node], delays: Delays, policy: str = "chunk-faithful", **fields: Any
) -> tuple[dict[str, JobResult], list[Fact]]:
    facts: list[Fact] = []
    planner = JournaledPlanner(get_policy(policy), PlannerSettings(validate=True), facts.append)
    simulation = DelayedSimulation(planner, delays=delays, record=True, **fields)
    prepare(simulation, jobs, nodes, [Site(name) for name in sorted({one.site for one in nodes})])
    simulation.run()
    result = simulation.result()
    assert not result.unfinished
    busy = sum((one.ended - one.opened) * one.gpus for one in result.occupations)
    assert sum(one.attained_gpu_seconds + one.lost_gpu_seconds for one in result.jobs) == pytest.approx(busy)
    return {one.key.removeprefix("default/"): one for one in result.jobs}, facts


@pytest.mark.parametrize("policy", ["chunk-faithful", "srsf"])
def test_preempted_worker_trains_until_notice_and_is_waited_for(policy: str) -> None:
    long, short = job("long", 0.0, seconds=100.0), job("short", 50.0, seconds=10.0)
    jobs, _ = ran([long, short], [node("a")], DELAYS, policy)
    # long trains 1..52 and saves until 52.5; short starts 0.25 later and trains 10; long starts again 1 after 62.75
    assert (jobs["short"].started, jobs["short"].completed) == (52.75, 62.75)
    assert jobs["long"].completed == pytest.approx(63.75 + 49.0)
    assert (jobs["long"].preemptions, jobs["long"].starts) == (1, 2)


def test_worker_that_ends_before_preemption_notice_succeeds() -> None:
    jobs, facts = ran([job("long", 0.0, seconds=100.0), job("short", 99.5, seconds=10.0)], [node("a")], DELAYS, "fifo")
    assert jobs["long"].completed == 101.0  # fifo does not preempt: the yardstick
    jobs, facts = ran([job("long", 0.0, seconds=100.0), job("short", 99.5, seconds=0.5)], [node("a")], DELAYS, "srsf")
    assert (jobs["long"].completed, jobs["long"].preemptions) == (101.0, 0)
    assert jobs["short"].started == 101.25
    assert [fact.kind for fact in facts if fact.job == "default/long"] == [
        "submitted",
        "opened",
        "started",
        "closing",
        "ended",
    ]


def test_slots_are_free_when_the_end_of_the_pod_is_reported() -> None:
    late = replace(DELAYS, release_seconds=0.75)
    jobs, _ = ran([job("a", 0.0, seconds=10.0), job("b", 1.0, seconds=10.0)], [node("n")], late, "fifo")
    assert (jobs["a"].completed, jobs["b"].started) == (11.75, 12.75)
    jobs, _ = ran([job("long", 0.0, seconds=100.0), job("short", 50.0, seconds=10.0)], [node("n")], late, "srsf")
    # long trains until 52 and frees its slot at 52.5, as it was stopped; short waits 0.25 and ends after 10.75
    assert (jobs["short"].started, jobs["short"].completed) == (52.75, 63.5)
    assert jobs["long"].completed == pytest.approx(64.5 + 49.0 + 0.75)


def test_starting_pod_preempted_saves_nothing_and_ends_at_notice() -> None:
    slow = Delays(start_seconds=30.0, notice_seconds=2.0, save_seconds=5.0, handover_seconds=1.0)
    jobs, facts = ran([job("long", 0.0, seconds=100.0), job("short", 10.0, seconds=10.0)], [node("a")], slow, "srsf")
    assert [(f.at, f.outcome) for f in facts if f.job == "default/long" and f.kind == "ended"] == [
        (12.0, "Preempted"),
        (180.0, "Succeeded"),
    ]
    assert (jobs["short"].started, jobs["long"].preemptions) == (40.0, 0)


def test_without_delays_all_is_as_in_the_plain_engine() -> None:
    jobs = [job(f"j{i}", 7.0 * i, chunks=1 + i % 3, seconds=10.0 + 5 * (i % 4)) for i in range(12)]
    nodes = [node("a", gpus=2), node("b", gpus=1)]
    plain = simulate(jobs, nodes, [Site("edge-a")], get_policy("chunk-faithful"))
    delayed, _ = ran(jobs, nodes, Delays())
    assert {one.key.removeprefix("default/"): one.completed for one in plain.jobs} == {
        name: one.completed for name, one in delayed.items()
    }


def test_starts_can_vary_one_by_one_but_not_into_the_past() -> None:
    turns = iter([0.0, 4.0, -9.0])
    jobs, _ = ran([job("a"), job("b"), job("c")], [node("n", gpus=3)], DELAYS, start_error=turns.__next__)
    assert [jobs[name].started for name in "abc"] == [1.0, 5.0, 0.0]


def test_each_start_and_stop_under_way_makes_the_next_one_slower() -> None:
    slow = Delays(
        start_seconds=1.0, notice_seconds=2.0, save_seconds=0.5, handover_seconds=0.25, concurrency_seconds=0.1
    )
    jobs, _ = ran([job("a"), job("b"), job("c", 1.05)], [node("n", gpus=3)], slow)
    assert [jobs[name].started for name in "abc"] == pytest.approx([1.0, 1.1, 1.05 + 1.0 + 0.1])
    longs, wide = [job("a"), job("b")], job("wide", 50.0, chunks=2, seconds=10.0)
    _, facts = ran([*longs, wide], [node("n", gpus=2)], slow, "srsf")
    assert [f.at for f in facts if f.outcome == "Preempted"] == pytest.approx([52.5, 52.6])


def test_a_lost_node_ends_a_worker_that_was_saving_once() -> None:
    facts: list[Fact] = []
    planner: Planner = JournaledPlanner(get_policy("srsf"), PlannerSettings(validate=True), facts.append)
    simulation = DelayedSimulation(planner, delays=DELAYS)
    prepare(simulation, [job("long"), job("short", 50.0, seconds=10.0)], [node("a"), node("b", gpus=0)], [])
    simulation.at(51.0, NodeChanged(node("a", ready=False)))
    simulation.at(60.0, NodeChanged(node("a")))
    simulation.run()
    done = {one.key: one.completed for one in simulation.result().jobs}
    assert [f.outcome for f in facts if f.job == "default/long" and f.kind == "ended"] == ["Lost", "Succeeded"]
    assert done["default/short"] == 71.0
    assert done["default/long"] == 172.0
