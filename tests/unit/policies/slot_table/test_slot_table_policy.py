"""The policies with slot tables under the production planner: slots, offers, and room that is never left empty."""

from collections.abc import Iterable
from math import inf
from typing import Any

import pytest

from support.builders import gang, job, node, of_type, planner, worker
from tranche.model import Job, Node, PodShape, Resources, Utility
from tranche.model.node_constraints import Constraints, Taint
from tranche.planner import CloseWindow, JobRemoved, JobSubmitted, Planner, PlannerSettings, Tick, WorkerStarted
from tranche.policies import get_policy
from tranche.policies.slot_table.machine_table import MachineTable
from tranche.policies.slot_table.offer import PricedTable
from tranche.policies.slot_table.pooled_table import PooledTable
from tranche.policies.slot_table.slot_job import Amounts
from tranche.policies.slot_table.slot_table_policy import (
    MAX_OFFERS,
    SlotTablePolicy,
    amounts,
    machines_of,
    workers_in,
)
from tranche.simulation.engine.simulation import Simulation, prepare
from tranche.simulation.scenario import Scenario, run
from tranche.state.cluster import ClusterState

BOTH = ["oasis", "pd-ors-like"]
HOUR = 3600.0


def worth(priority: float, target: float = 10 * HOUR, decay: float = 1.0) -> Utility:
    return Utility(priority, decay / HOUR, target)


def submitted(policy: str, jobs: Iterable[Job], gpus: int, now: float = 0.0) -> Planner:
    made = planner(policy, [node("n0", gpus=gpus)])
    made.handle_all([JobSubmitted(one) for one in jobs], now)
    return made


def reserved(made: Planner, name: str, slot: int) -> int:
    plan = made.cluster.jobs[f"default/{name}"].slot_plan
    assert plan is not None
    return workers_in(plan, slot)


class Watched:
    """Checks after each decision that no machine has more reserved than it has."""

    @staticmethod
    def check(cluster: ClusterState, policy: SlotTablePolicy) -> int:
        capacity, cells = machines_of(cluster), 0
        used: dict[tuple[int, str], Amounts] = {}
        for state in cluster.jobs.values():
            for one in state.slot_plan.cells if state.slot_plan is not None else ():
                for name, count in one.workers:
                    key, amount = (one.slot, name), amounts(state.job.worker.requests).times(count)
                    used[key] = used[key].plus(amount) if key in used else amount
                    cells += 1
        assert all(amount.fit(capacity[name]) for (_, name), amount in used.items()), policy.name
        return cells


def worked_table(policy: str, nodes: list[Node], **changes: Any) -> PricedTable:
    """Return the table for the job of the worked example: 10,000 samples, 20 workers, 10 parameter servers, T = 20."""
    shapes = {
        role: PodShape(Resources(cpu=cores * 1000, memory=0, gpus=gpus, pods=1))
        for role, cores, gpus in (("worker", 4, 1), ("server", 2, 0))
    }
    given: dict[str, Any] = {"batches_per_chunk": 500, "step_seconds": 1.0, "servers": 10, **shapes, **changes}
    made = planner(policy, nodes)
    made.handle(JobSubmitted(job("a", chunks=20, utility=Utility(100.0, 0.5 / 600, 3000.0), **given)), 0.0)
    assert isinstance(made.policy, SlotTablePolicy)
    return made.policy.table(made.cluster, list(made.cluster.jobs.values()), 20)


def test_bounds_of_pd_ors_follow_from_the_job_and_the_nodes() -> None:
    """g γ / F = 8e7 bit: 1.0016 s for a sample inside a machine, and 1.32 s outside."""
    policy = "pd-ors-like:slot=600:internal=1e11:external=5e8"
    table = worked_table(policy, [node("n0", gpus=8), node("n1", gpus=8)], gradient_bits=8e7)
    assert isinstance(table, MachineTable)
    prices = table.pool.prices
    assert prices.least == pytest.approx(7.41575e-6, rel=1e-6)
    assert prices.most[:2] == pytest.approx((88.0797, 14.6800), rel=1e-5)


