"""Planned starts and completions against what the simulator then does."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import job, node
from tranche.model import Job
from tranche.planner import JobSubmitted, NodeChanged, OpenWindow, Planner, PlannerSettings
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
@settings(max_examples=80, deadline=None, derandomize=True)
def test_without_arrivals_a_bound_plan_comes_true_to_the_second(
    sizes: list[tuple[int, float]], gpus: list[int]
) -> None:
    jobs = [job(f"j{i}", chunks=chunks, seconds=seconds) for i, (chunks, seconds) in enumerate(sizes)]
    simulation, estimates = played("chunk-faithful", jobs, gpus)
    for result in simulation.result().jobs:
        assert estimates[result.key][1] == pytest.approx(result.completed, rel=1e-9)


@given(sizes=JOBS, gpus=GPUS)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_without_arrivals_a_fifo_plan_comes_true_to_the_second(sizes: list[tuple[int, float]], gpus: list[int]) -> None:
    jobs = [job(f"j{i}", chunks=chunks, seconds=seconds) for i, (chunks, seconds) in enumerate(sizes)]
    simulation, estimates = played("fifo", jobs, gpus)
    first = started(simulation)
    for result in simulation.result().jobs:
        start, completion = estimates[result.key]
        assert completion == pytest.approx(result.completed, rel=1e-9)
        assert start == pytest.approx(first[result.key], abs=1e-6)
