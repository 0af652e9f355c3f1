"""Themis-like: finish-time fairness, and leases."""

import pytest

from support.builders import drawn_jobs, job, node, of_type, planner
from tranche.planner import CloseWindow, JobSubmitted, OpenWindow, Planner, PlannerSettings, Tick, WorkerStarted
from tranche.policies import get_policy
from tranche.policies.queue.themis import fairness_of, finish_time_fairness
from tranche.simulation.engine.simulation import Simulation, prepare
from tranche.simulation.scenario import Scenario, run


def with_a_long_job(lease: float) -> Planner:
    """One GPU, on which a job of 10,000 s has trained since 0."""
    made = planner(f"themis:lease={lease:g}", [node("n0")])
    made.handle(JobSubmitted(job("long", seconds=10_000.0)), 0.0)
    made.handle(WorkerStarted("default/long", 1, 0.0), 0.0)
    return made


def test_rho_after_100_s_with_50_left_of_60_alone_is_2_5() -> None:
    assert finish_time_fairness(100.0, 50.0, 60.0) == 2.5


def test_rho_of_a_job_counts_its_present_workers() -> None:
    made = planner("themis", [node("n0", gpus=2)])
    made.handle(JobSubmitted(job("a", chunks=4, seconds=60.0)), 0.0)
    state = made.cluster.jobs["default/a"]
    assert len(state.runs) == 2
    assert fairness_of(state, 0.0) == 4 * 60 / 2 / 60


def test_rho_stays_while_all_workers_of_a_job_train() -> None:
    made = with_a_long_job(1200.0)
    state = made.cluster.jobs["default/long"]
    assert fairness_of(state, 5000.0) == pytest.approx(fairness_of(state, 0.0))


def test_greatest_rho_of_those_who_wait_starts_first() -> None:
    jobs = (job("runs", 0.0, seconds=600.0), job("long", 1.0, seconds=5000.0), job("short", 2.0, seconds=50.0))
    result = run(Scenario(jobs, (node("n0"),), policy="themis"))
    ends = {one.key: one.completed for one in result.jobs}
    assert ends["default/short"] < ends["default/long"]


def test_worker_stops_for_a_greater_rho_when_its_lease_ends() -> None:
    made = with_a_long_job(1200.0)
    waited = [made.handle(JobSubmitted(job("short", 10.0)), 10.0), *(made.handle(Tick(), at) for at in (600.0, 1199.0))]
    assert not [one for answer in waited for one in of_type(CloseWindow, answer)]
    answer = made.handle(Tick(), 1200.0)
    assert [one.job for one in of_type(CloseWindow, answer)] == ["default/long"]
    assert [one.job for one in of_type(OpenWindow, answer)] == ["default/short"]


def test_worker_past_its_lease_stays_while_no_rho_is_greater() -> None:
    made = with_a_long_job(60.0)
    made.handle(JobSubmitted(job("longer", 100.0, seconds=100_000.0)), 100.0)
    assert not of_type(CloseWindow, made.handle(Tick(), 5000.0))


def test_jobs_that_are_alike_share_workers_after_the_lease() -> None:
    made = planner("themis:lease=60", [node("n0", gpus=4)])
    for name, at in (("a", 0.0), ("b", 100.0)):
        made.handle(JobSubmitted(job(name, at, chunks=40, seconds=10_000.0)), at)
    workers = [sum(not run.closing for run in made.cluster.jobs[f"default/{name}"].runs.values()) for name in "ab"]
    assert workers == [2, 2]  # for a third one b, at half of the GPUs, is not worse off than a would be with one


@pytest.mark.parametrize("lease", ["-1", "inf", "nan"])
def test_lease_without_sense_is_refused(lease: str) -> None:
    with pytest.raises(ValueError, match="lease"):
        get_policy(f"themis:lease={lease}")


@pytest.mark.parametrize("seed", range(4))
def test_no_worker_is_stopped_within_its_lease(seed: int) -> None:
    simulation = Simulation(Planner(get_policy("themis:lease=120"), PlannerSettings(validate=True)))
    prepare(simulation, drawn_jobs(seed), [node("n0", gpus=3), node("n1", gpus=2)], [])
    simulation.run()
    closed = [(at, one.window) for at, one in simulation.history if isinstance(one, CloseWindow)]
    stopped = [(at, window) for at, window in closed if window.preempted_by]
    assert stopped
    assert all(at >= window.start + 120 - 1e-6 for at, window in stopped)
