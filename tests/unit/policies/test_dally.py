"""Dally-like: delays, moves and preemption of gangs by topology level, in the simulator."""

from dataclasses import replace
from typing import Any

import pytest

from support.builders import gang, job, node, of_type, planner, worker
from tranche.estimate import LevelNetwork
from tranche.model import Job, JobProgress, Node, Preemption, Quota, QuotaLimit, Site, Tier
from tranche.model.topology import RACK_LEVEL
from tranche.planner import (
    CloseWindow,
    Event,
    JobChanged,
    JobSubmitted,
    KubeSchedulerChanged,
    NodeChanged,
    Planner,
    QuotaChanged,
    SiteChanged,
    WorkerBound,
    WorkerEnded,
    WorkerStarted,
    WorkerUnschedulable,
)
from tranche.planner.scheduling.level_relocation import REVIEW_SECONDS
from tranche.policies.locality.most_delayed import level_seconds
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


@pytest.mark.parametrize("policy", ["no-wait", "chunk"])
def test_changed_site_does_not_make_a_running_gang_longer(policy: str) -> None:
    """The gang trains between racks, for 2 s a mini-batch; on one node it would take 1 + 1/30 s."""
    made = planner(policy, [*nodes(4, 4)], level_network=NETWORK)
    blockers = [job(f"b{i}", 0.0, seconds=100.0, worker=worker(3), preemption=Preemption.NEVER) for i in range(2)]
    made.handle_all([JobSubmitted(one) for one in blockers], 0.0)
    made.handle(JobSubmitted(pair("late")), 0.0)
    state = made.cluster.jobs["default/late"]
    assert state.topology_level == 2
    for at, event in ((50.0, SiteChanged(Site("other"))), (60.0, JobChanged(replace(state.job, weight=2.0)))):
        made.handle(event, at)
        assert state.ideal_seconds == pytest.approx(100 * (1 + 1 / 30))
        assert level_seconds(state, made.cluster, 2) == pytest.approx(2.0)


def test_node_that_is_added_later_makes_narrow_levels_fast() -> None:
    """When it was submitted, the gang fitted no node."""
    made = planner("no-wait", [*nodes(1, 1)], level_network=NETWORK)
    made.handle(JobSubmitted(pair("early")), 0.0)
    made.handle(NodeChanged(node("n2", gpus=2)), 10.0)
    state = made.cluster.jobs["default/early"]
    assert level_seconds(state, made.cluster, 0) == pytest.approx(1 + 1 / 30)


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


def test_timers_count_waits_that_a_completion_ends() -> None:
    """No node ever has room. Five pairs take 200 s each, which count as waits; the sixth waits twice 200 s."""
    blockers = [job(f"b{k}", seconds=1e5, worker=worker(3), preemption=Preemption.NEVER) for k in range(2)]
    pairs = [pair(f"p{i}", 1000.0 * (i + 1), 100 if i < 5 else 4000) for i in range(6)]
    found = simulated("dally-like", (*blockers, *pairs), nodes(4, 4))
    waits = [found[one.key.removeprefix("default/")].started - one.submitted for one in pairs]
    assert waits == pytest.approx([0.0] * 5 + [400.0], abs=0.01)


def test_gang_that_gains_most_moves() -> None:
    """Two of the three GPUs of n0 become free at 100 s, which is room for one of two gangs on single GPUs."""
    blocker = job("blocker", seconds=100.0, worker=worker(2))
    jobs = (blocker, pair("a", 0.1, 200), pair("b", 0.2, 1000))
    found = simulated("no-wait", jobs, nodes(3, 1, 1, 1, rack="wxyz"))
    assert [found[name].preemptions for name in "ab"] == [0, 2]


