"""Offers on both slot tables: capacities, payoffs, prices, and the optimum in hindsight on tiny instances."""

from itertools import product
from math import ceil, inf, log
from random import Random

import pytest

from tranche.model import Utility
from tranche.policies.seeded_choice import uniform
from tranche.policies.slot_table.machine_table import MachineTable
from tranche.policies.slot_table.offer import PricedTable, admit, offer
from tranche.policies.slot_table.pool import Pool
from tranche.policies.slot_table.pooled_table import PooledTable
from tranche.policies.slot_table.price import Claim, PriceRange, price_range
from tranche.policies.slot_table.slot_job import Amounts, SlotJob

SLOTS = 6
PRICES = PriceRange(0.01, Amounts(20.0, 5.0, 5.0))


def pooled(servers: int = 2) -> PooledTable:
    return PooledTable(
        Pool({f"h{n}": Amounts(4.0, 16.0, 64.0) for n in range(2)}, PRICES),
        Pool({f"k{n}": Amounts(0.0, 8.0, 32.0) for n in range(servers)}, PRICES),
    )


def single(**changes: object) -> MachineTable:
    machines = {f"h{n}": Amounts(4.0, 16.0, 64.0) for n in range(3)}
    return MachineTable(Pool(machines, PRICES), lambda *names: uniform(1, *names), **changes)  # type: ignore[arg-type]


def drawn(draw: Random, number: int, least: int = 0) -> SlotJob:
    near = draw.uniform(0.05, 0.4)
    return SlotJob(
        key=f"j{number}",
        samples=draw.randint(1, 40),
        internal_slots=near,
        external_slots=near * draw.choice([1.0, 1.5, 4.0]),
        most_workers=draw.randint(1, 8),
        worker=Amounts(draw.randint(0, 2), draw.randint(1, 4), draw.randint(1, 8)),
        server=Amounts(0.0, draw.randint(1, 4), draw.randint(1, 8)),
        workers_per_server=draw.choice([inf, 1.0, 2.5]),
        least_servers=least,
    )


def utilities(draw: Random) -> list[float]:
    utility = Utility(draw.uniform(1, 100), draw.choice([0.0, 0.5, 5.0]), draw.uniform(0, 5))
    return [utility.at(slot) for slot in range(SLOTS)]


def pools_of(table: PricedTable) -> list[Pool]:
    if isinstance(table, PooledTable):
        return [table.workers, table.servers]
    assert isinstance(table, MachineTable)
    return [table.pool]


def price_sums(table: PricedTable) -> list[float]:
    found = [machine.prices for pool in pools_of(table) for t in range(SLOTS) for machine in pool.machines(t)]
    return [price for prices in found for price in prices]


@pytest.mark.parametrize("kind", ["oasis", "pd-ors", "pd-ors off", "pd-ors ceil", "pd-ors packing"])
@pytest.mark.parametrize("seed", range(5))
def test_cells_fit_and_admission_is_a_positive_payoff(seed: int, kind: str) -> None:
    draw = Random(seed)
    tables: dict[str, PricedTable] = {
        "oasis": pooled(),
        "pd-ors": single(),
        "pd-ors off": single(is_local=False),
        "pd-ors ceil": single(tries=0),
        "pd-ors packing": single(bounded="packing"),
    }
    table, admitted, refused = tables[kind], 0, 0
    for number in range(30):
        job, worth, before = drawn(draw, number), utilities(draw), price_sums(table)
        made = admit(table, job, 0, worth, 10)
        after = price_sums(table)
        assert all(new >= old for new, old in zip(after, before, strict=True))
        assert made.admits == (made.payoff > 0) == (after != before)
        admitted += made.admits
        refused += not made.admits
        if made.admits:
            spent = sum(cells.cost for _, cells in made.cells)
            assert made.payoff == pytest.approx(worth[made.cells[-1][0]] - spent)
            done = sum(cells.worker_count / job.internal_slots for _, cells in made.cells)
            assert done >= job.samples - 1e-6
        for _, cells in made.cells:
            servers = sum(count for _, count in cells.servers)
            assert servers >= job.covering_servers(cells.worker_count)
            if kind == "oasis":
                assert servers <= cells.worker_count <= job.most_workers
    for pool in pools_of(table):
        for there in pool.reserved.values():
            assert all(used.fit(pool.capacity[name]) for name, used in there.items())
    assert admitted
    assert refused


