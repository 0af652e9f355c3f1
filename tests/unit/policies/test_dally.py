"""Dally-like: delays, moves and preemption of gangs by topology level, in the simulator."""

from typing import Any

import pytest

from support.builders import gang, job, node, worker
from tranche.estimate import LevelNetwork
from tranche.model import Job, Node, Preemption, Site, Tier
from tranche.model.topology import RACK_LEVEL
from tranche.planner.scheduling.level_relocation import REVIEW_SECONDS
from tranche.simulation.engine.result import JobResult
from tranche.simulation.scenario import Scenario, run

NETWORK = LevelNetwork((300e9, 100e9, 10e9, 1e9))
"""A ring of two with gradients of 10 Gbit: 1/30 s in a node, 0.1 s in a rack, 1 s between racks."""
BITS = 10e9
FAMILY = ("consolidate", "dally-like", "dally-like:timers=100", "no-wait")


def nodes(*gpus: int, rack: str = "xy") -> tuple[Node, ...]:
    """Return nodes with these GPUs, each in a rack of its own but for those with the same letter."""
    return tuple(node(f"n{i}", gpus=count, labels={RACK_LEVEL: rack[i]}) for i, count in enumerate(gpus))


def pair(name: str, submitted: float = 0.0, batches: int = 100, **changes: Any) -> Job:
    """Return a gang of two members with mini-batches of 1 s and gradients of 10 Gbit."""
    return gang(name, submitted, 2, **{"batches_per_chunk": batches, "gradient_bits": BITS, **changes})


def simulated(policy: str, jobs: tuple[Job, ...], cluster: tuple[Node, ...], **changes: Any) -> dict[str, JobResult]:
    scenario = Scenario(jobs, cluster, policy=policy, **{"level_network": NETWORK, **changes})
    return {one.key.removeprefix("default/"): one for one in run(scenario).jobs}


@pytest.mark.parametrize(
    ("policy", "start", "end"),
    [
        ("no-wait", 0.0, 200.0),
        ("consolidate", 100.0, 100 + 100 * (1 + 1 / 30)),
        ("dally-like:timers=5/0", 5.0, 205.0),
        ("dally-like:timers=20/0", 100 * (1 / 10 - 1 / 30), 200 + 100 * (1 / 10 - 1 / 30)),
        ("dally-like:timers=0/30", 30.0, 230.0),
        ("dally-like:timers=0/1e9", 90.0, 290.0),
    ],
)
def test_gang_waits_for_a_node_until_its_timers_are_over(policy: str, start: float, end: float) -> None:
    blockers = tuple(job(f"b{i}", 0.0, seconds=100.0, worker=worker(3)) for i in range(2))
    late = pair("late", 1e-3, preemption=Preemption.NEVER)
    found = simulated(policy, (*blockers, late), nodes(4, 4))["late"]
    assert found.started == pytest.approx(start, abs=0.01)
    assert found.completed == pytest.approx(end, abs=0.01)


def test_no_wait_equals_timers_of_0() -> None:
    cluster, jobs = (
        nodes(4, 4, 2, rack="xxy"),
        tuple(
            pair(f"p{i}", 7.0 * i, 30 + 11 * (i % 5)) if i % 3 else job(f"s{i}", 7.0 * i, seconds=90.0)
            for i in range(40)
        ),
    )
    assert simulated("dally-like:timers=0", jobs, cluster) == simulated("no-wait", jobs, cluster)


def test_job_behind_a_declining_gang_starts() -> None:
    blockers = tuple(job(f"b{i}", 0.0, seconds=100.0, worker=worker(3), preemption=Preemption.NEVER) for i in range(2))
    found = simulated("consolidate", (*blockers, pair("late", 1.0), job("behind", 2.0, seconds=10.0)), nodes(4, 4))
    assert found["behind"].started == 2.0
    assert found["late"].started > 90.0


def test_declined_time_counts_only_while_there_is_a_place() -> None:
    """A place between racks exists from 1 to 5 s and from 50 s on; timers of 20 s are over at 66 s."""
    blockers = tuple(job(f"b{i}", 0.0, seconds=500.0, worker=worker(3), preemption=Preemption.NEVER) for i in range(2))
    short = job("short", 5.0, seconds=45.0, preemption=Preemption.NEVER)
    late = pair("late", 1.0, 2000, preemption=Preemption.NEVER)
    found = simulated("dally-like:timers=20/0", (*blockers, short, late), nodes(4, 4))
    assert found["short"].started == 5.0
    assert found["late"].started == pytest.approx(66.0, abs=0.01)


