"""Placement on several machines and its rounding: the worked examples, an LP solver, and frequencies of violations."""

from collections import Counter
from math import comb, exp, floor, inf, log, sqrt
from random import Random

import highspy
import numpy as np
import pytest

from tranche.policies.seeded_choice import uniform
from tranche.policies.slot_table.cells import Cells
from tranche.policies.slot_table.external_placement import Relaxation, relaxed_placement
from tranche.policies.slot_table.machine_table import external_cells, internal_cells
from tranche.policies.slot_table.pool import Machine
from tranche.policies.slot_table.rounding import (
    bounding_factor,
    covering_factor,
    integral_cells,
    is_covering,
    packing_factor,
    rounded,
    violated_packing,
)
from tranche.policies.slot_table.slot_job import Amounts, SlotJob


def pd_ors_job(**changes: object) -> SlotJob:
    fields: dict[str, object] = {
        "key": "a",
        "samples": 5.0,
        "internal_slots": 1.0,
        "external_slots": 1.0,
        "most_workers": 20,
        "worker": Amounts(1.0),
        "server": Amounts(1.0),
        "workers_per_server": 2.0,
    }
    return SlotJob(**{**fields, **changes})  # type: ignore[arg-type]


def machine(name: str, worker_price: float, server_price: float, room: float) -> Machine:
    """Return a machine of one resource, of which workers take one unit and parameter servers half a unit of price."""
    return Machine(name, Amounts(room, inf, inf), Amounts(worker_price, server_price - worker_price, 0.0))


TWO = [machine("h1", 1.0, 0.5, 3.0), machine("h2", 2.0, 1.0, 10.0)]
PRICED = pd_ors_job(server=Amounts(1.0, 1.0))
"""A parameter server takes a unit of room, too; its second resource, without limit, makes it cheaper."""


def test_linear_programme_has_its_worked_optimum() -> None:
    found = relaxed_placement(PRICED, 5.0, 2.5, TWO)
    assert found is not None
    assert found.cost == pytest.approx(9.5, rel=1e-12)
    assert found.places["h1"] == pytest.approx((3.0, 0.0))
    assert found.places["h2"] == pytest.approx((2.0, 2.5))


def test_integral_placement_of_the_worked_example_costs_ten() -> None:
    cells = external_cells(PRICED, 5, TWO, lambda attempt, entry: 0.0)
    assert cells == Cells(10.0, (("h1", 3), ("h2", 2)), (("h2", 3),))


def test_one_rounding_of_the_example_succeeds_half_the_time() -> None:
    relaxation = relaxed_placement(PRICED, 5.0, 2.5, TWO)
    assert relaxation is not None
    draw, count = Random(1), 100_000
    drawn = Counter(
        tuple((name, rounded(place, 1.0, (draw.random(), draw.random()))) for name, place in relaxation.places.items())
        for _ in range(count)
    )
    succeeded = sum(
        often
        for placed, often in drawn.items()
        if is_covering(PRICED, dict(placed), 5) and not violated_packing(PRICED, dict(placed), TWO)
    )
    assert succeeded / count == pytest.approx(0.5, abs=3 * (0.25 / count) ** 0.5)


@pytest.mark.parametrize(
    ("rows", "least_side", "factor"), [(81, 8, 0.209303), (81, 18, 0.382406), (81, 100, 0.688230), (81, 1000, 0.892854)]
)
def test_packing_factor_has_its_worked_values(rows: int, least_side: float, factor: float) -> None:
    assert packing_factor(rows, 0.5, least_side) == pytest.approx(factor, abs=5e-7)


@pytest.mark.parametrize(("least_side", "factor"), [(5, 2.352430), (20, 1.584539), (100, 1.239796)])
def test_covering_factor_has_its_worked_values(least_side: float, factor: float) -> None:
    assert covering_factor(2, 0.5, least_side) == pytest.approx(factor, abs=5e-7)


