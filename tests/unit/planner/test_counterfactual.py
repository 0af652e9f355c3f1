"""The job that is named as the one that a job waits behind, where it is not the one that makes the room."""

import pytest

from support.builders import job, node, planner, worker
from tranche.model.node_constraints import Constraints
from tranche.planner import JobRemoved, JobSubmitted, Planner, WorkerStarted
from tranche.planner.forecast import counterfactual
from tranche.planner.forecast.rollout import Rollout, run_rollout

MINE = "default/mine"


def crowded() -> Planner:
    """Room for "mine" is only on n1, and comes when "ending" ends.

    Without "ending", "next", which otherwise goes to n2, takes its place on n1 for longer; without "staying", "mine"
    has room at once, in which "next" does not fit.
    """
    p = planner("chunk", [node("n1", gpus=2, labels={"zone": "a"}), node("n2")])
    here = Constraints(selector=(("zone", "a"),))
    jobs = [
        job("ending", seconds=100.0, worker=worker(cpu=40_000, constraints=here)),
        job("staying", seconds=150.0, worker=worker(cpu=20_000, constraints=here)),
        job("elsewhere", seconds=50.0),
        job("next", seconds=300.0, worker=worker(cpu=40_000)),
        job("mine", seconds=400.0, worker=worker(cpu=20_000, constraints=here)),
    ]
    for one in jobs:
        p.handle(JobSubmitted(one), 0.0)
        for run in list(p.cluster.jobs[one.key].runs.values()):
            p.handle(WorkerStarted(one.key, run.window.attempt, 0.0), 0.0)
    return p


@pytest.fixture
def left_out(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Jobs that have been left out of a rollout, in order."""
    names: list[str] = []

    def noted(*args: object, without: str, **options: object) -> Rollout:
        names.append(without.removeprefix("default/"))
        return run_rollout(*args, without=without, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(counterfactual, "run_rollout", noted)
    return names


def test_explanation_names_job_without_which_start_is_earlier(left_out: list[str]) -> None:
    p = crowded()
    estimate = p.forecast(0.0)[MINE]
    assert (estimate.start, estimate.behind) == (100.0, "default/ending")
    assert p.plan_of(MINE, 0.0).explanation == (
        "waits for 1 GPU and 20 CPU at edge-a until 00:01:40Z, behind default/staying, which has less work left"
    )
    assert left_out == ["ending", "staying"]


def test_it_is_made_sure_once_a_forecast(left_out: list[str]) -> None:
    p = crowded()
    for _ in range(2):
        p.forecast(0.0)
        plans = [p.plan_of(MINE, 0.0) for _ in range(3)]
        assert plans[0] == plans[2]
    assert left_out == ["ending", "staying"] * 2


@pytest.mark.parametrize(("bound", "amount"), [("MAX_ROLLOUTS", 1), ("MAX_COPIED", 7)])  # two nodes and five jobs
def test_explanation_without_rollout_names_job_making_room(
    bound: str, amount: int, left_out: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counterfactual, bound, amount)
    p = crowded()
    p.forecast(0.0)
    assert "behind default/ending" in p.plan_of(MINE, 0.0).explanation
    assert "behind default/elsewhere" in p.plan_of("default/next", 0.0).explanation
    assert left_out == ["ending"]


def test_who_comes_far_behind_is_not_looked_at(left_out: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counterfactual, "MAX_VERIFIED", 1)
    p = crowded()
    p.forecast(0.0)
    assert "behind default/ending" in p.plan_of(MINE, 0.0).explanation
    assert left_out == []


def test_nothing_is_tried_for_a_job_that_trains(left_out: list[str]) -> None:
    p = crowded()
    p.forecast(0.0)
    assert p.plan_of("default/staying", 0.0).explanation.startswith("1 worker (1 at edge-a)")
    assert left_out == []


def test_a_job_that_has_gone_since_the_forecast_is_not_left_out(left_out: list[str]) -> None:
    p = planner("chunk", [node("n1", gpus=3)])
    for name, seconds, cpu in (("short", 100.0, 40_000), ("long", 150.0, 20_000)):
        p.handle(JobSubmitted(job(name, seconds=seconds, worker=worker(cpu=cpu))), 0.0)
        p.handle(WorkerStarted(f"default/{name}", 1, 0.0), 0.0)
    p.handle(JobSubmitted(job("mine", seconds=400.0, servers=1, server=worker(gpus=0, cpu=60_000))), 0.0)
    assert p.forecast(0.0)[MINE].behind == "default/long"
    p.handle(JobRemoved("default/long"), 1.0)
    assert p.plan_of(MINE, 1.0).explanation.startswith("waits for room for its parameter server at edge-a")
    assert left_out == ["short"]
