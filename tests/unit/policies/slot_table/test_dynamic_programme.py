"""The dynamic programme over slots: its worked example, and brute force over all tables of three slots."""

from itertools import pairwise, product
from math import inf
from random import Random

import pytest

from tranche.policies.slot_table.dynamic_programme import best_finish, least_costs

COSTS = [[0.0, 1.0, 4.0], [0.0, 3.0, 3.5]]


def test_least_costs_have_their_worked_values() -> None:
    assert list(least_costs(COSTS, 2)) == [[0.0, 1.0, 4.0], [0.0, 1.0, 3.5]]


def test_completion_of_the_greatest_payoff_is_the_first_slot() -> None:
    finish = best_finish(COSTS, 2, [5.0, 4.2])
    assert finish.payoff == pytest.approx(1.0)
    assert (finish.last, finish.quanta) == (0, (2,))
    assert 4.2 - list(least_costs(COSTS, 2))[1][2] == pytest.approx(0.7)


def test_equal_payoffs_finish_in_the_earliest_slot() -> None:
    assert best_finish([[0.0, 1.0], [0.0, 1.0]], 1, [3.0, 3.0]).quanta == (1,)


def test_equal_costs_leave_less_work_to_the_later_slot() -> None:
    costs = [[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]]
    assert best_finish(costs, 2, [0.0, 9.0]).quanta == (2, 0)


def test_slots_that_cannot_raise_the_payoff_are_not_read() -> None:
    costs = iter([[0.0, 1.0], [0.0, 0.5], [0.0, 0.0]])
    assert best_finish(costs, 1, [5.0, 4.2, 4.0]).last == 0
    assert list(costs) == [[0.0, 0.0]]


def test_work_that_fits_nowhere_has_no_completion() -> None:
    assert best_finish([[0.0, inf], [0.0, inf]], 1, [1.0, 1.0]).payoff == -inf


@pytest.mark.parametrize("seed", range(40))
def test_programme_is_brute_force_on_three_slots(seed: int) -> None:
    draw = Random(seed)
    work, slots = draw.randint(1, 5), draw.randint(1, 3)
    costs = [
        [0.0, *sorted(draw.choice([inf, 1.0, draw.uniform(0, 5)]) for _ in range(draw.randint(1, work)))]
        for _ in range(slots)
    ]
    utilities = [draw.uniform(0, 9) for _ in range(slots)]
    best = -inf
    for counts in product(*(range(len(row)) for row in costs)):
        for last in range(slots):
            if sum(counts[: last + 1]) == work:
                spent = sum(row[count] for row, count in zip(costs, counts[: last + 1], strict=False))
                best = max(best, utilities[last] - spent)
    finish = best_finish(costs, work, utilities)
    assert finish.payoff == pytest.approx(best)
    if best > -inf:
        assert sum(finish.quanta) == work
        spent = sum(row[count] for row, count in zip(costs, finish.quanta, strict=False))
        assert utilities[finish.last] - spent == pytest.approx(best)


@pytest.mark.parametrize("seed", range(10))
def test_least_cost_never_rises_with_a_later_slot(seed: int) -> None:
    draw = Random(seed)
    table = least_costs([[0.0, *sorted(draw.uniform(0, 5) for _ in range(4))] for _ in range(5)], 6)
    for earlier, later in pairwise(table):
        assert all(cost <= before for cost, before in zip(later, earlier, strict=True))