@pytest.mark.parametrize("excess", [0.01, 0.5, 3.0])
def test_both_factors_solve_the_equation_of_chernoff(excess: float) -> None:
    least_side = log(3 * 10 / 0.5) / excess
    for factor in (packing_factor(10, 0.5, least_side), covering_factor(10, 0.5, least_side)):
        assert 1 - factor + log(factor) == pytest.approx(-excess, abs=1e-9)


@pytest.mark.parametrize("side", ["packing", "covering"])
def test_one_side_is_violated_at_most_as_often_as_bounded(side: str) -> None:
    """A row of many entries with coefficients 1, which the fractional solution fills exactly."""
    least_side, entries, rows, delta, count = 8.0, 40, 4, 0.5, 100_000
    packing = side == "packing"
    factor = packing_factor(rows, delta, least_side) if packing else covering_factor(rows, delta, least_side)
    target, value = delta / (3 * rows), factor * least_side / entries
    ups = np.random.default_rng(7).binomial(entries, value - floor(value), count)
    totals = floor(value) * entries + ups
    violated = int(np.count_nonzero(totals > least_side if packing else totals < least_side))
    assert violated / count <= target + 3 * (target * (1 - target) / count) ** 0.5


def test_covering_factor_bounds_parameter_servers_too() -> None:
    """Two workers and a fifth of a parameter server on one machine: each covering row fails with at most δ/(3·2)."""
    job, delta, count = pd_ors_job(workers_per_server=10.0), 0.5, 20_000
    place = (2.0, 0.2)
    factor = bounding_factor(job, 2, Relaxation(1.0, {"h1": place}), [machine("h1", 1.0, 2.0, 10.0)], "covering", delta)
    draw, target = Random(3), delta / 6
    missing = sum(rounded(place, factor, (draw.random(), draw.random()))[1] < 1 for _ in range(count))
    assert missing / count <= target + 3 * sqrt(target * (1 - target) / count)


def drawn_machines(draw: Random) -> list[Machine]:
    return [
        Machine(
            f"h{number}",
            Amounts(draw.randint(0, 8), draw.uniform(0, 40), draw.uniform(0, 60)),
            Amounts(*(draw.uniform(0.01, 3.0) for _ in range(3))),
        )
        for number in range(draw.randint(1, 7))
    ]


def drawn_job(draw: Random) -> SlotJob:
    return pd_ors_job(
        worker=Amounts(draw.randint(0, 2), draw.randint(1, 8), draw.randint(2, 16)),
        server=Amounts(0.0, draw.randint(1, 6), draw.randint(2, 16)),
        workers_per_server=draw.choice([0.7, 1.0, 2.5, 6.0]),
    )


def solved(job: SlotJob, workers: float, servers: float, machines: list[Machine]) -> float:
    """Return the optimum that HiGHS finds; infinite if there is none."""
    lp = highspy.Highs()  # type: ignore[no-untyped-call]
    lp.setOptionValue("output_flag", False)
    columns = [
        (lp.addVariable(0, inf, one.price_of(job.worker)), lp.addVariable(0, inf, one.price_of(job.server)))
        for one in machines
    ]
    lp.addConstr(sum(w for w, _ in columns) >= workers)
    lp.addConstr(sum(s for _, s in columns) >= servers)
    for (w, s), one in zip(columns, machines, strict=True):
        for a, b, room in zip(job.worker, job.server, one.room, strict=True):
            if a or b:
                lp.addConstr(a * w + b * s <= room)
    lp.run()
    if lp.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return inf
    return float(lp.getInfo().objective_function_value)


@pytest.mark.parametrize("seed", range(60))
def test_own_method_agrees_with_a_solver_of_linear_programmes(seed: int) -> None:
    draw = Random(seed)
    job, machines = drawn_job(draw), drawn_machines(draw)
    workers = draw.randint(1, 9)
    servers = workers / job.workers_per_server
    found = relaxed_placement(job, workers, servers, machines)
    expected = solved(job, workers, servers, machines)
    assert (inf if found is None else found.cost) == pytest.approx(expected, rel=1e-6)
    if found is not None:
        assert sum(w for w, _ in found.places.values()) == pytest.approx(workers)
        assert sum(s for _, s in found.places.values()) >= servers - 1e-6
        for one in machines:
            w, s = found.places.get(one.name, (0.0, 0.0))
            used = job.worker.times(w).plus(job.server.times(s))
            assert all(part <= room + 1e-6 for part, room in zip(used, one.room, strict=True))


