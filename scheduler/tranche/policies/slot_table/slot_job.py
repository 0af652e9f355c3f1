"""Demand of one job on a slot table, in slots.

Source: the inputs of OASiS (INFOCOM 2018, arXiv 1801.00936) [P] and of PD-ORS (arXiv 2108.02917), whose inputs are
reconstructed [R]. [I] a sample is one mini-batch of one worker; a gang takes its workers in lots of all members; a job
whose number of parameter servers is fixed has at least these in every slot in which it has workers.
"""

from dataclasses import dataclass
from math import ceil, inf
from typing import NamedTuple

NEARLY = 1e-9
"""Tolerance of sums and of numbers that are rounded up."""


class Amounts(NamedTuple):
    """Amount of each resource; unlike units are added, as in OASiS [P]."""

    gpus: float = 0.0
    cores: float = 0.0
    gibibytes: float = 0.0

    def times(self, count: float) -> "Amounts":
        """Return the amounts of several equal pods."""
        return Amounts(self.gpus * count, self.cores * count, self.gibibytes * count)

    def plus(self, other: "Amounts") -> "Amounts":
        """Return the sums."""
        return Amounts(self.gpus + other.gpus, self.cores + other.cores, self.gibibytes + other.gibibytes)

    def minus(self, other: "Amounts") -> "Amounts":
        """Return the differences."""
        return Amounts(self.gpus - other.gpus, self.cores - other.cores, self.gibibytes - other.gibibytes)

    def fit(self, room: "Amounts") -> bool:
        """Return whether the room has them all."""
        return all(part <= free + NEARLY for part, free in zip(self, room, strict=True))

    def most_in(self, room: "Amounts", most: int) -> int:
        """Return how many such pods the room has, at most `most`."""
        parts = [free / part for part, free in zip(self, room, strict=True) if part > 0]
        return max(0, min([most, *(int(part + NEARLY) for part in parts if part < inf)]))

    @property
    def total(self) -> float:
        """Sum over the resources."""
        return sum(self)


NO_AMOUNTS = Amounts()
"""Nothing of any resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotJob:
    """A job, or the rest of one, as the algorithms of slot tables see it."""

    key: str
    samples: float
    """Work: number of mini-batches, each of one worker."""
    internal_slots: float
    """Slots that a worker needs for a sample if all pods of the job are on one machine."""
    external_slots: float
    """The same if they are on several machines."""
    most_workers: int
    worker: Amounts
    server: Amounts = NO_AMOUNTS
    workers_per_server: float = inf
    """Number of workers that a parameter server serves; infinite without parameter servers."""
    least_servers: int = 0
    """Least number of parameter servers in a slot with workers."""
    lot: int = 1
    """Number of workers that start together: all members of a gang."""
    places: frozenset[str] | None = None
    """Machines on which its workers may run; None: all."""
    server_places: frozenset[str] | None = None
    """Machines on which its parameter servers may run; None: all."""

    def workers_for(self, samples: float, slots_per_sample: float) -> int:
        """Return the number of workers that train the samples within one slot."""
        return up(samples * slots_per_sample / self.lot) * self.lot

    def servers_for(self, workers: float) -> int:
        """Return the number of parameter servers beside the workers."""
        return max(self.least_servers, self.covering_servers(workers)) if workers > 0 else 0

    def least_servers_for(self, workers: float) -> float:
        """Return the least number of parameter servers of a fractional placement."""
        return max(self.least_servers, workers / self.workers_per_server)

    def covering_servers(self, workers: float) -> int:
        """Return the number of parameter servers whose bandwidth serves the workers."""
        return up(workers / self.workers_per_server)

    def allows_worker(self, place: str) -> bool:
        """Return whether its workers may run there."""
        return self.places is None or place in self.places

    def allows_server(self, place: str) -> bool:
        """Return whether its parameter servers may run there."""
        return self.server_places is None or place in self.server_places


def seconds_per_sample(
    step_seconds: float, gradient_bits: float, workers_per_server: float, bits_per_second: float, batch: float
) -> float:
    """Return φ = τ + 2 g γ / (b F): seconds of one worker for one sample [R].

    Args:
        step_seconds: τ, the computation of one sample.
        gradient_bits: g.
        workers_per_server: γ.
        bits_per_second: b, inside one machine or between machines.
        batch: F, the samples of a global batch.
    """
    return step_seconds + 2.0 * gradient_bits * workers_per_server / (bits_per_second * batch)


def up(number: float) -> int:
    """Return the number rounded up, so that no work is without a slot.

    What exceeds an integer above 0 by the error of its computation counts as the integer.
    """
    return max(int(number > 0), ceil(number - NEARLY * max(1.0, abs(number))))