@pytest.mark.parametrize(("restart_seconds", "moves"), [(50.0, 2), (200.0, 1)])
def test_gang_moves_at_most_once_in_two_restarts(restart_seconds: float, moves: int) -> None:
    """A place in one rack becomes free at 100 s, and one on one node at 250 s."""
    fixed: dict[str, Any] = {"preemption": Preemption.NEVER}
    blockers = (
        job("b0", 0.0, seconds=250.0, worker=worker(4), **fixed),
        job("b1", 0.1, seconds=50_000.0, worker=worker(2), **fixed),
        job("b2", 0.2, seconds=99.8, **fixed),
    )
    late = pair("late", 0.3, 10_000, restart_seconds=restart_seconds)
    found = simulated("no-wait", (*blockers, late), nodes(5, 3, 1, rack="xxy"))["late"]
    assert found.preemptions == 2 * moves


@pytest.mark.parametrize(
    ("jobs", "gpus"),
    [
        pytest.param((pair("a", 0.0, 1000), pair("z", 0.0, 1000, gradient_bits=0.0)), (2, 2), id="least sensitive"),
        pytest.param(
            (pair("a", 50.0, 1000, gradient_bits=0.0), pair("z", 0.0, 1000, gradient_bits=0.0)),
            (2, 2),
            id="most attained",
        ),
        pytest.param(
            (
                pair("a", 0.0, 1000, gradient_bits=0.0),
                gang("z", 50.0, 4, batches_per_chunk=1000, gradient_bits=0.0),
            ),
            (2, 4),
            id="latest start",
        ),
    ],
)
def test_victims_stop_in_the_order_of_the_page(jobs: tuple[Job, Job], gpus: tuple[int, int]) -> None:
    """Each pair of jobs is equal in what counts before; by name alone, a would stop."""
    found = simulated("no-wait", (*jobs, pair("late", 100.0, 50)), nodes(*gpus))
    assert found["late"].started == 100.0
    assert (found["a"].preemptions, found["z"].preemptions) == (0, jobs[1].chunks)


def test_superfluous_victim_goes_on() -> None:
    """small has attained more, so that it comes first, but without large there is no room; then small may stay."""
    small, large = job("small", seconds=1000.0), job("large", 50.0, seconds=1000.0, worker=worker(2))
    found = simulated("no-wait", (small, large, pair("late", 60.0, 50)), nodes(3))
    assert found["late"].started == 60.0
    assert (found["small"].preemptions, found["large"].preemptions) == (0, 1)


@pytest.mark.parametrize(("batches", "stopped"), [(0.0, 2), (500.0, 0)])
def test_job_that_was_delayed_more_is_no_victim(batches: float, stopped: int) -> None:
    """Both were submitted at 0. late has trained from 1000 s on; returned waits at 1010 s, with S = 0 or 0.5."""
    made = planner("no-wait", [node("n0", gpus=2)], level_network=NETWORK)
    made.handle(JobSubmitted(pair("late", batches=5000)), 1000.0)
    for attempt in (1, 2):
        made.handle(WorkerStarted("default/late", attempt, 1000.0), 1000.0)
    progress = JobProgress(partial={0: batches, 1: batches})
    answer = made.handle(JobSubmitted(pair("returned", batches=600), progress=progress), 1010.0)
    assert len(of_type(CloseWindow, answer)) == stopped


def gang_in_two_racks() -> Planner:
    """Return a planner with a gang on two nodes, and a job beside it whose end is room for both members at 100 s."""
    made = planner("no-wait", [*nodes(3, 1)], level_network=NETWORK)
    made.handle(JobSubmitted(job("blocker", seconds=100.0, worker=worker(2))), 0.0)
    made.handle(JobSubmitted(pair("late", batches=1000)), 1.0)
    for key, state in made.cluster.jobs.items():
        for attempt, worked in state.runs.items():
            made.handle(WorkerBound(key, attempt, worked.window.node or ""), 2.0)
            made.handle(WorkerStarted(key, attempt, 2.0), 2.0)
    return made


def moves(made: Planner, *events: Event, now: float = 100.0) -> bool:
    """Return whether the gang stops to move at events after which the other job ends."""
    end = WorkerEnded("default/blocker", 1, "Succeeded", now)
    return bool(of_type(CloseWindow, made.handle_all([*events, end], now)))


