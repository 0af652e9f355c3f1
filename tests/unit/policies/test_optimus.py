"""Optimus-like: workers by marginal gain."""

import pytest

from support.builders import drawn_jobs, job, node, of_type, planner, worker
from tranche.planner import CloseWindow, JobSubmitted, OpenWindow, Planner, PlannerSettings
from tranche.policies import get_policy
from tranche.policies.allocation.optimus import Optimus
from tranche.simulation.engine.simulation import Simulation, prepare


def test_second_of_two_contending_workers_gains_50() -> None:
    policy = Optimus(contention=0.1)
    assert 100.0 / policy.speed(1) == pytest.approx(110.0)
    assert 100.0 / policy.speed(2) == pytest.approx(60.0)
    assert policy.gain(100.0, 1) == pytest.approx(50.0)


def test_gain_falls_with_every_worker() -> None:
    gains = [Optimus().gain(600.0, workers) for workers in range(1, 8)]
    assert gains == sorted(gains, reverse=True)
    assert sum(gains[:2]) == pytest.approx(600.0 - 200.0)


def test_free_workers_go_to_the_greatest_gain() -> None:
    made = planner("optimus", [node("n0", gpus=4)])
    both = [JobSubmitted(job(name, chunks=8, seconds=seconds)) for name, seconds in (("a", 100.0), ("b", 1000.0))]
    made.handle_all(both, 0.0)
    assert [len(made.cluster.jobs[f"default/{name}"].runs) for name in "ab"] == [1, 3]


def test_gain_counts_per_unit_of_dominant_resource() -> None:
    made = planner("optimus", [node("n0", gpus=5)])
    jobs = [job("a-two", chunks=4, seconds=300.0, worker=worker(2)), job("one", chunks=4, seconds=300.0)]
    made.handle_all([JobSubmitted(one) for one in jobs], 0.0)
    assert [len(made.cluster.jobs[f"default/{name}"].runs) for name in ("a-two", "one")] == [1, 3]


def test_arriving_job_gets_a_worker_of_who_has_several() -> None:
    made = planner("optimus", [node("n0", gpus=3)])
    made.handle(JobSubmitted(job("a", chunks=9)), 0.0)
    answer = made.handle(JobSubmitted(job("b", 10.0)), 10.0)
    assert [one.job for one in of_type(CloseWindow, answer)] == ["default/a"]
    assert [one.job for one in of_type(OpenWindow, answer)] == ["default/b"]


def test_running_job_keeps_its_last_worker() -> None:
    made = planner("optimus", [node("n0", gpus=2)])
    for number in range(4):
        answer = made.handle(
            JobSubmitted(job(f"j{number}", float(number), seconds=100.0 / (1 + number))), float(number)
        )
        assert not of_type(CloseWindow, answer)


def test_negative_contention_is_refused() -> None:
    with pytest.raises(ValueError, match="contention"):
        get_policy("optimus:contention=-1")


@pytest.mark.parametrize("seed", range(4))
def test_job_that_has_started_always_keeps_a_worker(seed: int) -> None:
    made = Planner(get_policy("optimus"), PlannerSettings(validate=True))
    simulation, jobs, started = Simulation(made), drawn_jobs(seed), set[str]()
    prepare(simulation, jobs, [node("n0", gpus=3), node("n1", gpus=2)], [])
    while made.next_wakeup() is not None or len(simulation.completed) < len(jobs):
        simulation.step()
        for key, state in made.cluster.jobs.items():
            if any(not run.closing for run in state.runs.values()):
                started.add(key)
            assert key not in started or state.runs or not state.active
