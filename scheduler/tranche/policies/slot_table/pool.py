"""Machines of a slot table: what is reserved on each of them in each slot, and what it costs there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tranche.policies.slot_table.price import PriceRange
from tranche.policies.slot_table.slot_job import NO_AMOUNTS, Amounts

PoolState = tuple[tuple[str, Amounts], ...]
"""Reserved amounts in a slot, by machine: slots of one state have the same prices."""


class Machine(NamedTuple):
    """A machine in one slot."""

    name: str
    room: Amounts
    """Amounts that are not reserved."""
    prices: Amounts
    """Price of each resource."""

    def price_of(self, demand: Amounts) -> float:
        """Return the price of one pod."""
        return sum(price * part for price, part in zip(self.prices, demand, strict=True) if part > 0)


@dataclass(slots=True, eq=False)
class Pool:
    """Machines with their reservations."""

    capacity: Mapping[str, Amounts]
    """Capacity of each machine; infinite at an unlimited site."""
    prices: PriceRange
    reserved: dict[int, dict[str, Amounts]] = field(default_factory=dict)
    """Reserved amounts by slot and machine."""
    _names: list[str] = field(init=False)
    _cache: dict[tuple[Amounts, Amounts], tuple[Amounts, Amounts]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._names = sorted(self.capacity)

    def take(self, slot: int, machine: str, amounts: Amounts) -> None:
        """Reserve amounts on a machine; without effect if the pool does not have it any more."""
        if machine in self.capacity:
            on_machines = self.reserved.setdefault(slot, {})
            on_machines[machine] = on_machines.get(machine, NO_AMOUNTS).plus(amounts)

    def state(self, slot: int) -> PoolState:
        """Return what is reserved in the slot, as a value."""
        return tuple(sorted(self.reserved.get(slot, {}).items()))

    def machines(self, slot: int) -> list[Machine]:
        """Return all machines, by name, as they are in the slot."""
        reserved = self.reserved.get(slot, {})
        return [Machine(name, *self._left(reserved.get(name, NO_AMOUNTS), self.capacity[name])) for name in self._names]

    def _left(self, used: Amounts, capacity: Amounts) -> tuple[Amounts, Amounts]:
        """Return what is left of a capacity, and the prices there."""
        cached = self._cache.get((used, capacity))
        if cached is None:
            cached = self._cache[used, capacity] = capacity.minus(used), self.prices.at(used, capacity)
        return cached
