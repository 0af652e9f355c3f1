"""RRH-like: utility less the cost of delay, per GPU."""

from math import exp

import pytest

from support.builders import job, node, of_type, planner
from tranche.model import Utility
from tranche.planner import CloseWindow, JobSubmitted, OpenWindow, Planner
from tranche.policies import get_policy
from tranche.policies.allocation.rrh import payoffs
from tranche.simulation.scenario import Scenario, run


def started(made: Planner) -> set[str]:
    return {key for key, state in made.cluster.jobs.items() if state.runs}


def worth(made: Planner, now: float) -> dict[str, float]:
    return payoffs(list(made.cluster.jobs.values()), sum(n.capacity.gpus for n in made.cluster.nodes.values()), now)


def test_sigmoid_of_oasis_has_its_worked_values() -> None:
    known = Utility(100.0, 0.5, 10.0)
    assert [known.at(d) for d in (4.0, 10.0, 16.0)] == pytest.approx([95.2574, 50.0, 4.74259], rel=1e-6)
    assert Utility(100.0, 5.0, 10.0).at(11.0) == pytest.approx(0.669285, rel=1e-6)
    assert Utility(100.0, 0.0, 10.0).at(1e9) == 50.0
    assert Utility(100.0, 5.0, 10.0).at(1e9) < 1e-300


def test_payoff_is_utility_less_the_delay_of_the_other() -> None:
    made = planner("rrh", [node("n0")])
    made.handle_all([JobSubmitted(job(name)) for name in "ab"], 0.0)  # 100 s each: γ3 = 200 s, γ2 = 4/γ3
    at_once = 50.0 / (1.0 + exp(-2.0))
    cost = at_once - 25.0  # the other would end after 200 s, at its target
    assert worth(made, 0.0) == pytest.approx(dict.fromkeys(("default/a", "default/b"), at_once - cost))


def test_jobs_that_fit_together_have_no_delay_cost() -> None:
    made = planner("rrh", [node("n0", gpus=2)])
    made.handle_all([JobSubmitted(job(name)) for name in "ab"], 0.0)
    assert worth(made, 0.0) == pytest.approx(dict.fromkeys(("default/a", "default/b"), 50.0 / (1.0 + exp(-2.0))))


def test_job_of_higher_payoff_per_gpu_pauses_another() -> None:
    made = planner("rrh", [node("n0")])
    made.handle(JobSubmitted(job("long", seconds=10_000.0)), 0.0)
    answer = made.handle(JobSubmitted(job("heavy", 10.0, weight=5.0)), 10.0)
    assert [one.job for one in of_type(CloseWindow, answer)] == ["default/long"]
    assert [one.job for one in of_type(OpenWindow, answer)] == ["default/heavy"]


def test_job_that_costs_more_than_it_is_worth_waits() -> None:
    made = planner("rrh", [node("n0")])
    made.handle(JobSubmitted(job("dear", weight=10.0)), 0.0)
    answer = made.handle(JobSubmitted(job("cheap", 1.0, seconds=90.0, weight=0.1)), 1.0)
    assert worth(made, 1.0)["default/cheap"] < 0.0
    assert not of_type(CloseWindow, answer)
    assert started(made) == {"default/dear"}


def test_job_not_admitted_takes_room_that_would_stay_idle() -> None:
    jobs = [job("dear", weight=10.0), job("cheap", 1.0, seconds=90.0, weight=0.1), job("dear2", 2.0, weight=10.0)]
    result = run(Scenario(tuple(jobs), (node("n0"),), policy="rrh"))
    assert not result.unfinished
    assert [one.key for one in result.jobs][-1] == "default/cheap"


@pytest.mark.parametrize(("threshold", "workers"), [(0, [1, 3]), (20, [0, 4])])
def test_job_below_the_threshold_comes_last(threshold: int, workers: list[int]) -> None:
    made = planner(f"rrh:threshold={threshold}", [node("n0", gpus=4)])
    jobs = [job("small", weight=0.45), job("wide", chunks=4)]  # worth 16.7, and 35.5 with four times the GPUs
    made.handle_all([JobSubmitted(one) for one in jobs], 0.0)
    assert [len(made.cluster.jobs[f"default/{name}"].runs) for name in ("small", "wide")] == workers


def test_payoff_uses_the_utility_that_the_job_names() -> None:
    made = planner("rrh", [node("n0", gpus=2)])
    made.handle(JobSubmitted(job("a", utility=Utility(9.0, 0.0, 1.0))), 0.0)
    assert worth(made, 0.0) == {"default/a": 4.5}


def test_infinite_threshold_is_refused() -> None:
    with pytest.raises(ValueError, match="threshold"):
        get_policy("rrh:threshold=inf")
