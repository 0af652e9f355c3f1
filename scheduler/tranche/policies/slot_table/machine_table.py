"""Slot table of PD-ORS: one pool of machines, and placements inside one machine or on several.

Source: PD-ORS (arXiv 2108.02917), reconstructed [R]: synchronous training waits for the slowest worker, so bandwidth is
that inside a machine only if all pods of the job are on the same one [D]. [I] without parameter servers the linear
programme has an integral optimum, the cheapest machines first, and nothing is rounded; the programme is skipped where
not even the cheapest prices would be below the cost inside one machine.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import inf

from tranche.policies.slot_table.cells import NOTHING, Cells, cheapest_counts, places_for
from tranche.policies.slot_table.external_placement import relaxed_placement
from tranche.policies.slot_table.offer import PricedTable, WorkerCounts
from tranche.policies.slot_table.pool import Machine, Pool
from tranche.policies.slot_table.rounding import bounding_factor, integral_cells
from tranche.policies.slot_table.slot_job import SlotJob

SlotDraw = Callable[[str, int, int, int, int], float]
"""Uniform random number in (0, 1), by job, slot, number of workers, try and entry."""


@dataclass(slots=True, eq=False)
class MachineTable(PricedTable):
    """A pool of machines for workers and parameter servers."""

    pool: Pool
    draw: SlotDraw
    tries: int = 20
    """Most roundings of one placement; 0: round up."""
    bounded: str = ""
    """Side whose violations the factor G bounds: packing or covering; empty: G = 1."""
    delta: float = 0.5
    """Bound of the probability of a violation, for these factors."""
    is_local: bool = True
    """Whether placements inside one machine are considered."""

    def state(self, slot: int) -> Hashable:
        """Return what is reserved."""
        return self.pool.state(slot)

    def choices(self, job: SlotJob, slot: int, counts: Sequence[WorkerCounts]) -> list[Cells | None]:
        """Return the cheaper of both placements for each pair of numbers of workers."""
        machines = self.pool.machines(slot)
        for_workers = (machine for machine in machines if job.allows_worker(machine.name))
        for_servers = (machine for machine in machines if job.allows_server(machine.name))
        worker = min((machine.price_of(job.worker) for machine in for_workers), default=inf)
        server = min((machine.price_of(job.server) for machine in for_servers), default=0.0)
        chosen = []
        for inside, across in counts:
            near = internal_cells(job, inside, machines) if self.is_local and inside is not None else None
            far = None
            if across is not None:
                lower_bound = across * worker + job.servers_for(across) * server
                if near is None or lower_bound < near.cost:
                    far = self._external(job, slot, across, machines)
            chosen.append(near if far is None or (near is not None and near.cost <= far.cost) else far)
        return chosen

    def take(self, job: SlotJob, slot: int, cells: Cells) -> None:
        """Reserve the cells."""
        for name, count in cells.workers:
            self.pool.take(slot, name, job.worker.times(count))
        for name, count in cells.servers:
            self.pool.take(slot, name, job.server.times(count))

    def _external(self, job: SlotJob, slot: int, workers: int, machines: Sequence[Machine]) -> Cells | None:
        def draw(attempt: int, entry: int) -> float:
            return self.draw(job.key, slot, workers, attempt, entry)

        return external_cells(job, workers, machines, draw, tries=self.tries, bounded=self.bounded, delta=self.delta)


def internal_cells(job: SlotJob, workers: int, machines: Sequence[Machine]) -> Cells | None:
    """Return the cells on the cheapest machine that has room for all pods; None if none has."""
    if workers == 0:
        return NOTHING
    servers = job.servers_for(workers)
    demand = job.worker.times(workers).plus(job.server.times(servers))
    able = [
        (machine.price_of(demand), machine.name)
        for machine in machines
        if demand.fit(machine.room)
        and job.allows_worker(machine.name)
        and (not servers or job.allows_server(machine.name))
    ]
    if workers > job.most_workers or not able:
        return None
    cost, name = min(able)
    return Cells(cost, ((name, workers),), ((name, servers),) if servers else ())


def external_cells(
    job: SlotJob,
    workers: int,
    machines: Sequence[Machine],
    draw: Callable[[int, int], float],
    *,
    tries: int = 20,
    bounded: str = "",
    delta: float = 0.5,
) -> Cells | None:
    """Return cells on any number of machines: the linear programme, rounded; None if they do not fit."""
    if workers == 0:
        return NOTHING
    if workers > job.most_workers:
        return None
    servers = job.servers_for(workers)
    if servers == 0:
        for_workers = (machine for machine in machines if job.allows_worker(machine.name))
        placed = cheapest_counts(places_for(for_workers, job.worker, workers), workers)
        return None if placed is None else Cells(placed[0], placed[1])
    relaxation = relaxed_placement(job, workers, job.least_servers_for(workers), machines)
    if relaxation is None:
        return None
    factor = bounding_factor(job, workers, relaxation, machines, bounded, delta) if bounded else 1.0
    return integral_cells(job, workers, relaxation, machines, draw, tries=tries, factor=factor)
