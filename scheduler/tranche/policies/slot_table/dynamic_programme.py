"""Dynamic programme over slots: which part of a job's work to train in which slot, and when to complete.

Source: the recursion of OASiS (INFOCOM 2018, arXiv 1801.00936) [P], with its work in at most 50 equal quanta [I], since
it would take time in proportion to the square of all mini-batches; the optimality that OASiS proves is lost with that.
[I] costs must not fall with the quanta of a slot, so that of all numbers with one cost only the largest is tried.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Finish:
    """The completion of the greatest payoff."""

    payoff: float
    """Utility less cost; -inf if the work does not fit before the horizon."""
    last: int
    """Slot of completion, counted from the first one."""
    quanta: tuple[int, ...]
    """Quanta to train in each slot up to that one."""


def least_costs(costs: Sequence[Sequence[float]], work: int) -> list[list[float]]:
    """Return Θ(t, V): the least cost of V quanta in slots 0 to t, for each slot t and V = 0 … `work`.

    Args:
        costs: θ(t, v) of v = 0, 1, … quanta in slot t, which must not fall with v; θ(t, 0) = 0, infinite if they do
            not fit.
        work: Number of quanta.
    """
    before, table = [0.0, *[inf] * work], []
    steps: dict[int, list[tuple[int, float]]] = {}
    for row in costs:
        after = list(before)
        if id(row) not in steps:
            steps[id(row)] = _steps(row[: work + 1])
        for part, cost in steps[id(row)]:
            served = [cost] * part + [cost + earlier for earlier in before[: work + 1 - part]]
            after[1:] = map(min, after[1:], served[1:])
        table.append(after)
        before = after
    return table


def _steps(row: Sequence[float]) -> list[tuple[int, float]]:
    """Return the largest number of quanta for each finite cost, 0 left out."""
    pairs = enumerate(zip(row, [*row[1:], inf], strict=True))
    return [(part, cost) for part, (cost, following) in pairs if part and cost < following]


def best_finish(costs: Sequence[Sequence[float]], work: int, utilities: Sequence[float]) -> Finish:
    """Return the slot of completion that maximises utility less cost, the earliest among equals, and its quanta.

    Among quanta of equal cost, the smaller number goes to the later slot.

    Args:
        costs: θ(t, v) as in `least_costs`.
        work: Number of quanta.
        utilities: Utility of a completion in each slot.
    """
    table = least_costs(costs, work)
    payoffs = [utility - row[work] for utility, row in zip(utilities, table, strict=True)]
    payoff = max(payoffs, default=-inf)
    if payoff == -inf:
        return Finish(-inf, 0, ())
    last = payoffs.index(payoff)
    quanta, left = [0] * (last + 1), work
    for slot in range(last, -1, -1):
        before = table[slot - 1] if slot else [0.0, *[inf] * work]
        target = table[slot][left]
        row = costs[slot]
        parts = range(min(left, len(row) - 1) + 1)
        quanta[slot] = next(part for part in parts if row[part] + before[left - part] == target)
        left -= quanta[slot]
    return Finish(payoff, last, tuple(quanta))
