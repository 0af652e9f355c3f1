"""Plan of one job on a slot table: what a policy has reserved for it, and what it was offered.

It is a value of `JobState`, so that copies of the state keep it. It is not in the status of the job.
"""

from dataclasses import dataclass
from typing import NamedTuple


class SlotCells(NamedTuple):
    """Pods of one job in one slot, by machine."""

    slot: int
    workers: tuple[tuple[str, int], ...]
    servers: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """The last offer to a job, with its cells if it was admitted."""

    payoff: float
    """Utility less price; -inf if no completion was found."""
    offered_slot: int
    """First slot of the offer."""
    holders: frozenset[str] = frozenset()
    """Jobs that had cells then: a new offer is due when one of them has given its cells back."""
    cells: tuple[SlotCells, ...] = ()
    """Cells in order of slots; none if the job was not admitted."""

    @property
    def last_slot(self) -> int:
        """Slot in which the job is to complete; -1 without cells."""
        return self.cells[-1].slot if self.cells else -1
