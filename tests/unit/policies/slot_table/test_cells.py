"""The greedy choice of machines of OASiS: its worked example, and brute force on small pools."""

from itertools import product
from math import inf
from random import Random

import pytest

from tranche.policies.slot_table.cells import Cells, pooled_cells
from tranche.policies.slot_table.pool import Machine
from tranche.policies.slot_table.slot_job import Amounts, SlotJob

GPU = Amounts(1.0)
SERVER = Amounts(0.0, 1.0)


def oasis_job(**changes: object) -> SlotJob:
    fields: dict[str, object] = {
        "key": "a",
        "samples": 20.0,
        "internal_slots": 0.5,
        "external_slots": 0.5,
        "most_workers": 10,
        "worker": GPU,
        "server": SERVER,
        "workers_per_server": 2.0,
    }
    return SlotJob(**{**fields, **changes})  # type: ignore[arg-type]


HOSTS = [Machine("h1", Amounts(2.0), Amounts(4.0)), Machine("h2", Amounts(4.0), Amounts(1.0))]
SERVERS = [Machine("k1", Amounts(0.0, 10.0), Amounts(0.0, 0.5))]


@pytest.mark.parametrize(
    ("samples", "cost", "workers", "servers"),
    [(6, 4.0, (("h2", 3),), 2), (12, 13.5, (("h2", 4), ("h1", 2)), 3)],
)
def test_cheapest_servers_are_filled_first(
    samples: int, cost: float, workers: tuple[tuple[str, int], ...], servers: int
) -> None:
    job = oasis_job()
    found = pooled_cells(job, [job.workers_for(samples, job.external_slots)], HOSTS, SERVERS)
    assert found == [Cells(cost, workers, (("k1", servers),))]


def test_workers_beyond_all_rooms_have_no_cells() -> None:
    job = oasis_job()
    assert job.workers_for(14, job.external_slots) == 7
    assert pooled_cells(job, [7], HOSTS, SERVERS) == [None]


def test_more_parameter_servers_than_workers_are_refused() -> None:
    assert pooled_cells(oasis_job(workers_per_server=0.5), [1], HOSTS, SERVERS) == [None]


def test_parameter_servers_without_room_have_no_cells() -> None:
    assert pooled_cells(oasis_job(), [3], HOSTS, [Machine("k1", Amounts(0.0, 1.0), SERVER)]) == [None]


def test_job_never_gets_more_than_its_most_workers() -> None:
    assert pooled_cells(oasis_job(most_workers=2), [3], HOSTS, SERVERS) == [None]


def brute_force(job: SlotJob, workers: int, hosts: list[Machine], servers: list[Machine]) -> float:
    def least(machines: list[Machine], demand: Amounts, count: int) -> float:
        most = [demand.most_in(machine.room, count) for machine in machines]
        totals = [
            sum(n * machine.price_of(demand) for n, machine in zip(counts, machines, strict=True))
            for counts in product(*(range(n + 1) for n in most))
            if sum(counts) == count
        ]
        return min(totals, default=inf)

    needed = job.servers_for(workers)
    return inf if needed > workers else least(hosts, job.worker, workers) + least(servers, job.server, needed)


@pytest.mark.parametrize("seed", range(40))
def test_greedy_is_brute_force_on_three_and_three_servers(seed: int) -> None:
    draw = Random(seed)

    def machines(letter: str) -> list[Machine]:
        return [
            Machine(
                f"{letter}{number}",
                Amounts(draw.randint(0, 3), draw.randint(0, 9), draw.randint(0, 9)),
                Amounts(*(draw.uniform(0.1, 3.0) for _ in range(3))),
            )
            for number in range(3)
        ]

    hosts, servers = machines("h"), machines("k")
    worker, server = Amounts(1.0, draw.randint(0, 2), draw.randint(0, 2)), Amounts(0.0, draw.randint(1, 3), 1.0)
    job = oasis_job(worker=worker, server=server, workers_per_server=draw.choice([0.8, 1.0, 2.0, inf]))
    for workers in range(1, 7):
        [found] = pooled_cells(job, [workers], hosts, servers)
        assert (inf if found is None else found.cost) == pytest.approx(brute_force(job, workers, hosts, servers))