def test_bounds_of_oasis_follow_from_the_job_and_the_nodes() -> None:
    """17 worker-slots: 1/η = 17 · 5/(20 · 144) for workers, and 17 · 2/(20 · 64) for parameter servers on n2."""
    table = worked_table("oasis:slot=600", [node("n0", gpus=8), node("n1", gpus=8), node("n2", gpus=0)])
    assert isinstance(table, PooledTable)
    least = [0.0552779 / 4 / (17 * 5) * (17 * 5 / 2880), 0.0552779 / 4 / (17 * 2) * (17 * 2 / 1280)]
    assert [table.workers.prices.least, table.servers.prices.least] == pytest.approx(least, rel=1e-5)
    assert table.workers.prices.most[:2] == pytest.approx((88.0797, 88.0797 / 4), rel=1e-5)
    assert table.servers.prices.most.cores == pytest.approx(88.0797 / 2, rel=1e-5)


@pytest.mark.parametrize("policy", BOTH)
def test_job_gets_the_workers_of_its_cells(policy: str) -> None:
    made = submitted(policy, [job("a", chunks=8, seconds=HOUR / 2, utility=worth(50.0, HOUR))], 8)
    plan = made.cluster.jobs["default/a"].slot_plan
    assert plan is not None
    assert plan.payoff > 0
    assert sum(reserved(made, "a", slot) for slot in range(24)) >= 4
    assert made.cluster.jobs["default/a"].granted == 8  # no other job could use the rest


@pytest.mark.parametrize("policy", ["oasis", "pd-ors-like:internal=1e12:external=1e8"])
def test_workers_run_on_the_machines_of_their_cells(policy: str) -> None:
    """Best fit would take n1, which has less room; the table has reserved n0."""
    made = planner(policy, [node("n0", gpus=4), node("n1", gpus=2)])
    one = job(
        "a", chunks=2, seconds=HOUR, servers=1, server=worker(0), gradient_bits=1e8, utility=worth(50.0, 2 * HOUR)
    )
    made.handle(JobSubmitted(one), 0.0)
    state = made.cluster.jobs["default/a"]
    assert state.slot_plan is not None
    cells = state.slot_plan.cells[0]
    assert sorted(run.home.node or "" for run in state.runs.values()) == [
        name for name, count in cells.workers for _ in range(count)
    ]
    assert {server.planned.node for server in state.servers} == {name for name, _ in cells.servers}


@pytest.mark.parametrize("policy", BOTH)
def test_job_waits_while_others_hold_all_cells(policy: str) -> None:
    dear = job("dear", chunks=8, seconds=24 * HOUR, utility=worth(100.0, 30 * HOUR))
    made = submitted(f"{policy}:horizon=24:quanta=24", [dear, job("poor", chunks=4, utility=worth(0.001))], 8)
    plan = made.cluster.jobs["default/poor"].slot_plan
    assert plan is not None
    assert plan.payoff == -inf
    assert not plan.cells
    assert not made.cluster.jobs["default/poor"].runs
    assert {reserved(made, "dear", slot) for slot in range(24)} == {8}


@pytest.mark.parametrize("policy", BOTH)
def test_job_that_is_not_admitted_takes_an_idle_gpu(policy: str) -> None:
    made = submitted(f"{policy}:horizon=24", [job("long", seconds=50 * HOUR, utility=worth(9.0))], 1)
    plan = made.cluster.jobs["default/long"].slot_plan
    assert plan is not None
    assert not plan.cells
    assert made.cluster.jobs["default/long"].runs


@pytest.mark.parametrize("policy", BOTH)
def test_idle_room_goes_to_the_greatest_payoff(policy: str) -> None:
    jobs = [job(f"j{n}", 600.0, seconds=HOUR, utility=worth(p)) for n, p in enumerate((1.0, 3.0, 2.0))]
    made = submitted(policy, jobs, 1, 600.0)
    cells = [made.cluster.jobs[f"default/j{n}"].slot_plan for n in range(3)]
    assert all(plan is not None and plan.cells[0].slot >= 1 for plan in cells)  # a = ⌈600 / 3600⌉
    assert [bool(made.cluster.jobs[f"default/j{n}"].runs) for n in range(3)] == [False, True, False]


@pytest.mark.parametrize("policy", BOTH)
def test_job_is_offered_again_when_a_slot_begins(policy: str) -> None:
    made = submitted(f"{policy}:horizon=24", [job("long", seconds=50 * HOUR, utility=worth(9.0))], 1)
    made.handle(WorkerStarted("default/long", 1, 0.0), 0.0)
    assert made.next_wakeup() == HOUR
    made.handle(Tick(), HOUR)
    plan = made.cluster.jobs["default/long"].slot_plan
    assert plan is not None
    assert plan.offered_slot == 1


