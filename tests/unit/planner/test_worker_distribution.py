"""Worker distribution: stable places, and what a planner that takes over keeps, gives back and distributes again."""

import random
from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import Any

import pytest

from support.builders import job, node, of_type, planner
from support.live_controller import NOW
from support.take_over import statuses_of, successor
from tranche.model import Admission, Job, SlotCells, SlotPlan, Utility
from tranche.planner import CloseWindow, JobChanged, JobRemoved, JobSubmitted, NodeChanged, Planner, Tick, WorkerStarted
from tranche.planner.job_actions import hold
from tranche.planner.scheduling.worker_distribution import new_places

HOUR = 3600.0
START = NOW - NOW % HOUR
"""Beginning of a slot of an hour."""
BOTH = ["oasis", "pd-ors-like"]


def valued(name: str, priority: float, hours: float = 1.0, **changes: Any) -> Job:
    utility = Utility(priority, 0.1 / HOUR, 100 * HOUR)
    return job(name, START, seconds=hours * HOUR, utility=utility, **changes)


def with_jobs(policy: str, *jobs: Job, gpus: int = 2) -> Planner:
    made = planner(policy, [node("n0", gpus=gpus)])
    made.handle_all([JobSubmitted(one) for one in jobs], START)
    for key, state in made.cluster.jobs.items():
        for attempt in state.runs:
            made.handle(WorkerStarted(key, attempt, START), START)
    return made


def plan_of(made: Planner, name: str) -> SlotPlan:
    plan = made.cluster.jobs[f"default/{name}"].slot_plan
    assert plan is not None
    return plan


def grants(made: Planner, now: float) -> dict[str, object]:
    return {key: made.plan_of(key, now).grant for key in made.cluster.jobs}


# ---- places


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([], []),
        ([None, None], [0.0, 1.0]),
        ([0.0, 2.0, 3.0], [0.0, 2.0, 3.0]),
        ([0.0, None, 1.0, None], [0.0, 0.5, 1.0, 2.0]),
        ([None, 5.0], [4.0, 5.0]),
        ([2.0, 0.0, 1.0], [-1.0, 0.0, 1.0]),
        ([0.0, None, 1e-7], [0.0, 1.0, 2.0]),
    ],
)
def test_places_change_only_where_the_order_does(old: list[float | None], new: list[float]) -> None:
    assert new_places(old) == new


def test_places_increase_whatever_they_were() -> None:
    for seed in range(200):
        draw = random.Random(seed)
        old = [draw.choice([None, float(draw.randint(0, 9))]) for _ in range(draw.randint(0, 12))]
        assert all(a < b for a, b in pairwise(new_places(old))), (seed, old)


def test_completion_of_the_first_job_changes_no_other_grant() -> None:
    made = with_jobs("optimus", *(job(f"j{n}", START + n, seconds=HOUR) for n in range(4)), gpus=9)
    before = grants(made, START)
    made.handle(JobRemoved("default/j0"), START + 5)
    assert grants(made, START + 5) == {key: one for key, one in before.items() if key != "default/j0"}


# ---- take-overs


@pytest.mark.parametrize("policy", [*BOTH, "rrh", "dorm", "optimus"])
def test_take_over_keeps_all_grants(policy: str) -> None:
    made = with_jobs(policy, *(valued(f"j{n}", 1.0 + n, 1.0 + n, chunks=2) for n in range(4)))
    later = successor(made, START + 600)
    assert grants(later, START + 600) == grants(made, START + 600)
    assert later.cluster.distribution.inputs is not None
    assert not any(run.closing for state in later.cluster.jobs.values() for run in state.runs.values())


def test_take_over_by_another_policy_ignores_the_grants() -> None:
    made = with_jobs("rrh", valued("a", 1.0), valued("b", 9.0), gpus=1)
    assert made.cluster.jobs["default/a"].granted == 0
    other = planner("dorm", [node("n0", gpus=1)])
    made.context.policy = other.policy
    later = successor(made, START + 600)
    assert later.policy.name == "dorm"
    assert all(one.slot_plan is None for one in later.cluster.jobs.values())


def test_take_over_with_another_length_of_slots_drops_cells() -> None:
    made = with_jobs("oasis", valued("a", 9.0))
    statuses = statuses_of(made, START)
    slots = statuses["default/a"]["plan"]["grant"]["slots"]
    assert slots["seconds"] == HOUR
    slots |= {"payoff": 123.0}
    assert plan_of(successor(made, START, statuses), "a").payoff == 123.0
    slots |= {"seconds": 60.0}
    assert plan_of(successor(made, START, statuses), "a").payoff == plan_of(made, "a").payoff