def test_gang_does_not_move_while_kube_scheduler_is_silent() -> None:
    assert moves(gang_in_two_racks())
    assert not moves(gang_in_two_racks(), KubeSchedulerChanged(responds=False))


def test_gang_does_not_move_to_a_node_where_its_pod_has_failed() -> None:
    made = gang_in_two_racks()
    made.cluster.jobs["default/late"].excluded_nodes["n0"] = 1000.0
    assert not moves(made)


def test_move_to_a_node_that_takes_no_pod_is_a_failed_preemption() -> None:
    made = gang_in_two_racks()
    assert moves(made)
    state = made.cluster.jobs["default/late"]
    for attempt in list(state.runs):
        made.handle(WorkerEnded("default/late", attempt, "Preempted", 101.0), 101.0)
    made.handle(WorkerUnschedulable("default/late", next(iter(state.runs)), "no volume"), 140.0)
    assert state.placement.failed_preemptions == 1


def test_no_worker_stops_on_a_node_that_the_job_excludes() -> None:
    made = planner("no-wait", [*nodes(1, 1)], level_network=NETWORK)
    for name, now in (("first", 0.0), ("second", 100.0)):
        made.handle(JobSubmitted(job(name, now, seconds=1e5)), now)
        made.handle(WorkerStarted(f"default/{name}", 1, now), now)
    made.handle(KubeSchedulerChanged(responds=False), 300.0)
    made.handle(JobSubmitted(job("waits", 300.0, seconds=10.0)), 300.0)
    (worked,) = made.cluster.jobs["default/first"].runs.values()
    made.cluster.jobs["default/waits"].excluded_nodes[worked.window.node or ""] = 2000.0
    closed = of_type(CloseWindow, made.handle(KubeSchedulerChanged(responds=True), 1000.0))
    assert [one.job for one in closed] == ["default/second"], "the first one would stop first"


BLOCKERS = {
    "fits no node": gang("blocker", 50.0, 8),
    "several chunks": job("blocker", 50.0, chunks=2, max_workers=1),
    "parameter server": gang("blocker", 50.0, 4, servers=1, server=worker(0)),
    "data under way": job(
        "blocker", 50.0, worker=worker(4), data_site="edge-b", chunk_bytes=1.0, upload_seconds={"edge-a": 1e5}
    ),
    "quota": gang("blocker", 50.0, 4, key="other/blocker"),
}
"""Jobs that wait first under each policy, and cannot start by preemption."""


@pytest.mark.parametrize("blocker", BLOCKERS)
@pytest.mark.parametrize("policy", FAMILY)
def test_job_behind_one_that_cannot_start_preempts(policy: str, blocker: str) -> None:
    sites = [Site("edge-a"), Site("edge-b")]
    made = planner(policy, [node("n0", gpus=4)], sites, level_network=NETWORK)
    made.handle(QuotaChanged(Quota("other", "gpus", (QuotaLimit("requests.nvidia.com/gpu", "gpus", 0),))), 0.0)
    made.handle(JobSubmitted(gang("long", 0.0, 4, batches_per_chunk=20_000)), 0.0)
    for attempt in list(made.cluster.jobs["default/long"].runs):
        made.handle(WorkerStarted("default/long", attempt, 0.0), 0.0)
    assert not of_type(CloseWindow, made.handle(JobSubmitted(BLOCKERS[blocker]), 50.0))
    closed = of_type(CloseWindow, made.handle(JobSubmitted(gang("short", 100.0, 4)), 100.0))
    assert {one.job for one in closed} == {"default/long"}
    assert len(made.cluster.jobs["default/short"].runs) == 4


@pytest.mark.parametrize("policy", FAMILY)
def test_all_jobs_complete_at_an_unlimited_site(policy: str) -> None:
    sites = (Site("edge-a"), Site("cloud", Tier.CLOUD, unlimited=True))
    jobs = tuple(pair(f"p{i}", 5.0 * i) for i in range(6))
    assert len(simulated(policy, jobs, nodes(1, 1), sites=sites)) == 6