def test_timers_follow_observed_waits() -> None:
    """Five pairs see a node with room after 99 s each; the timer becomes 99 s, and the sixth pair waits."""
    jobs: list[Job] = []
    for i in range(6):
        at = 1000.0 * i
        jobs += [job(f"b{i}{k}", at, seconds=100.0, worker=worker(3), preemption=Preemption.NEVER) for k in range(2)]
        jobs.append(pair(f"p{i}", at + 1, 400, preemption=Preemption.NEVER, restart_seconds=1e6))
    found = simulated("dally-like", tuple(jobs), nodes(4, 4))
    waits = [found[f"p{i}"].started - 1000.0 * i - 1 for i in range(6)]
    assert waits[:5] == [0.0] * 5
    assert waits[5] == pytest.approx(99.0, abs=0.01)


@pytest.mark.parametrize(("restart_seconds", "moves"), [(30.0, 1), (200.0, 0)])
def test_running_gang_moves_if_that_pays(restart_seconds: float, moves: int) -> None:
    """At 100 s, 150 of 200 mini-batches are left: 150 (2 - 1.033) = 145 s are to be gained."""
    blockers = tuple(job(f"b{i}", 0.0, seconds=100.0, worker=worker(3), preemption=Preemption.NEVER) for i in range(2))
    gang_job = pair("late", 0.0, 200, restart_seconds=restart_seconds)
    found = simulated("no-wait", (*blockers, gang_job), nodes(4, 4))["late"]
    assert found.preemptions == 2 * moves
    if not moves:
        assert found.completed == pytest.approx(400.0)
    else:
        assert found.completed == pytest.approx(100 + 150 * (1 + 1 / 30))


@pytest.mark.parametrize("policy", [name for name in FAMILY if name != "consolidate"])
def test_with_equal_levels_nothing_waits_or_moves(policy: str) -> None:
    """`consolidate` waits for its narrowest level in any network."""
    jobs = tuple(pair(f"p{i}", 5.0 * i, preemption=Preemption.NEVER) for i in range(12))
    cluster = nodes(3, 3, 1, rack="xyz")
    found = simulated(policy, jobs, cluster, level_network=None)
    assert {one.preemptions for one in found.values()} == {0}
    free = simulated("fifo-skip", jobs, cluster, level_network=None)
    assert {one.started for one in found.values()} == {one.started for one in free.values()}


def test_delayed_job_preempts_one_that_loses_less() -> None:
    """The victim has trained all its life (S = 1); a gang that never ran (S = 0) gains the wait of 900 s."""
    long = job("long", 0.0, seconds=1000.0, worker=worker(2))
    late = pair("late", 100.0, 50)
    found = simulated("no-wait", (long, late), nodes(2))
    assert found["late"].started == 100.0
    assert found["long"].preemptions == 1


def test_preemption_that_costs_more_than_it_gains_is_left_out() -> None:
    long = job("long", 0.0, seconds=1000.0, worker=worker(2), restart_seconds=2000.0)
    found = simulated("no-wait", (long, pair("late", 100.0, 50)), nodes(2))
    assert found["late"].started == 1000.0
    assert found["long"].preemptions == 0


def test_preempted_job_is_safe_for_the_quantum() -> None:
    long = job("long", 0.0, seconds=1000.0, worker=worker(2))
    jobs = (long, pair("a", 100.0, 50), pair("b", 300.0, 50))
    found = simulated("no-wait", jobs, nodes(2))
    assert found["a"].started == 100.0
    assert found["b"].started >= 700.0


def test_preemption_is_reviewed_when_the_quantum_is_over() -> None:
    """No event follows the arrival of b at 300 s; the quantum of the victim ends at 700 s."""
    long = job("long", 0.0, seconds=5000.0, worker=worker(2))
    jobs = (long, pair("a", 100.0, 50), pair("b", 300.0, 50))
    assert simulated("no-wait", jobs, nodes(2))["b"].started == 300.0 + REVIEW_SECONDS


@pytest.mark.parametrize("policy", FAMILY)
def test_all_jobs_complete_at_an_unlimited_site(policy: str) -> None:
    sites = (Site("edge-a"), Site("cloud", Tier.CLOUD, unlimited=True))
    jobs = tuple(pair(f"p{i}", 5.0 * i) for i in range(6))
    assert len(simulated(policy, jobs, nodes(1, 1), sites=sites)) == 6
