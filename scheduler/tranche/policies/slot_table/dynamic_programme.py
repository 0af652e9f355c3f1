"""Dynamic programme over slots: which part of a job's work to train in which slot, and when to complete.

Source: the recursion of OASiS (INFOCOM 2018, arXiv 1801.00936) [P], with its work in at most 50 equal quanta [I], since
it would take time in proportion to the square of all mini-batches; the optimality that OASiS proves is lost with that.
[I] costs must not fall with the quanta of a slot, so that of all numbers with one cost only the largest is tried.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Finish:
    """The completion of the greatest payoff."""

    payoff: float
    """Utility less cost; -inf if the work does not fit before the horizon."""
    last: int
    """Slot of completion, counted from the first one."""
    quanta: tuple[int, ...]
    """Quanta to train in each slot up to that one."""


def least_costs(costs: Iterable[Sequence[float]], work: int) -> Iterator[list[float]]:
    """Yield Θ(t, V) for each slot t: the least cost of V quanta in slots 0 to t, for V = 0 … `work`.

    Args:
        costs: θ(t, v) of v = 0, 1, … quanta in slot t, which must not fall with v; θ(t, 0) = 0, infinite if they do
            not fit.
        work: Number of quanta.
    """
    least = np.array([0.0, *[inf] * work])
    steps: dict[int, tuple[NDArray[np.float64], NDArray[np.intp]] | None] = {}
    rows = []  # kept, so that no other row has the identity of one of them
    for row in costs:
        if id(row) not in steps:
            rows.append(row)
            steps[id(row)] = _steps(row[: work + 1], work)
        if (step := steps[id(row)]) is not None:
            cost, left_over = step
            least = np.minimum(least, (cost + least[left_over]).min(axis=0))
        yield least.tolist()


def _steps(row: Sequence[float], work: int) -> tuple[NDArray[np.float64], NDArray[np.intp]] | None:
    """Return the finite costs, and for the largest number of quanta at each of them what it leaves of V; None if none.

    No quanta at all, at no cost, are left out.
    """
    pairs = enumerate(zip(row, [*row[1:], inf], strict=True))
    candidates = [(part, cost) for part, (cost, following) in pairs if part and cost < following]
    if not candidates:
        return None
    parts, costs = zip(*candidates, strict=True)
    left_over = np.maximum(0, np.arange(work + 1) - np.array(parts)[:, np.newaxis])
    return np.array(costs)[:, np.newaxis], left_over


def best_finish(costs: Iterable[Sequence[float]], work: int, utilities: Sequence[float]) -> Finish:
    """Return the slot of completion that maximizes utility less cost, the earliest among equals, and its quanta.

    Among quanta of equal cost, the smaller number goes to the later slot. No slot is considered after the first one
    from which on no utility exceeds the best payoff, since costs are not negative.

    Args:
        costs: θ(t, v) as in `least_costs`.
        work: Number of quanta.
        utilities: Utility of a completion in each slot.
    """
    greatest = list(accumulate(reversed(utilities), max))[::-1]
    payoff, last = -inf, 0
    table: list[list[float]] = []
    rows: list[Sequence[float]] = []
    following = iter(costs)

    def needed_rows() -> Iterator[Sequence[float]]:
        for most in greatest:
            if most <= payoff:
                return
            rows.append(next(following))
            yield rows[-1]

    for slot, least in enumerate(least_costs(needed_rows(), work)):
        table.append(least)
        if utilities[slot] - least[work] > payoff:
            payoff, last = utilities[slot] - least[work], slot
    if payoff == -inf:
        return Finish(-inf, 0, ())
    quanta, work_left = [0] * (last + 1), work
    for slot in range(last, -1, -1):
        before = table[slot - 1] if slot else [0.0, *[inf] * work]
        target = table[slot][work_left]
        row = rows[slot]
        parts = range(min(work_left, len(row) - 1) + 1)
        quanta[slot] = next(part for part in parts if row[part] + before[work_left - part] == target)
        work_left -= quanta[slot]
    return Finish(payoff, last, tuple(quanta))