def test_slow_links_between_machines_favour_one_machine() -> None:
    job = SlotJob(
        key="a",
        samples=4.0,
        internal_slots=0.5,
        external_slots=1.0,
        most_workers=4,
        worker=Amounts(1.0, 1.0, 1.0),
        server=Amounts(0.0, 1.0, 1.0),
        workers_per_server=2.0,
    )
    near, far = (offer(table, job, 0, [50.0], 4) for table in (single(), single(is_local=False)))
    assert near.payoff > far.payoff
    ((_, cells),) = near.cells
    assert len(cells.workers) == 1
    assert cells.worker_count == 2
    assert far.cells[0][1].worker_count == 4


def test_offer_reserves_nothing() -> None:
    table = single()
    offer(table, drawn(Random(1), 1), 0, [50.0] * SLOTS, 10)
    assert not table.pool.reserved


@pytest.mark.parametrize(("samples", "payoff"), [(8.0, 1000.0), (9.0, -inf)])
@pytest.mark.parametrize("table", [pooled(), single(), single(is_local=False)], ids=["oasis", "pd-ors", "pd-ors off"])
def test_work_beyond_the_horizon_is_never_admitted(table: PricedTable, samples: float, payoff: float) -> None:
    """Four workers train eight mini-batches in two slots."""
    one = Amounts(1.0, 1.0, 1.0)
    job = SlotJob(key="a", samples=samples, internal_slots=1.0, external_slots=1.0, most_workers=4, worker=one)
    assert offer(table, job, 0, [1000.0, 1000.0], int(samples)).payoff == pytest.approx(payoff, abs=1.0)


@pytest.mark.parametrize("seed", range(25))
def test_total_utility_is_within_the_ratio_of_the_optimum(seed: int) -> None:
    """Unit jobs on one machine: any subset of (job, slot) pairs that the machine holds is a schedule."""
    draw, slots, room = Random(seed), 3, 2
    count = draw.randint(2, 5)
    jobs = [
        SlotJob(
            key=f"j{n}",
            samples=1.0,
            internal_slots=1.0,
            external_slots=1.0,
            most_workers=1,
            worker=Amounts(float(draw.randint(1, 2))),
        )
        for n in range(count)
    ]
    worth = [[draw.uniform(1, 10) * (1.0 if t == 0 else draw.uniform(0.3, 1.0)) for t in range(slots)] for _ in jobs]
    worth = [sorted(row, reverse=True) for row in worth]
    claims = [
        Claim(best=row[0], last=row[-1], least_slots=1, most_slots=ceil(1), demand=job.worker)
        for job, row in zip(jobs, worth, strict=True)
    ]
    prices = price_range(claims, float(room), slots, factor=4.0)
    table = PooledTable(Pool({"h": Amounts(float(room))}, prices), Pool({}, prices))
    total = 0.0
    for job, row in zip(jobs, worth, strict=True):
        made = admit(table, job, 0, row, 1)
        total += row[made.cells[-1][0]] if made.admits else 0.0
    best = 0.0
    for choice in product(range(-1, slots), repeat=count):
        used = [sum(job.worker.gpus for job, t in zip(jobs, choice, strict=True) if t == slot) for slot in range(slots)]
        if max(used) <= room:
            best = max(best, sum(row[t] for row, t in zip(worth, choice, strict=True) if t >= 0))
    alpha = max(1.0, log(prices.most.gpus / prices.least))
    assert total >= best / (2 * alpha)
    assert best >= total - 1e-9
