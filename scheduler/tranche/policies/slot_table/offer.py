"""Offer of a job to a slot table: the completion of the greatest payoff, and the cells that it takes.

Source: the admission of OASiS (INFOCOM 2018, arXiv 1801.00936) [P]: a job is admitted if the payoff of the best
completion, its utility less the price of its cells, is positive; its cells are then reserved, and prices rise. PD-ORS
(arXiv 2108.02917) does the same [R].
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from tranche.policies.slot_table.cells import NOTHING, Cells
from tranche.policies.slot_table.dynamic_programme import best_finish
from tranche.policies.slot_table.slot_job import SlotJob


class WorkerCounts(NamedTuple):
    """Numbers of workers that train the same samples in one slot, at most as many as the job may have."""

    internal: int | None
    """Number if all pods are on one machine; None: more than the job may have."""
    external: int | None
    """Number if they are on several machines."""


class PricedTable(ABC):
    """Machines with prices and reservations, on which jobs find cells."""

    @abstractmethod
    def state(self, slot: int) -> Hashable:
        """Return a value that is equal for slots with equal prices and rooms."""

    @abstractmethod
    def choices(self, job: SlotJob, slot: int, counts: Sequence[WorkerCounts]) -> list[Cells | None]:
        """Return the cheapest cells in the slot for each pair of numbers of workers; None where they do not fit."""

    @abstractmethod
    def take(self, job: SlotJob, slot: int, cells: Cells) -> None:
        """Reserve the cells."""


@dataclass(frozen=True, slots=True)
class Offer:
    """The best that the table can do for a job at present prices."""

    payoff: float
    """Utility less price; -inf if its work does not fit before the horizon."""
    cells: tuple[tuple[int, Cells], ...] = ()
    """Cells by slot, slots without any left out."""

    @property
    def admits(self) -> bool:
        """Whether the payoff is positive."""
        return self.payoff > 0


def offer(table: PricedTable, job: SlotJob, first: int, utilities: Sequence[float], quanta: int) -> Offer:
    """Return the offer to a job, without reserving anything.

    Args:
        table: Table.
        job: Job, or the rest of it.
        first: First slot that it may use.
        utilities: Utility of a completion in each slot from the first to the horizon.
        quanta: Number of equal parts of its work.
    """
    counts = [_counts(job, job.samples * number / quanta) for number in range(1, quanta + 1)]
    distinct = list(dict.fromkeys(counts))
    by_state: dict[Hashable, tuple[list[Cells | None], list[float]]] = {}
    rows: list[list[Cells | None]] = []

    def costs() -> Iterator[list[float]]:
        for slot in range(first, first + len(utilities)):
            state = table.state(slot)
            if state not in by_state:
                by_counts = dict(zip(distinct, _rising(table.choices(job, slot, distinct)), strict=True))
                row = [NOTHING, *(by_counts[pair] for pair in counts)]
                by_state[state] = row, [inf if cells is None else cells.cost for cells in row]
            rows.append(by_state[state][0])
            yield by_state[state][1]

    finish = best_finish(costs(), quanta, utilities)
    chosen = []
    for number, (row, part) in enumerate(zip(rows, finish.quanta, strict=False)):
        cells = row[part]
        if part and cells is not None:
            chosen.append((first + number, cells))
    return Offer(finish.payoff, tuple(chosen))


def _counts(job: SlotJob, samples: float) -> WorkerCounts:
    pair = (job.workers_for(samples, job.internal_slots), job.workers_for(samples, job.external_slots))
    return WorkerCounts(*(count if count <= job.most_workers else None for count in pair))


def _rising(cells: list[Cells | None]) -> list[Cells | None]:
    """Return the cells for each number of samples, or those for more samples where these cost less [I].

    Only rounding can make more samples cost less.
    """
    best: Cells | None = None
    for number in range(len(cells) - 1, -1, -1):
        present = cells[number]
        if present is None or (best is not None and best.cost < present.cost):
            cells[number] = best
        else:
            best = present
    return cells


def admit(table: PricedTable, job: SlotJob, first: int, utilities: Sequence[float], quanta: int) -> Offer:
    """Return the offer to a job, and reserve its cells if the payoff is positive."""
    best = offer(table, job, first, utilities, quanta)
    if best.admits:
        for slot, cells in best.cells:
            table.take(job, slot, cells)
    return best
