"""Policies that distribute workers: a planner that takes over decides as its predecessor would have, and no
distribution causes the next one without end."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from support.builders import job, node, planner, worker
from support.live_controller import NOW
from support.take_over import taken_over
from tranche.model import Job, Utility
from tranche.planner import (
    CloseWindow,
    Event,
    Instruction,
    JobSubmitted,
    OpenWindow,
    Planner,
    PlannerSettings,
    Tick,
    WorkerBound,
    WorkerEnded,
    WorkerUnschedulable,
)
from tranche.policies import get_policy
from tranche.simulation.engine.simulation import Simulation, prepare
from tranche.state.phases import WindowPhase

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


LONG, SHORT = (100.0, 2500.0), (1.0, 30.0)
"""Bounds of the seconds of a chunk: a window gets several chunks that are short beside a restart."""


def drawn(seed: int, count: int = 24, lengths: tuple[float, float] = LONG) -> list[Job]:
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
        seconds = draw.uniform(*lengths)
        jobs.append(job(f"j{number}", at, seconds=seconds, **changes))
    return jobs


def played(
    policy: str, seed: int, take_overs: Sequence[float] = (), lengths: tuple[float, float] = LONG
) -> tuple[list[Decision], Simulation]:
    """Return all decisions if another planner takes over at these times."""
    simulation = Simulation(Planner(get_policy(policy), PlannerSettings(validate=True)), RESTART_SECONDS, now=NOW)
    jobs = drawn(seed, lengths=lengths)
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


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_jobs_with_short_chunks_complete_in_few_decisions(
    monkeypatch: pytest.MonkeyPatch, policy: str, seed: int
) -> None:
    decide, decisions = Planner.handle_all, []

    def counted(made: Planner, events: Sequence[Event], now: float) -> list[Instruction]:
        decisions.append(now)
        assert len(decisions) <= MAX_DECISIONS, f"windows open and close without end at {now - NOW}"
        return decide(made, events, now)

    monkeypatch.setattr(Planner, "handle_all", counted)
    simulation = Simulation(Planner(get_policy(policy), PlannerSettings(validate=True)), RESTART_SECONDS, now=NOW)
    jobs = [replace(one, submitted=NOW + (one.submitted - NOW) / 100) for one in drawn(seed, lengths=SHORT)]
    prepare(simulation, jobs, NODES, [])
    while len(simulation.completed) < len(jobs):
        simulation.step()


MAX_DECISIONS = 600
"""Almost three times as many as any of the seeds needs, which is 212."""
MAX_REPEATS = 10
"""More than any of 40 seeds needs: a distribution stops some windows at most twice."""


class Ends:
    """Planner whose windows end at once if they close before a pod exists, as under the live controller."""

    def __init__(self, policy: str) -> None:
        self.planner = planner(policy, NODES)
        self.unwritten: set[tuple[str, int]] = set()

    def handle(self, event: Event, now: float) -> None:
        """Handle an event, and the ends that follow from it."""
        instructions: Iterable[Instruction] = self.planner.handle(event, now)
        for _ in range(MAX_REPEATS):
            told = list(instructions)
            self.unwritten |= {(one.job, one.window.attempt) for one in told if isinstance(one, OpenWindow)}
            closed = [(one.job, one.window.attempt) for one in told if isinstance(one, CloseWindow)]
            ends = [WorkerEnded(*who, "Lost", now) for who in closed if who in self.unwritten]
            if not ends:
                return
            instructions = self.planner.handle_all(ends, now)
        raise AssertionError(f"windows open and close without end after {event}")

    def happens(self, draw: random.Random, now: float) -> Event:
        """Return what happens to a window: its pod finds no place or gets a node, or its worker ends."""
        jobs = self.planner.cluster.jobs.items()
        windows = [(key, attempt, run) for key, state in jobs for attempt, run in state.runs.items()]
        if not windows:
            return Tick()
        key, attempt, run = draw.choice(windows)
        if run.closing:
            return WorkerEnded(key, attempt, "Preempted", now)
        if run.phase is not WindowPhase.PENDING:
            outcome = draw.choice(["Failed", "Succeeded", ""])
            return WorkerEnded(key, attempt, outcome, now) if outcome else Tick()  # type: ignore[arg-type]
        if draw.random() < 0.5:
            return WorkerUnschedulable(key, attempt, "no room")
        self.unwritten.discard((key, attempt))
        return WorkerBound(key, attempt, run.window.node or "")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("lengths", [LONG, SHORT], ids=["long", "short"])
@pytest.mark.parametrize("seed", [1, 2, 11, 37])
def test_no_distribution_repeats_without_end(policy: str, lengths: tuple[float, float], seed: int) -> None:
    """Jobs that may preempt no other use idle GPUs, nodes are on trial, and windows have several chunks: none of it
    changes the next distribution.
    """
    draw, played, now = random.Random(seed), Ends(policy), NOW
    for one in drawn(seed, 30, lengths):
        now = max(now, one.submitted)
        played.handle(JobSubmitted(one), now)
        for _ in range(4):
            now += draw.uniform(0, 60)
            played.handle(played.happens(draw, now), now)