@pytest.mark.parametrize("tries", [0, 1, 20])
@pytest.mark.parametrize("seed", range(60))
def test_rounding_ends_with_a_placement_that_holds(seed: int, tries: int) -> None:
    draw = Random(seed)
    job, machines = drawn_job(draw), drawn_machines(draw)
    workers = draw.randint(1, 9)

    def drawn(attempt: int, entry: int) -> float:
        return uniform(seed, workers, attempt, entry)

    cells = external_cells(job, workers, machines, drawn, tries=tries)
    if cells is None:
        return
    placed = {name: (count, 0) for name, count in cells.workers}
    for name, count in cells.servers:
        placed[name] = (placed.get(name, (0, 0))[0], count)
    assert cells.worker_count == workers
    assert is_covering(job, placed, workers)
    assert violated_packing(job, placed, machines) == 0
    relaxed = relaxed_placement(job, workers, workers / job.workers_per_server, machines)
    assert relaxed is not None
    assert cells.cost >= relaxed.cost - 1e-9


def test_rounding_is_repaired_after_its_last_try() -> None:
    relaxation, tried = relaxed_placement(PRICED, 5.0, 2.5, TWO), Counter[int]()
    assert relaxation is not None

    def down(attempt: int, entry: int) -> float:
        tried[attempt] += 1
        return 0.99

    cells = integral_cells(PRICED, 5, relaxation, TWO, down, tries=7)
    assert sorted(tried) == list(range(7))
    assert cells == Cells(10.0, (("h1", 3), ("h2", 2)), (("h2", 3),))


def test_rounding_up_leaves_whole_numbers_as_they_are() -> None:
    """Parts that differ from whole numbers by the error of their computation."""
    relaxation = Relaxation(0.0, {"h1": (3 + 1e-12, 1e-12), "h2": (2 - 1e-12, 2.5)})
    roomy = [machine("h1", 1.0, 0.5, 10.0), machine("h2", 2.0, 1.0, 10.0)]
    cells = integral_cells(PRICED, 5, relaxation, roomy, lambda attempt, entry: 0.99, tries=0)
    assert cells == Cells(10.0, (("h1", 3), ("h2", 2)), (("h2", 3),))


def test_surplus_workers_are_dropped_on_the_dearest_machine() -> None:
    """Both fractions go up: four workers in place of three."""
    relaxation = Relaxation(0.0, {"h1": (1.5, 0.0), "h2": (1.5, 1.5)})
    cells = integral_cells(PRICED, 3, relaxation, TWO, lambda attempt, entry: 0.0, tries=1)
    assert cells == Cells(6.0, (("h1", 2), ("h2", 1)), (("h2", 2),))


def test_rounding_with_a_factor_below_one_is_repaired() -> None:
    relaxation = relaxed_placement(PRICED, 5.0, 2.5, TWO)
    assert relaxation is not None
    cells = integral_cells(PRICED, 5, relaxation, TWO, lambda attempt, entry: 0.99, tries=20, factor=0.5)
    assert cells is not None
    assert cells.worker_count == 5


def test_placement_that_no_repair_can_hold_is_none() -> None:
    job = pd_ors_job(worker=Amounts(2.0), server=Amounts(0.0), workers_per_server=inf, least_servers=1)
    halves = [Machine(f"h{n}", Amounts(1.0, inf, inf), Amounts(1.0)) for n in range(4)]
    assert relaxed_placement(job, 2.0, 1.0, halves) is not None
    assert external_cells(job, 2, halves, lambda attempt, entry: 0.5) is None


