"""Narrowest topology level at which the members of a gang fit."""

import pytest

from tranche.state.topology_fit import Fit, narrowest_fit, spread

DOMAINS = {
    "a0": ("a0", "r1", "a"),
    "a1": ("a1", "r1", "a"),
    "a2": ("a2", "r2", "a"),
    "a3": ("a3", "r2", "a"),
    "b0": ("b0", "r1", "b"),
}


def fit(rooms: dict[str, int], members: int, widest: int = 3) -> Fit | None:
    return narrowest_fit(rooms, DOMAINS, members, widest)


@pytest.mark.parametrize(
    ("rooms", "level", "nodes"),
    [
        ({"a0": 4, "a1": 8}, 0, ["a0", "a0", "a0", "a0"]),
        ({"a0": 3, "a1": 1, "a2": 3, "a3": 3}, 1, ["a0", "a0", "a0", "a1"]),
        ({"a0": 2, "a1": 0, "a2": 1, "a3": 1}, 2, ["a0", "a0", "a2", "a3"]),
        ({"a0": 3, "b0": 3}, 3, ["a0", "a0", "a0", "b0"]),
    ],
)
def test_fit_is_the_smallest_group_of_the_narrowest_level(rooms: dict[str, int], level: int, nodes: list[str]) -> None:
    found = fit(rooms, 4)
    assert found is not None
    assert found.level == level
    assert sorted(spread(rooms, DOMAINS, found, 4)) == nodes


def test_no_fit_beyond_the_widest_allowed_level() -> None:
    assert fit({"a0": 2, "a2": 2}, 4, widest=1) is None
    assert fit({"a0": 2, "a2": 2}, 4, widest=2) == Fit(2, ("a",))


def test_no_fit_without_enough_room() -> None:
    assert fit({"a0": 2, "a2": 1}, 4) is None


def test_members_fill_the_largest_rack_first() -> None:
    rooms = {"a0": 2, "a1": 2, "a2": 4, "a3": 4}
    found = fit(rooms, 10)
    assert found == Fit(2, ("a",))
    assert spread(rooms, DOMAINS, found, 10) == ["a2"] * 4 + ["a3"] * 4 + ["a1"] * 2


def test_racks_of_equal_names_at_two_sites_do_not_join() -> None:
    assert fit({"a0": 2, "b0": 2}, 4) == Fit(3, ())
