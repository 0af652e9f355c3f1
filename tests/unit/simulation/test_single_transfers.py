"""Start rules of transfers in the simulator: each mini-batch of gangs whose transfers may wait for each other."""

from dataclasses import replace
from random import Random

import pytest

from contention_simulator import ALONE, MODELS, PENALTY, MiniBatchJob, Model, measured_ends, pairs
from lwf_study import network_ends
from support.builders import gang, job, node, worker
from tranche.estimate import LevelNetwork
from tranche.estimate.link_contention import PENALTY_RATIO
from tranche.estimate.transfer_start import START_RULES, ada_dual, fewer_than
from tranche.model import Job, Node
from tranche.model.topology import RACK_LEVEL
from tranche.simulation.engine.result import SimulationResult
from tranche.simulation.scenario import NodeFailure, Scenario, run

RULES = {
    "at-once": fewer_than(99),
    "srsf-1": fewer_than(1),
    "srsf-2": fewer_than(2),
    "adadual": ada_dual(ALONE, PENALTY),
}
NETWORK = LevelNetwork((400e9, 100e9, 10e9, 1e9))
SLOWER = 2 + PENALTY_RATIO
"""Time of a transfer beside one other, over its time alone."""


def racks(names: str) -> tuple[Node, ...]:
    """Return a node of one GPU for each letter, in the rack of that name; `pair` takes them two by two."""
    return tuple(node(f"n{at:02}", "edge", labels={RACK_LEVEL: name}) for at, name in enumerate(names))


def pair(name: str, submitted: float = 0.0, batches: int = 100, **changes: object) -> Job:
    """Return a gang of two members: 1 s and, between racks, 0.2 s for each mini-batch."""
    given = {"batches_per_chunk": batches, "step_seconds": 1.0, "gradient_bits": 2e9, **changes}
    return gang(name, submitted, 2, **given)


def simulated(transfers: str, jobs: list[Job], names: str, **changes: object) -> SimulationResult:
    given = {"policy": "fifo-skip", "level_network": NETWORK, "transfers": transfers, **changes}
    result = run(Scenario(tuple(jobs), racks(names), **given))  # type: ignore[arg-type]
    assert not result.unfinished
    return result


def ends(result: SimulationResult) -> dict[str, float]:
    return {one.key.partition("/")[2]: one.completed for one in result.jobs}


@pytest.mark.parametrize(("size", "after"), [(30.0, (118.33, 58.41)), (40.0, (85.6, 119.84))])
def test_adadual_starts_a_short_transfer_beside_a_long_one(size: float, after: tuple[float, float]) -> None:
    """After 1,085.6 ms, the first job has sent 100 of 200 MB, and the transfer of the second one is ready."""
    jobs = [
        MiniBatchJob(0, Model("old", 200.0, 500, 500, 0), 2, 1, 0.0),
        MiniBatchJob(1, Model("new", size, 500, 500, 0), 2, 1, 85.6),
    ]
    found = network_ends(jobs, [(0, 1)] * 2, "adadual")
    assert found == pytest.approx([(1085.6 + milliseconds) / 1000 for milliseconds in after], rel=1e-9)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("models", [MODELS[:2], MODELS[2:], MODELS[:1] * 2, MODELS], ids=str)
def test_jobs_end_as_in_the_contention_simulator(rule: str, models: tuple[Model, ...]) -> None:
    jobs, nodes = pairs(models, 30), [(0, 1)] * len(models)
    assert network_ends(jobs, nodes, rule) == pytest.approx(measured_ends(jobs, RULES[rule], nodes), rel=1e-8)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(10))
def test_drawn_jobs_end_as_in_the_contention_simulator(rule: str, seed: int) -> None:
    """Jobs share one node, both or none, and come and go, so that each is at times alone on its links."""
    draw = Random(seed)
    arrivals = sorted(draw.uniform(0.0, 4_000.0) for _ in range(4))
    counts = [draw.randint(30, 90) for _ in arrivals]
    jobs = [MiniBatchJob(i, draw.choice(MODELS), 2, counts[i], arrivals[i], left=counts[i]) for i in range(4)]
    nodes = [(one, other) for one, other in (draw.sample(range(4), 2) for _ in jobs)]
    assert network_ends(jobs, nodes, rule) == pytest.approx(measured_ends(jobs, RULES[rule], nodes), rel=1e-8)


def test_rules_of_the_simulator_are_those_of_the_source() -> None:
    cases = [(new, [100.0] * most, most) for new in (10.0, 39.2, 39.3, 200.0) for most in range(4)]
    assert {name: [rule(*case) for case in cases] for name, rule in START_RULES.items()} == {
        name: [rule(*case) for case in cases] for name, rule in RULES.items()
    }