@pytest.mark.parametrize("policy", BOTH)
def test_job_deleted_without_a_planner_gives_back_its_cells(policy: str) -> None:
    dear = valued("dear", 900.0, 24.0, chunks=2)
    made = with_jobs(f"{policy}:horizon=24:quanta=24", dear, valued("poor", 1.0))
    assert plan_of(made, "poor").payoff == -inf
    statuses = statuses_of(made, START + 60)
    del statuses["default/dear"]
    later = successor(made, START + 60, statuses)
    assert later.cluster.distribution.returned == made.cluster.distribution.returned + 1
    assert plan_of(later, "poor").cells


FORGED: dict[str, dict[str, Any]] = {
    "more workers than the job": {"cells": [{"first": 0, "last": 0, "workers": [{"node": "n0", "pods": 2}]}]},
    "slots without end": {"cells": [{"first": 0, "last": 9_000, "workers": [{"node": "n0", "pods": 1}]}]},
    "more work than the job": {"cells": [{"first": 0, "last": 99, "workers": [{"node": "n0", "pods": 1}]}]},
    "no order": {
        "cells": [
            {"first": 3, "last": 3, "workers": [{"node": "n0", "pods": 1}]},
            {"first": 2, "last": 3, "workers": [{"node": "n0", "pods": 1}]},
        ]
    },
    "servers": {
        "cells": [
            {
                "first": 0,
                "last": 0,
                "workers": [{"node": "n0", "pods": 1}],
                "parameterServers": [{"node": "n0", "pods": 50}],
            }
        ]
    },
    "no workers": {"cells": [{"first": 0, "last": 0, "workers": []}]},
    "an offer in the future": {"offered": 50, "payoff": 1e300, "cells": []},
}
"""Slots count from the present one."""


@pytest.mark.parametrize("policy", BOTH)
@pytest.mark.parametrize("what", FORGED)
def test_forged_cells_reserve_nothing(policy: str, what: str) -> None:
    made, slot = with_jobs(policy, valued("a", 9.0), valued("mine", 1.0)), int(START / HOUR)
    statuses, forged = statuses_of(made, START), FORGED[what]
    cells = [{**one, "first": slot + one["first"], "last": slot + one["last"]} for one in forged["cells"]]
    offered = slot + forged.get("offered", 0)
    statuses["default/mine"]["plan"]["grant"]["slots"] |= {**forged, "cells": cells, "offered": offered}
    later = successor(made, START, statuses)
    assert plan_of(later, "mine").cells == plan_of(made, "mine").cells
    assert plan_of(later, "a") == plan_of(made, "a")
    later.handle(Tick(), START + 60)


@pytest.mark.parametrize("policy", [*BOTH, "rrh"])
def test_forged_grant_is_replaced(policy: str) -> None:
    made = with_jobs(policy, valued("a", 9.0), valued("b", 1.0), gpus=1)
    statuses = statuses_of(made, START)
    statuses["default/b"]["plan"]["grant"] |= {"workers": 2000, "place": -1e300}
    later = successor(made, START, statuses)
    assert {key: one.granted for key, one in later.cluster.jobs.items()} == {
        key: one.granted for key, one in made.cluster.jobs.items()
    }


@pytest.mark.parametrize("policy", BOTH)
def test_many_jobs_are_offered_cells_in_several_decisions(policy: str) -> None:
    """No decision takes so long that the planner loses its Lease; a planner that takes over goes on."""
    made = planner(policy, [node("n0", gpus=99)])
    made.handle_all([JobSubmitted(valued(f"j{n:02}", 9.0)) for n in range(25)], START)
    for one, expected in ((made, [10, 20]), (successor(made, START), [20])):
        offers: list[int] = []
        while one.cluster.distribution.is_partial:
            offers.append(sum(state.slot_plan is not None for state in one.cluster.jobs.values()))
            assert one.next_wakeup() == START
            one.handle(Tick(), START)
        assert offers == expected
        assert all(state.slot_plan is not None for state in one.cluster.jobs.values())


# ---- jobs that may not start


