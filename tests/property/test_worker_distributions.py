"""Policies that distribute workers: a planner that takes over decides as its predecessor would have."""

import random
from collections.abc import Sequence
from math import inf
from typing import Any

import pytest

from support.builders import job, node, worker
from support.live_controller import NOW
from support.take_over import taken_over
from tranche.model import Job, Utility
from tranche.planner import CloseWindow, OpenWindow, Planner, PlannerSettings
from tranche.policies import get_policy
from tranche.simulation.engine.simulation import Simulation, prepare

SLOT = 900.0
POLICIES = (
    "optimus",
    "dorm",
    "rrh",
    f"oasis:slot={SLOT:g}",
    f"oasis:slot={SLOT:g}:price_ratio=100",
    f"pd-ors-like:slot={SLOT:g}",
)
RESTART_SECONDS = 7.0
NODES = [node("n0", gpus=4), node("n1", gpus=3), node("n2", "edge-b", gpus=2)]
Decision = tuple[float, str, str, int, str | None, tuple[int, ...]]


def drawn(seed: int, count: int = 24) -> list[Job]:
    """Return gangs and chunked jobs, some with parameter servers, with and without utilities, that do not all fit."""
    draw, jobs, at = random.Random(seed), [], NOW
    for number in range(count):
        at += draw.expovariate(1 / 300.0)
        changes: dict[str, Any] = {"restart_seconds": RESTART_SECONDS}
        if draw.random() < 0.7:
            decay = draw.choice([0.0, 0.5, 5.0]) / 3600
            changes["utility"] = Utility(draw.uniform(1, 100), decay, draw.uniform(600, 10_000))
        if draw.random() < 0.3:
            changes |= {"servers": 1, "server": worker(0)}
        if draw.random() < 0.25:
            members = draw.randint(2, 3)
            changes |= {"is_gang": True, "chunks": members, "max_workers": members, "servers": 0, "server": None}
        else:
            chunks = draw.randint(1, 8)
            changes |= {"chunks": chunks, "max_workers": draw.randint(1, chunks)}
        seconds = draw.uniform(100, 2500)
        jobs.append(job(f"j{number}", at, seconds=seconds, **changes))
    return jobs


def played(policy: str, seed: int, take_overs: Sequence[float] = ()) -> tuple[list[Decision], Simulation]:
    """Return all decisions if another planner takes over at these times."""
    simulation = Simulation(Planner(get_policy(policy), PlannerSettings(validate=True)), RESTART_SECONDS, now=NOW)
    jobs = drawn(seed)
    prepare(simulation, jobs, NODES, [])
    for at in (*take_overs, inf):
        while simulation.now < at and len(simulation.completed) < len(jobs):
            simulation.step()
        if at < inf and len(simulation.completed) < len(jobs):
            simulation.planner, first = taken_over(simulation.planner, simulation.now)
            assert not [one for one in first if isinstance(one, OpenWindow | CloseWindow)]
    return list(decisions(simulation)), simulation


def decisions(simulation: Simulation) -> list[Decision]:
    """Return the openings and closings of windows, in order."""
    return [
        (at - NOW, type(one).__name__, one.job, one.window.attempt, one.window.node, one.window.chunks)
        for at, one in simulation.history
        if isinstance(one, OpenWindow | CloseWindow)
    ]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(2))
def test_take_overs_change_no_decision(policy: str, seed: int) -> None:
    draw = random.Random(seed)
    expected, simulation = played(policy, seed)
    assert len(simulation.completed) == 24
    moments = sorted(draw.uniform(NOW, simulation.now) for _ in range(25))
    found, _ = played(policy, seed, moments)
    assert [one[1:] for one in found] == [one[1:] for one in expected]
    assert [one[0] for one in found] == pytest.approx([one[0] for one in expected], abs=1e-2)
