"""The windows of chunks that a simulated run remembers."""

from dataclasses import replace

import pytest

from support.builders import job, node, worker
from tranche.model import ChunkState, ExecutedWindow, Window
from tranche.planner import JobSubmitted, NodeChanged, Planner
from tranche.policies import get_policy
from tranche.simulation import Simulation, SimulationResult
from tranche.simulation.engine.chunk_record import stretches
from tranche.simulation_report.table import CHUNK_COLUMNS, chunk_rows

N1 = node("n1")


def simulated(policy: str, *events: tuple[float, JobSubmitted | NodeChanged]) -> Simulation:
    """A run of these events on one GPU."""
    simulation = Simulation(Planner(get_policy(policy)), record=True)
    simulation.planner.handle(NodeChanged(N1), 0.0)
    for at, event in events:
        simulation.at(at, event)
    simulation.run()
    return simulation


def executed(result: SimulationResult, key: str) -> list[list[ExecutedWindow]]:
    return [list(row.executed) for row in result.chunks[key]]


def on_n1(start: float, end: float, outcome: str, slots: tuple[int, ...] = ()) -> ExecutedWindow:
    return ExecutedWindow("edge-a", "n1", slots, start, end, outcome)


@pytest.mark.parametrize(
    ("now", "trained"),
    [
        (5.0, []),
        (15.0, [(0, 10.0, 15.0, False)]),
        (60.0, [(0, 10.0, 60.0, True)]),
        (100.0, [(0, 10.0, 60.0, True), (1, 60.0, 100.0, False)]),
        (160.0, [(0, 10.0, 60.0, True), (1, 60.0, 160.0, True)]),
    ],
)
def test_a_worker_trains_its_chunks_one_after_the_other(
    now: float, trained: list[tuple[int, float, float, bool]]
) -> None:
    window = Window(0, 1, "edge-a", "n1", (0, 1))
    assert list(stretches(window, {0: 50.0, 1: 0.0}, 100, 1.0, 10.0, now)) == trained


def test_a_preempted_chunk_has_a_window_before_and_after() -> None:
    long, short = job("long", weight=0.25), job("short", 30.0, seconds=10.0)
    result = simulated("chunk-faithful", (0.0, JobSubmitted(long)), (30.0, JobSubmitted(short))).result()
    assert executed(result, "default/long") == [[on_n1(0, 30, "Preempted", (0,)), on_n1(40, 110, "Succeeded", (0,))]]
    assert executed(result, "default/short") == [[on_n1(30, 40, "Succeeded", (0,))]]
    [row] = result.chunks["default/long"]
    assert (row.state, row.start, row.end, row.planned_start, row.planned_end) == (ChunkState.DONE, 0, 110, 0, 100)


def test_what_a_lost_node_had_trained_is_lost() -> None:
    events: list[tuple[float, JobSubmitted | NodeChanged]] = [
        (0.0, JobSubmitted(job("a"))),
        (40.0, NodeChanged(replace(N1, ready=False))),
        (50.0, NodeChanged(N1)),
    ]
    result = simulated("chunk", *events).result()
    [[first, last]] = executed(result, "default/a")
    assert first == on_n1(0, 40, "Lost")
    assert (last.outcome, last.end - last.start) == ("Succeeded", 100.0)


def test_a_chunk_that_never_ran_has_a_row_without_times() -> None:
    result = simulated("chunk", (0.0, JobSubmitted(job("large", worker=worker(4))))).result()
    head, row = list(chunk_rows(result))
    assert tuple(head) == CHUNK_COLUMNS
    assert row == ("default/large", 0, "waiting", *[""] * 9)


def test_a_run_that_is_not_recorded_has_no_windows() -> None:
    simulation = Simulation(Planner(get_policy("chunk")))
    simulation.planner.handle(NodeChanged(N1), 0.0)
    simulation.at(0.0, JobSubmitted(job("a")))
    simulation.run()
    assert not simulation.result().chunks