@pytest.mark.parametrize("policy", BOTH)
def test_held_job_keeps_its_cells(policy: str) -> None:
    """Its pods have found no place; they start again in a minute."""
    made = with_jobs(policy, valued("a", 9.0), valued("b", 5.0), gpus=1)
    state, before = made.cluster.jobs["default/b"], plan_of(made, "b")
    assert before.cells
    hold(made.context, state, 60.0, "rejected")
    made.handle(JobSubmitted(valued("c", 99.0)), START + 1)
    assert state.held_until > START + 1
    assert plan_of(made, "b") == before
    taken = {one.slot for one in (*before.cells, *plan_of(made, "a").cells)}
    assert not taken.intersection(one.slot for one in plan_of(made, "c").cells)


@pytest.mark.parametrize("policy", [*BOTH, "rrh", "dorm", "optimus"])
def test_no_worker_stops_for_pods_that_are_not_admitted(policy: str) -> None:
    made = planner(policy, [node("n0", gpus=2)], requires_admission=True)
    first = valued("a", 1.0, 9.0, chunks=2, admission=Admission.PASSED)
    made.handle(JobSubmitted(first), START + 1)
    assert len(made.cluster.jobs["default/a"].runs) == 2
    later = valued("b", 99.0, admission=Admission.UNCHECKED)
    assert not of_type(CloseWindow, made.handle(JobSubmitted(later), START + 2))
    assert made.cluster.jobs["default/b"].slot_plan is None
    passed = replace(later, admission=Admission.PASSED)
    assert len(of_type(CloseWindow, made.handle(JobChanged(passed), START + 3))) == 1
    assert made.cluster.jobs["default/b"].granted == 1


@pytest.mark.parametrize("policy", BOTH)
def test_suspended_job_gives_back_its_cells(policy: str) -> None:
    made = with_jobs(policy, valued("a", 9.0), valued("b", 5.0), gpus=1)
    state = made.cluster.jobs["default/b"]
    returned = made.cluster.distribution.returned
    made.handle(JobChanged(replace(state.job, suspended=True, generation=2)), START + 1)
    assert state.slot_plan is None
    assert made.plan_of("default/b", START + 1).grant is None
    assert made.cluster.distribution.returned == returned + 1
    made.handle(JobChanged(replace(state.job, suspended=False, generation=3)), START + 2)
    assert plan_of(made, "b").cells


@pytest.mark.parametrize("policy", BOTH)
def test_job_that_becomes_smaller_is_offered_cells_again(policy: str) -> None:
    made = with_jobs(policy, valued("a", 9.0, 0.4, chunks=8, max_workers=8), gpus=8)
    state = made.cluster.jobs["default/a"]
    assert max(sum(count for _, count in one.workers) for one in plan_of(made, "a").cells) > 1
    made.handle(JobChanged(replace(state.job, max_workers=1, generation=2)), START + 1)
    assert {sum(count for _, count in one.workers) for one in plan_of(made, "a").cells} == {1}


@pytest.mark.parametrize("policy", BOTH)
def test_cells_on_a_lost_node_are_kept_and_not_counted(policy: str) -> None:
    """The job takes other room in its slots, and a job that arrives is offered cells on the nodes that are left."""
    made = planner(policy, [node("n0", gpus=1), node("n1", gpus=1)])
    made.handle_all([JobSubmitted(valued("a", 9.0)), JobSubmitted(valued("b", 5.0))], START)
    [(lost, _)] = plan_of(made, "a").cells[0].workers
    before = plan_of(made, "a")
    gone = replace(made.cluster.nodes[lost].node, ready=False)
    made.handle(NodeChanged(gone), START + 1)
    assert plan_of(made, "a") == before
    made.handle(JobSubmitted(valued("c", 99.0)), START + 2)
    assert {name for one in plan_of(made, "c").cells for name, _ in one.workers} == {"n0", "n1"} - {lost}


@pytest.mark.parametrize("policy", BOTH)
def test_node_that_loses_gpus_stops_no_decision(policy: str) -> None:
    made = planner(policy, [node("n0", gpus=8)])
    made.handle(JobSubmitted(valued("a", 9.0, 9.0, chunks=8, max_workers=8)), START)
    made.handle(NodeChanged(node("n0", gpus=1)), START + 1)
    made.handle(JobSubmitted(valued("b", 9.0)), START + 2)
    cells: tuple[SlotCells, ...] = plan_of(made, "b").cells
    held = {one.slot for one in plan_of(made, "a").cells}
    assert not held.intersection(one.slot for one in cells)
