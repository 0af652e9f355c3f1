"""RRH-like: utility less the cost of delay, per GPU."""

from itertools import permutations
from math import exp

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.builders import job, node, of_type, planner
from tranche.model import Node, Site, Utility
from tranche.planner import (
    CloseWindow,
    JobSubmitted,
    NodeChanged,
    OpenWindow,
    Planner,
    PlannerSettings,
    SiteChanged,
    WorkerEnded,
)
from tranche.policies import get_policy
from tranche.policies.allocation.draft import Draft
from tranche.policies.allocation.rrh import Rrh, payoffs
from tranche.policies.allocation.utility import utility_of
from tranche.simulation.scenario import Scenario, run
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState


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


@pytest.mark.parametrize(
    "unused", [node("n1", gpus=8, unschedulable=True), node("n1", gpus=8, ready=False), node("n1", "cloud", gpus=8)]
)
def test_gpus_that_take_no_job_hide_no_delay(unused: Node) -> None:
    """On one GPU, the long job would delay the short one by hours; on nine, it would delay no job."""
    sites = [Site("edge-a"), Site("cloud", unlimited=True, start_seconds=1e6)]
    made = planner("rrh", [node("n0"), unused], sites)
    jobs = [job("long", seconds=10_000.0, weight=1.9), job("short", seconds=30.0)]
    made.handle_all([JobSubmitted(one) for one in jobs], 0.0)
    assert started(made) == {"default/short"}


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


def test_job_that_runs_counts_as_admitted() -> None:
    """No payoff exceeds the threshold; that of the job that waits is the greater one."""
    made = planner("rrh:threshold=1000", [node("n0")])
    made.handle(JobSubmitted(job("light")), 0.0)
    answer = made.handle(JobSubmitted(job("heavy", 10.0, weight=5.0)), 10.0)
    assert worth(made, 10.0)["default/heavy"] > worth(made, 10.0)["default/light"]
    assert not of_type(CloseWindow, answer)
    assert started(made) == {"default/light"}


def test_payoff_uses_the_utility_that_the_job_names() -> None:
    made = planner("rrh", [node("n0", gpus=2)])
    made.handle(JobSubmitted(job("a", utility=Utility(9.0, 0.0, 1.0))), 0.0)
    assert worth(made, 0.0) == {"default/a": 4.5}


def test_infinite_threshold_is_refused() -> None:
    with pytest.raises(ValueError, match="threshold"):
        get_policy("rrh:threshold=inf")


def worth_by_rule(jobs: list[JobState], gpus: int, now: float) -> dict[str, float]:
    """Return utility less the delay of all others, job by job, by the rule of the module's docstring."""
    rest = {state.job.key: max(0.0, state.worker_seconds(now)) for state in jobs}
    crowded = sum(state.job.width * state.job.gpus for state in jobs) > gpus

    def end(state: JobState, delay: float = 0.0) -> float:
        utility = utility_of(state)
        return utility.at(now - state.job.submitted + rest[state.job.key] / state.job.width + delay)

    found = {}
    for state in jobs:
        delay = rest[state.job.key] * state.job.gpus / gpus if crowded else 0.0
        found[state.job.key] = end(state) - sum(end(other) - end(other, delay) for other in jobs if other is not state)
    return found


class Watched(Rrh):
    """Checks each distribution as it is made: on one node, all workers of a job before the first of the next."""

    def allocate_workers(self, cluster: ClusterState, now: float) -> Draft:
        draft = super().allocate_workers(cluster, now)
        jobs = [state for state in draft.jobs if draft.most[state.job.key]]
        gpus = draft.capacity.gpus
        worth = worth_by_rule(jobs, gpus, now)
        for one, other in permutations(jobs, 2):
            ahead = admitted(one, worth) and not admitted(other, worth)
            if admitted(one, worth) == admitted(other, worth):
                ahead = worth[one.job.key] / one.job_gpus > worth[other.job.key] / other.job_gpus + 1e-9
            if ahead and draft.units(one) < draft.most[one.job.key]:
                assert draft.units(other) == 0
        assert sum(map(draft.units, jobs)) == min(gpus, sum(draft.most[state.job.key] for state in jobs))
        return draft


def admitted(state: JobState, worth: dict[str, float]) -> bool:
    return worth[state.job.key] > 0 or bool(state.runs) or state.counted_gpu_seconds > 0


@settings(max_examples=80)
@given(
    gpus=st.integers(1, 8),
    steps=st.lists(
        st.tuples(st.booleans(), st.integers(1, 6), st.floats(10.0, 4000.0), st.floats(0.1, 5.0)),
        min_size=3,
        max_size=12,
    ),
)
def test_jobs_get_all_their_workers_in_order_of_payoff(gpus: int, steps: list[tuple[bool, int, float, float]]) -> None:
    made = Planner(Watched(), PlannerSettings(validate=True))
    made.handle_all([SiteChanged(Site("edge-a")), NodeChanged(node("n0", gpus=gpus))], 0.0)
    for number, (arrives, chunks, seconds, weight) in enumerate(steps):
        at = 50.0 * number
        running = [(key, attempt) for key, state in made.cluster.jobs.items() for attempt in state.runs]
        if arrives or not running:
            made.handle(JobSubmitted(job(f"j{number}", at, chunks=chunks, seconds=seconds, weight=weight)), at)
        else:
            made.handle(WorkerEnded(*running[chunks % len(running)], "Succeeded", at), at)