@pytest.mark.parametrize("policy", BOTH)
def test_job_that_overruns_its_cells_asks_for_the_rest(policy: str) -> None:
    made = submitted(policy, [job("a", seconds=HOUR, utility=worth(50.0))], 1)
    assert [reserved(made, "a", slot) for slot in range(3)] == [1, 0, 0]
    made.handle(WorkerStarted("default/a", 1, 1800.0), 1800.0)
    answer = made.handle(Tick(), HOUR)
    assert not of_type(CloseWindow, answer)
    assert [reserved(made, "a", slot) for slot in range(3)] == [0, 1, 0]


@pytest.mark.parametrize("policy", BOTH)
def test_all_jobs_complete_and_no_cell_is_overbooked(policy: str) -> None:
    jobs = [
        job(
            f"j{n}",
            900.0 * n,
            chunks=1 + n * 3 % 7,
            seconds=600.0 + 911 * n % 4000,
            servers=n % 2,
            server=worker(0) if n % 2 else None,
            utility=worth(1.0 + 17 * n % 90, HOUR * (1 + n % 5), (0.0, 0.4, 5.0)[n % 3]),
        )
        for n in range(15)
    ] + [gang(f"g{n}", 2000.0 * n, members=2 + n % 2, seconds=2000.0, utility=worth(40.0)) for n in range(4)]
    made = get_policy(f"{policy}:slot=900")
    assert isinstance(made, SlotTablePolicy)
    simulation, cells = Simulation(Planner(made, PlannerSettings(validate=True)), forget_finished=True), 0
    prepare(simulation, jobs, [node("n0", gpus=2), node("n1", gpus=3)], [])
    while simulation.planner.next_wakeup() is not None or len(simulation.completed) < len(jobs):
        simulation.step()
        cells += Watched.check(simulation.planner.cluster, made)
    assert len(simulation.completed) == len(jobs)
    assert cells


@pytest.mark.parametrize("policy", BOTH)
def test_equal_seeds_give_equal_results(policy: str) -> None:
    jobs = tuple(
        job(f"j{n}", 400.0 * n, chunks=3, seconds=2000.0, servers=1, server=worker(0), utility=worth(9.0 + n))
        for n in range(12)
    )
    results = [run(Scenario(jobs, (node("n0", gpus=3),), policy=f"{policy}:slot=600", seed=3)) for _ in range(2)]
    assert results[0].jobs == results[1].jobs


@pytest.mark.parametrize("policy", BOTH)
def test_gang_has_cells_for_all_members_or_for_none(policy: str) -> None:
    made = submitted(policy, [gang("a", members=3, seconds=5 * HOUR, utility=worth(50.0))], 4)
    counts = {reserved(made, "a", slot) for slot in range(24)}
    assert counts == {0, 3}


@pytest.mark.parametrize("policy", BOTH)
def test_present_windows_are_kept_where_nothing_changes(policy: str) -> None:
    jobs = [job(f"j{n}", chunks=2, seconds=3 * HOUR, utility=worth(50.0)) for n in range(2)]
    made = submitted(policy, jobs, 4)
    answer = made.handle(JobSubmitted(job("late", 10.0, seconds=9 * HOUR, utility=Utility(1e-9, 5 / HOUR, 1.0))), 10.0)
    assert not of_type(CloseWindow, answer)


@pytest.mark.parametrize(
    ("options", "hours", "slots"),
    [("", 1.0, 24), ("", 10.0, 100), ("", 100.0, 300), (":horizon=1000", 100.0, 1000)],
)
def test_horizon_is_bounded_unless_chosen(options: str, hours: float, slots: int) -> None:
    made = submitted(f"oasis{options}", [job("a", seconds=hours * HOUR)], gpus=1)
    assert isinstance(made.policy, SlotTablePolicy)
    assert made.policy.horizon_slots(list(made.cluster.jobs.values())) == slots


@pytest.mark.parametrize(
    "options",
    [
        "oasis:slot=0",
        "oasis:slot=0.5",
        "oasis:slot=inf",
        "oasis:horizon=1e9",
        "oasis:quanta=0",
        "oasis:quanta=1e9",
        "oasis:price_scale=0",
        "oasis:price_ratio=0.5",
        "pd-ors-like:locality=maybe",
        "pd-ors-like:rounding=none",
        "pd-ors-like:delta=1",
        "pd-ors-like:tries=0",
        "pd-ors-like:tries=inf",
    ],
)
def test_options_without_meaning_are_refused(options: str) -> None:
    with pytest.raises(ValueError, match=options.partition(":")[0]):
        get_policy(options)


