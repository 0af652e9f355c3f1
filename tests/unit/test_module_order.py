"""The order of the modules uses several processes well, and loses no test."""

import pytest

from support.module_order import LONGEST, TESTS, in_order

COMPUTING = [(TESTS / f"unit/test_{number:02}.py", number) for number in range(20)]
WAITING = [(TESTS / f"integration/web/test_{number}.py", number) for number in range(4)]


@pytest.mark.parametrize("name", LONGEST)
def test_each_longest_module_exists(name: str) -> None:
    assert (TESTS / name).is_file()


def test_waiting_modules_lie_evenly_among_computing_ones() -> None:
    found = in_order([*WAITING, *COMPUTING])
    assert [found.index(one) for one in WAITING] == [0, 5, 10, 15]
    assert [one for one in found if one in COMPUTING] == COMPUTING


def test_longest_modules_come_first_in_their_order() -> None:
    longest = [(TESTS / name, 0) for name in LONGEST]
    found = in_order([*COMPUTING, *WAITING, *reversed(longest)])
    assert [one for one in found if one not in COMPUTING] == [*longest, *WAITING]


@pytest.mark.parametrize("modules", [[], WAITING, COMPUTING])
def test_modules_of_one_kind_keep_their_order(modules: list[tuple[object, int]]) -> None:
    assert in_order(modules) == modules  # type: ignore[type-var]