@pytest.mark.parametrize("rule", START_RULES)
def test_gangs_that_do_not_meet_take_the_time_alone(rule: str) -> None:
    result = simulated(rule, [pair("a"), pair("b", 30.0)], "xyzw")
    assert ends(result) == pytest.approx({"a": 120.0, "b": 150.0}, rel=1e-12)
    assert [one.communication_seconds for one in result.jobs] == pytest.approx([20.0, 20.0], rel=1e-9)


def test_equal_gangs_that_avoid_contention_wait_once() -> None:
    """The second waits for the first transfer of the first; from then on, they send at different times."""
    result = simulated("srsf-1", [pair("a"), pair("b")], "xyxy")
    assert ends(result) == pytest.approx({"a": 120.0, "b": 120.2}, rel=1e-12)
    assert [one.communication_seconds for one in result.jobs] == pytest.approx([20.0, 20.2], rel=1e-9)


def test_equal_gangs_that_start_at_once_meet_every_time() -> None:
    result = simulated("at-once", [pair("a"), pair("b")], "xyxy")
    assert ends(result) == pytest.approx(dict.fromkeys("ab", 100 * (1 + 0.2 * SLOWER)), rel=1e-12)


def test_gang_that_comes_later_keeps_what_the_other_trained() -> None:
    """It comes after 30.5 s, in the computation of the 26th mini-batch, and its single transfer meets the 27th."""
    result = ends(simulated("at-once", [pair("a"), pair("b", 30.5, 1, step_seconds=1.75)], "xyxy"))
    # a sends its 27th gradients from 32.2 s; b is ready at 32.25 s: a has 0.15 s left, and b 0.2 s
    together = 0.15 * SLOWER
    assert result["a"] == pytest.approx(32.25 + together + 73 * 1.2, rel=1e-12)
    assert result["b"] == pytest.approx(32.25 + together + 0.05, rel=1e-12)


def test_gang_that_loses_a_node_lets_the_other_send() -> None:
    """All that it trained is lost, and it begins again on the nodes of the other one."""
    failure = NodeFailure("n02", 60.0, 500.0)
    result = ends(simulated("srsf-1", [pair("a"), pair("b")], "xyxy", failures=(failure,)))
    assert result["a"] == pytest.approx(120.0, rel=1e-12)
    assert result["b"] == pytest.approx(240.0, rel=1e-12)


def test_preempted_gang_keeps_its_part_of_a_mini_batch() -> None:
    """It is stopped after 60.6 s, in the middle of the computation of its 51st mini-batch."""
    jobs = [pair("a"), pair("b", 60.6, 1)]
    result = simulated("adadual", jobs, "xy", policy="srsf")
    assert ends(result) == pytest.approx({"b": 61.8, "a": 121.2}, rel=1e-12)
    assert {one.key: one.preemptions for one in result.jobs} == {"default/a": 2, "default/b": 0}
    assert result.jobs[-1].communication_seconds == pytest.approx(20.0, rel=1e-9)


def test_preempted_gang_that_waits_has_trained_its_computation() -> None:
    """Stopped at 1.1 s, the second gang waits for the first transfer, which lasts until 1.2 s."""
    jobs = [pair("a"), pair("b"), pair("c", 1.1, 1, priority=0)]
    result = simulated("srsf-1", jobs, "xyxy", policy="fifo-skip", restart_seconds=0.0)
    assert ends(result)["a"] == pytest.approx(120.0, rel=1e-12)


def test_decisions_at_periods_leave_the_ends_of_workers() -> None:
    result = ends(simulated("srsf-1", [pair("a"), pair("b")], "xyxy", period_seconds=7.0))
    assert result == pytest.approx({"a": 120.0, "b": 120.2}, rel=1e-12)


def test_slow_link_within_a_node_limits_a_gang() -> None:
    """Nodes of 1 Gbit/s inside: 2 s for each transfer, far from filling the links between racks."""
    slow = LevelNetwork((1e9, 100e9, 10e9, 1e9))
    result = ends(simulated("at-once", [pair("a"), pair("b")], "xyxy", level_network=slow))
    assert result == pytest.approx({"a": 300.0, "b": 300.0}, rel=1e-9)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"transfers": "srsf-3"}, "no start rule 'srsf-3'"),
        ({"level_network": None}, "requires the network model"),
        ({"contention": False}, "requires the network model"),
        ({"jobs": (job("up", data_site="edge"),)}, "default/up uploads data"),
        ({"jobs": (job("ps", servers=1, server=worker(0)),)}, "default/ps uploads data or has parameter servers"),
    ],
)
def test_start_rule_that_cannot_apply_is_refused(changes: dict[str, object], why: str) -> None:
    usual = Scenario((pair("a"),), racks("xy"), level_network=NETWORK, transfers="adadual")
    with pytest.raises(ValueError, match=why):
        replace(usual, **changes)  # type: ignore[arg-type]