def on_kind(kind: str, gpus: int) -> PodShape:
    return worker(gpus, constraints=Constraints(selector=(("gpu", kind),)))


def mixed_nodes() -> list[Node]:
    """Return two nodes with GPUs of different kinds, and one without."""
    kinds = [node(name, gpus=4, labels={"gpu": kind}) for name, kind in (("a", "K80"), ("b", "V100"))]
    return [*kinds, node("c", gpus=0)]


def reserved_places(made: Planner, name: str) -> tuple[set[str], set[str]]:
    """Return the machines on which the job has cells for workers, and for parameter servers."""
    plan = made.cluster.jobs[f"default/{name}"].slot_plan
    assert plan is not None
    sides = ([cells.workers for cells in plan.cells], [cells.servers for cells in plan.cells])
    workers, servers = ({machine for counts in side for machine, _ in counts} for side in sides)
    return workers, servers


PLACES = [*BOTH, "pd-ors-like:locality=off", "pd-ors-like:rounding=ceil:locality=off"]


@pytest.mark.parametrize("policy", PLACES)
def test_workers_have_no_cells_where_only_servers_may_run(policy: str) -> None:
    """The first job leaves all of the K80 node to the second one, which may use only that."""
    made = planner(policy, mixed_nodes())
    served: dict[str, Any] = {"servers": 1, "server": worker(0), "gradient_bits": 1e8}
    for name, kind, more in (("v", "V100", served), ("k", "K80", {})):
        one = job(name, chunks=4, seconds=HOUR, utility=worth(50.0), worker=on_kind(kind, 1), **more)
        made.handle(JobSubmitted(one), 0.0)
    assert reserved_places(made, "v")[0] == {"b"}
    assert reserved_places(made, "k")[0] == {"a"}


@pytest.mark.parametrize("policy", PLACES)
def test_servers_have_cells_only_where_they_may_run(policy: str) -> None:
    made = planner(policy, mixed_nodes())
    one = job("a", chunks=4, seconds=HOUR, servers=1, server=on_kind("K80", 0), gradient_bits=1e8, utility=worth(50.0))
    made.handle(JobSubmitted(one), 0.0)
    assert reserved_places(made, "a")[1] == {"a"}


def test_oasis_reserves_servers_beside_gpus_if_no_other_node_may() -> None:
    made = planner("oasis", [node("n0", gpus=4), node("c", gpus=0, taints=(Taint("control-plane"),))])
    one = job("a", chunks=4, seconds=HOUR, servers=1, server=worker(0), gradient_bits=1e8, utility=worth(50.0))
    made.handle(JobSubmitted(one), 0.0)
    assert reserved_places(made, "a") == ({"n0"}, {"n0"})


@pytest.mark.parametrize("policy", BOTH)
def test_job_of_a_nanosecond_leaves_other_jobs_their_cells(policy: str) -> None:
    """A worker-slot is the least work that a job can have; less of it would divide the prices of all jobs by zero."""
    made = submitted(policy, [gang("a", members=4, seconds=1e-9), job("b", chunks=2, seconds=2 * HOUR)], 2)
    assert reserved(made, "b", 0) == 2


def test_job_of_a_nanosecond_is_admitted_with_a_cell() -> None:
    made = submitted("oasis", [job("tiny", seconds=1e-9, utility=worth(50.0))], 1)
    assert reserved(made, "tiny", 0) == 1


@pytest.mark.parametrize("policy", BOTH)
def test_jobs_that_never_fit_keep_no_other_from_its_offers(policy: str) -> None:
    """Gangs of 8 on 4 GPUs have the greatest possible utility; b fits in as soon as the job before it is removed."""
    made = submitted(f"{policy}:horizon=24:quanta=24", [job("a", chunks=4, seconds=24 * HOUR, utility=worth(50.0))], 4)
    huge = [gang(f"g{i}", 60.0, 8, utility=worth(1000.0, decay=0.0)) for i in range(2 * MAX_OFFERS)]
    made.handle_all([JobSubmitted(one) for one in huge], 60.0)
    b = job("b", 120.0, chunks=4, seconds=4 * HOUR, utility=worth(100.0, decay=0.1))
    for event in (JobSubmitted(b), Tick()):
        made.handle(event, 120.0)
    state = made.cluster.jobs["default/b"]
    assert state.slot_plan is not None
    assert not state.slot_plan.cells
    made.handle(JobRemoved("default/a"), 1800.0)
    for slot in range(1, 4):
        made.handle(Tick(), slot * HOUR)
    assert state.slot_plan.cells