@pytest.mark.parametrize("seed", range(30))
def test_internal_and_external_agree_on_a_machine_that_holds_all(seed: int) -> None:
    draw = Random(seed)
    job = drawn_job(draw)
    room = Machine("h", Amounts(100.0, 1000.0, 1000.0), Amounts(*(draw.uniform(0.01, 3.0) for _ in range(3))))
    workers = draw.randint(1, 9)
    inside = internal_cells(job, workers, [room])
    across = external_cells(job, workers, [room], lambda attempt, entry: uniform(seed, attempt, entry))
    assert inside is not None
    assert across is not None
    assert (across.workers, across.servers) == (inside.workers, inside.servers)
    assert across.cost == pytest.approx(inside.cost)


def test_internal_placement_takes_the_cheapest_machine_with_room() -> None:
    roomy = [machine("h1", 1.0, 0.5, 3.0), machine("h2", 2.0, 1.0, 10.0), machine("h3", 3.0, 1.0, 10.0)]
    cells = internal_cells(PRICED, 4, roomy)
    assert cells == Cells(10.0, (("h2", 4),), (("h2", 2),))


@pytest.mark.parametrize(("factor", "probability"), [(0.8, 0.0), (0.95, 0.348633), (1.0, 0.636719), (1.1, 0.972703)])
def test_factor_decides_how_often_twenty_workers_are_covered(factor: float, probability: float) -> None:
    """Each machine has 2.5 workers in the fractional solution; the number of parts that go up is binomial."""
    whole = floor(20 / 8 * factor)
    part = 20 / 8 * factor - whole
    exact = sum(comb(8, ups) * part**ups * (1 - part) ** (8 - ups) for ups in range(9) if 8 * whole + ups >= 20)
    assert exact == pytest.approx(probability, abs=1e-6)
    draw, count = Random(1), 20_000
    covered = sum(
        sum(rounded((20 / 8, 0.0), factor, (draw.random(), 0.0))[0] for _ in range(8)) >= 20 for _ in range(count)
    )
    assert covered / count == pytest.approx(exact, abs=3 * sqrt(exact * (1 - exact) / count) + 1e-12)


def test_quadratic_form_of_the_packing_factor_exceeds_the_target() -> None:
    """With 81 rows, δ = 0.5 and W_b = 8 the quadratic form is no bound; therefore it is not used."""
    x = 3 * log(3 * 81 / 0.5) / (2 * 8)
    quadratic, target = 1 + x - sqrt(x * x + 2 * x), 0.5 / (3 * 81)

    def chernoff(factor: float) -> float:
        return exp(8 * (1 - factor + log(factor)))

    assert quadratic == pytest.approx(0.245435, abs=5e-7)
    assert target == pytest.approx(2.058e-3, abs=5e-7)
    assert chernoff(quadratic) == pytest.approx(5.51e-3, abs=5e-6)
    assert chernoff(packing_factor(81, 0.5, 8)) == pytest.approx(target, rel=1e-9)


@pytest.mark.parametrize("drawn", [0.0, 0.999])
@pytest.mark.parametrize("seed", range(50))
def test_each_pod_is_on_a_machine_where_it_may_run(seed: int, drawn: float) -> None:
    """Draws of 0.999 round every fraction down, so that the repair adds pods."""
    draw = Random(seed)
    names = [f"h{i}" for i in range(4)]
    for_workers, for_servers = (frozenset(draw.sample(names, draw.randint(1, 3))) for _ in range(2))
    job = pd_ors_job(server=Amounts(1.0, 1.0), places=for_workers, server_places=for_servers)
    machines = [machine(name, draw.uniform(1, 2), draw.uniform(0.5, 1), draw.randint(2, 5)) for name in names]
    found = external_cells(job, draw.randint(1, 6), machines, lambda _attempt, _entry: drawn)
    if found is not None:
        assert {name for name, _ in found.workers} <= for_workers
        assert {name for name, _ in found.servers} <= for_servers
    inside = internal_cells(job, 1, machines)
    assert inside is None or {name for name, _ in inside.workers} <= for_workers & for_servers
