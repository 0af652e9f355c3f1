"""Random gangs under the policies that place by topology level: invariants hold, all complete, preemptions are rare."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import Any

import pytest

from support.builders import gang, job, node, worker
from tranche.estimate import LevelNetwork
from tranche.model import Job
from tranche.model.topology import RACK_LEVEL
from tranche.planner import (
    CloseWindow,
    Instruction,
    JobSubmitted,
    NodeChanged,
    OpenWindow,
    Planner,
    PlannerSettings,
    SiteChanged,
    WorkerStarted,
)
from tranche.planner.learned_state import learned_state_of, recall
from tranche.policies import get_policy
from tranche.policies.locality.most_delayed import batches_left, level_seconds
from tranche.policies.locality.network_gain import preemption_quantum
from tranche.policies.seeded_choice import uniform
from tranche.simulation.engine.simulation import Simulation, prepare

NETWORK = LevelNetwork((300e9, 100e9, 10e9, 1e9))
POLICIES = ("consolidate", "dally-like", "dally-like:timers=300/100", "no-wait")
RESTART_SECONDS = 20.0


def drawn(seed: int, count: int) -> list[Job]:
    """Return gangs and jobs of one pod with drawn sizes, durations and gradients."""
    jobs = []
    for i in range(count):
        members = (1, 2, 4, 6, 8)[int(uniform(seed, i, "members") * 5)]
        fields: dict[str, Any] = {
            "batches_per_chunk": 1 + int(uniform(seed, i, "length") ** 3 * 4000),
            "step_seconds": 0.5,
            "gradient_bits": 10e9 * uniform(seed, i, "bits"),
            "restart_seconds": RESTART_SECONDS,
        }
        at = 30.0 * i + uniform(seed, i, "arrival")
        jobs.append(gang(f"g{i}", at, members, **fields) if members > 1 else job(f"s{i}", at, **fields))
    return jobs


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", [1, 2])
def test_gangs_complete_and_preemptions_keep_their_quantum(policy: str, seed: int) -> None:
    nodes = [node(f"n{i}", f"edge-{i // 4}", 4, labels={RACK_LEVEL: f"r{i // 2}"}) for i in range(6)]
    planner = Planner(get_policy(policy), PlannerSettings(validate=True, level_network=NETWORK))
    simulation = Simulation(planner, RESTART_SECONDS)
    jobs = [*drawn(seed, 40), job("wide", 5.0, seconds=50.0, worker=worker(4), restart_seconds=RESTART_SECONDS)]
    prepare(simulation, jobs, nodes, [])
    simulation.run()
    assert len(simulation.result().jobs) == len(jobs)
    stopped: dict[str, list[float]] = {}
    for at, instruction in simulation.history:
        if isinstance(instruction, CloseWindow) and instruction.window.preempted_by:
            stopped.setdefault(instruction.job, []).append(at)
    for times in stopped.values():
        moments = sorted(set(times))
        assert all(b - a >= preemption_quantum(RESTART_SECONDS) for a, b in pairwise(moments))


@pytest.mark.parametrize("policy", POLICIES)
def test_forecast_reaches_the_end_of_a_declining_gang(policy: str) -> None:
    nodes = [node(f"n{i}", "edge-a", 4, labels={RACK_LEVEL: f"r{i}"}) for i in range(2)]
    planner = Planner(get_policy(policy), PlannerSettings(level_network=NETWORK))
    simulation = Simulation(planner)
    blockers = [job(f"b{i}", seconds=100.0, worker=worker(3)) for i in range(2)]
    prepare(simulation, [*blockers, gang("late", 1.0, gradient_bits=10e9)], nodes, [])
    while simulation.now < 1.0:
        simulation.step()
    before = len(planner.cluster.locality.jobs)
    estimates = planner.forecast(simulation.now)
    assert estimates["default/late"].completion is not None
    assert len(planner.cluster.locality.jobs) == before
    simulation.run()
    assert len(simulation.result().jobs) == 3


@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize("seed", range(4))
def test_no_gang_declines_longer_than_its_timers_or_its_gain(seed: int, scale: float) -> None:
    timers = {0: 300.0, 1: 100.0, 2: 100.0}
    nodes = [node(f"n{i}", f"edge-{i // 4}", 4, labels={RACK_LEVEL: f"r{i // 2}"}) for i in range(6)]
    planner = Planner(get_policy("dally-like:timers=300/100"), PlannerSettings(validate=True, level_network=NETWORK))
    simulation = Simulation(planner, RESTART_SECONDS)
    jobs = [replace(one, gradient_bits=scale * one.gradient_bits) for one in drawn(seed, 40)]
    prepare(simulation, jobs, nodes, [])
    cluster, widest = planner.cluster, planner.cluster.places.topology.widest
    while planner.next_wakeup() is not None or len(simulation.completed) < len(jobs):
        simulation.step()
        for key, known in cluster.locality.jobs.items():
            state, waited = cluster.jobs.get(key), known.waited(simulation.now)
            if state is None or not waited:
                continue
            narrowest = cluster.narrowest_level(state)
            saved = level_seconds(state, cluster, widest) - level_seconds(state, cluster, narrowest)
            gain = batches_left(state, state.idle_since) * saved
            assert waited <= min(gain, sum(timers[level] for level in range(narrowest, widest))) + 1e-3


def successor(planner: Planner, now: float) -> tuple[Planner, list[Instruction]]:
    """Return a planner that has restored what this one has written, and its first instructions."""
    made, cluster = Planner(planner.policy, planner.settings), planner.cluster
    for site in cluster.sites.values():
        made.handle(SiteChanged(site), now)
    for known in cluster.nodes.values():
        made.handle(NodeChanged(known.node), now)
    recall(made.context, learned_state_of(cluster, now))
    jobs = [
        JobSubmitted(one.job, planner.plan_of(key, now), planner.progress_of(key)) for key, one in cluster.jobs.items()
    ]
    runs = [(key, run) for key, one in cluster.jobs.items() for run in one.runs.values()]
    starts = [WorkerStarted(key, run.window.attempt, run.started) for key, run in runs if run.started is not None]
    return made, made.restore(jobs, now, starts)


def completions(policy: str, seed: int, take_overs: Sequence[float] = ()) -> dict[str, float]:
    """Return when each job completes if another planner takes over at these times."""
    nodes = [node(f"n{i}", f"edge-{i // 4}", 4, labels={RACK_LEVEL: f"r{i // 2}"}) for i in range(6)]
    simulation = Simulation(
        Planner(get_policy(policy), PlannerSettings(validate=True, level_network=NETWORK)), RESTART_SECONDS
    )
    prepare(simulation, drawn(seed, 40), nodes, [])
    for at in (*take_overs, inf):
        while simulation.now < at and len(simulation.completed) < 40:
            simulation.step()
        if at < inf:
            simulation.planner, first = successor(simulation.planner, simulation.now)
            assert not [one for one in first if isinstance(one, OpenWindow | CloseWindow)]
    return {one.key: one.completed for one in simulation.result().jobs}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", [9, 13])
def test_take_overs_by_other_planners_change_no_completion(policy: str, seed: int) -> None:
    """A take-over is one more decision, which may preempt earlier; with these seeds it does not."""
    expected = completions(policy, seed)
    assert len(expected) == 40
    assert completions(policy, seed, range(100, 4000, 100)) == pytest.approx(expected, abs=1e-3)
