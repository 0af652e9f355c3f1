"""Cells of a slot table that one job takes in one slot, with their cost, and the greedy choice of machines.

Source: the greedy choice is COST_t of OASiS (INFOCOM 2018, arXiv 1801.00936) [P]: machines by the price of one pod,
from each as many as fit.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tranche.policies.slot_table.pool import Machine
from tranche.policies.slot_table.slot_job import Amounts, SlotJob

Counts = tuple[tuple[str, int], ...]
"""Number of pods by machine, machines without any left out."""


@dataclass(frozen=True, slots=True)
class Cells:
    """Workers and parameter servers of one job in one slot."""

    cost: float
    workers: Counts = ()
    servers: Counts = ()

    @property
    def worker_count(self) -> int:
        """Number of workers."""
        return sum(count for _, count in self.workers)


NOTHING = Cells(0.0)
"""No cells, at no cost."""


class Place(NamedTuple):
    """A machine for pods of one demand; places compare by price, then by name."""

    price: float
    """Price of one pod."""
    machine: str
    most: int
    """Number of pods that have room."""


def places_for(machines: Iterable[Machine], demand: Amounts, most: int) -> list[Place]:
    """Return the machines, the cheapest first, each with room for at most `most` pods."""
    return sorted(
        Place(machine.price_of(demand), machine.name, demand.most_in(machine.room, most)) for machine in machines
    )


def cheapest_counts(places: Iterable[Place], missing: int) -> tuple[float, Counts] | None:
    """Return cost and numbers of pods if each goes to the cheapest machine that has room; None if they do not fit."""
    cost, counts = 0.0, []
    for price, name, most in places:
        count = min(most, missing)
        if count > 0:
            counts.append((name, count))
            cost += price * count
            missing -= count
        if missing == 0:
            break
    return (cost, tuple(counts)) if missing == 0 else None


def pooled_cells(
    job: SlotJob, counts: Sequence[int | None], worker_machines: Sequence[Machine], server_machines: Sequence[Machine]
) -> list[Cells | None]:
    """Return the cheapest cells for each number of workers, with parameter servers, in separate pools (COST_t) [P].

    None for a number of None, and if they do not fit or if the job would need more parameter servers than workers.
    """
    for_workers = (machine for machine in worker_machines if job.allows_worker(machine.name))
    for_servers = (machine for machine in server_machines if job.allows_server(machine.name))
    hosts = places_for(for_workers, job.worker, job.most_workers)
    servers = places_for(for_servers, job.server, job.servers_for(job.most_workers))
    return [None if count is None else _pooled_cells(job, count, hosts, servers) for count in counts]


def _pooled_cells(job: SlotJob, workers: int, hosts: Sequence[Place], servers: Sequence[Place]) -> Cells | None:
    if workers == 0:
        return NOTHING
    if workers > job.most_workers or job.covering_servers(workers) > workers:
        return None
    placed = cheapest_counts(hosts, workers)
    served = cheapest_counts(servers, job.servers_for(workers)) if placed else None
    if placed is None or served is None:
        return None
    return Cells(placed[0] + served[0], placed[1], served[1])
