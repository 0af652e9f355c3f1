"""Planned starts and completions against what the simulator then does."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.builders import job, node
from tranche.model import Job
from tranche.planner import Instruction, JobSubmitted, NodeChanged, OpenWindow, Planner, PlannerSettings
from tranche.policies import get_policy
from tranche.simulation import Simulation

JOBS = st.lists(st.tuples(st.integers(1, 5), st.floats(1, 300)), min_size=1, max_size=8)
GPUS = st.lists(st.integers(1, 3), min_size=1, max_size=3)


def started(simulation: Simulation) -> dict[str, float]:
    first: dict[str, float] = {}
    for at, instruction in simulation.history:
        if isinstance(instruction, OpenWindow):
            first.setdefault(instruction.job, at)
    return first


def played(policy: str, jobs: list[Job], gpus: list[int]) -> tuple[Simulation, dict[str, tuple[float, float]]]:
    """All jobs arrive at 0; the forecast is made then, and the simulation run to its end."""
    simulation = Simulation(Planner(get_policy(policy), PlannerSettings(validate=True)))
    for i, count in enumerate(gpus):
        simulation.planner.handle(NodeChanged(node(f"n{i}", f"edge-{i % 2}", count)), 0.0)
    for one in jobs:
        simulation.at(0.0, JobSubmitted(one))
    simulation.step()
    estimates = simulation.planner.forecast(0.0)
    simulation.run()
    return simulation, {key: (e.start, e.completion) for key, e in estimates.items()}


@given(sizes=JOBS, gpus=GPUS)
@settings(max_examples=80)
def test_without_arrivals_a_bound_plan_comes_true_to_the_second(
    sizes: list[tuple[int, float]], gpus: list[int]
) -> None:
    jobs = [job(f"j{i}", chunks=chunks, seconds=seconds) for i, (chunks, seconds) in enumerate(sizes)]
    simulation, estimates = played("chunk-faithful", jobs, gpus)
    for result in simulation.result().jobs:
        assert estimates[result.key][1] == pytest.approx(result.completed, rel=1e-9)


@given(sizes=JOBS, gpus=GPUS)
@settings(max_examples=80)
def test_without_arrivals_a_fifo_plan_comes_true_to_the_second(sizes: list[tuple[int, float]], gpus: list[int]) -> None:
    jobs = [job(f"j{i}", chunks=chunks, seconds=seconds) for i, (chunks, seconds) in enumerate(sizes)]
    simulation, estimates = played("fifo", jobs, gpus)
    first = started(simulation)
    for result in simulation.result().jobs:
        start, completion = estimates[result.key]
        assert completion == pytest.approx(result.completed, rel=1e-9)
        assert start == pytest.approx(first[result.key], abs=1e-6)


MIXED = st.lists(
    st.tuples(st.integers(1, 5), st.floats(1, 300), st.booleans(), st.sampled_from(["edge-0", "edge-1", None])),
    min_size=1,
    max_size=8,
)


@given(sizes=MIXED, gpus=GPUS)
@settings(max_examples=80)
def test_plan_without_arrivals_equals_simulated_times(
    sizes: list[tuple[int, float, bool, str | None]], gpus: list[int]
) -> None:
    jobs = [
        job(
            f"j{i}",
            chunks=chunks,
            seconds=seconds,
            is_gang=is_gang,
            data_site=None if is_gang else site,
            chunk_bytes=1e8,
        )
        for i, (chunks, seconds, is_gang, site) in enumerate(sizes)
    ]
    simulation, estimates = played("chunk", jobs, gpus)
    first = started(simulation)
    assert {result.key for result in simulation.result().jobs} == set(estimates)
    for result in simulation.result().jobs:
        start, completion = estimates[result.key]
        assert completion == pytest.approx(result.completed, rel=1e-9)
        assert start == pytest.approx(first[result.key], abs=1e-6)


@pytest.mark.slow
@given(sizes=MIXED, gpus=GPUS)
@settings(max_examples=15)
def test_a_forecast_changes_nothing(sizes: list[tuple[int, float, bool, str | None]], gpus: list[int]) -> None:
    def history(*, asked: bool) -> list[tuple[float, Instruction]]:
        simulation = Simulation(Planner(get_policy("chunk"), PlannerSettings(validate=True)))
        for i, count in enumerate(gpus):
            simulation.planner.handle(NodeChanged(node(f"n{i}", f"edge-{i % 2}", count)), 0.0)
        for i, (chunks, seconds, is_gang, site) in enumerate(sizes):
            one = job(
                f"j{i}", 20.0 * i, chunks=chunks, seconds=seconds, is_gang=is_gang, data_site=None if is_gang else site
            )
            simulation.at(one.submitted, JobSubmitted(replace(one, chunk_bytes=1e8)))
        while simulation._heap or simulation.planner.next_wakeup() is not None:
            simulation.step()
            if asked:
                simulation.planner.forecast(simulation.now)
        return simulation.history

    assert history(asked=True) == history(asked=False)
