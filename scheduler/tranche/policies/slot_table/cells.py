"""Cells of a slot table that one job takes in one slot, with their cost, and the greedy choice of machines.

Source: the greedy choice is COST_t of OASiS (INFOCOM 2018, arXiv 1801.00936) [P]: machines by the price of one pod,
from each as many as fit.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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


def cheapest_counts(machines: Iterable[Machine], demand: Amounts, wanted: int) -> tuple[float, Counts] | None:
    """Return cost and numbers of pods if each goes to the cheapest machine that has room; None if they do not fit."""
    by_price = sorted((machine.price_of(demand), machine.name, machine.room) for machine in machines)
    cost, found = 0.0, []
    for price, name, room in by_price:
        count = demand.most_in(room, wanted)
        if count > 0:
            found.append((name, count))
            cost += price * count
            wanted -= count
        if wanted == 0:
            break
    return (cost, tuple(found)) if wanted == 0 else None


def pooled_cells(
    job: SlotJob, workers: int, worker_machines: Sequence[Machine], server_machines: Sequence[Machine]
) -> Cells | None:
    """Return the cheapest cells for the workers and their parameter servers, in separate pools (COST_t) [P].

    None if they do not fit, or if the job would need more parameter servers than workers.
    """
    if workers == 0:
        return NOTHING
    if workers > job.most_workers or job.covering_servers(workers) > workers:
        return None
    allowed = [machine for machine in worker_machines if job.allows(machine.name)]
    placed = cheapest_counts(allowed, job.worker, workers)
    served = cheapest_counts(server_machines, job.server, job.servers_for(workers)) if placed else None
    if placed is None or served is None:
        return None
    return Cells(placed[0] + served[0], placed[1], served[1])
