"""Slot table of OASiS: workers and parameter servers in separate pools, without regard to which machines they are on.

Source: OASiS (INFOCOM 2018, arXiv 1801.00936) [P].
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from tranche.policies.slot_table.cells import Cells, pooled_cells
from tranche.policies.slot_table.offer import PricedTable, WorkerCounts
from tranche.policies.slot_table.pool import Pool
from tranche.policies.slot_table.slot_job import SlotJob


@dataclass(slots=True, eq=False)
class PooledTable(PricedTable):
    """A pool of machines for workers and one for parameter servers."""

    workers: Pool
    servers: Pool

    def state(self, slot: int) -> Hashable:
        """Return what is reserved in both pools."""
        return self.workers.state(slot), self.servers.state(slot)

    def choices(self, job: SlotJob, slot: int, counts: Sequence[WorkerCounts]) -> list[Cells | None]:
        """Return COST_t for each number of workers; communication takes the time between machines."""
        hosts, servers = self.workers.machines(slot), self.servers.machines(slot)
        return pooled_cells(job, [pair.external for pair in counts], hosts, servers)

    def take(self, job: SlotJob, slot: int, cells: Cells) -> None:
        """Reserve the cells in both pools."""
        for name, count in cells.workers:
            self.workers.take(slot, name, job.worker.times(count))
        for name, count in cells.servers:
            self.servers.take(slot, name, job.server.times(count))
