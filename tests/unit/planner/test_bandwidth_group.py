"""Gangs inside the best-connected group of sites (option `grouped` of `chunk`)."""

import pytest

from support.builders import gang, node, of_type, planner, worker
from tranche.model import Link, Node, Site
from tranche.planner import JobSubmitted, OpenWindow

FAST, SLOW = Link(10e9), Link(100e6)
PAIRS = {("a", "b"): FAST, ("c", "d"): FAST}
"""Two pairs of sites with a fast link; all other links are slow."""
SITES = [
    Site(one, links={other: PAIRS.get((one, other), PAIRS.get((other, one), SLOW)) for other in "abcd" if other != one})
    for one in "abcd"
]


def nodes(**gpus: int) -> list[Node]:
    """Return one node for each site."""
    return [node(f"n-{site}", site, count) for site, count in gpus.items()]


def sites_of(policy: str, members: int, cluster: list[Node], sites: list[Site] = SITES, **changes: object) -> list[str]:
    """Return the sites of the gang's members, in order."""
    made = planner(policy, cluster, sites)
    out = made.handle(JobSubmitted(gang("one", members=members, **changes)), 0.0)  # type: ignore[arg-type]
    return sorted(one.window.site for one in of_type(OpenWindow, out))


def test_members_do_not_cross_a_slow_link_if_a_fast_pair_fits() -> None:
    cluster = nodes(a=2, b=3, c=2, d=3)
    assert sites_of("chunk", 4, cluster) == ["a", "a", "c", "c"], "best fit looks at no link"
    assert sites_of("chunk:grouped=1", 4, cluster) == ["a", "a", "b", "b"]


def test_one_site_is_better_than_a_pair_of_the_same_speed() -> None:
    assert sites_of("chunk:grouped=1", 4, nodes(a=2, b=2, c=1, d=4)) == ["d"] * 4


def test_of_equal_groups_the_one_with_less_spare_room_is_taken() -> None:
    assert sites_of("chunk:grouped=1", 4, nodes(a=3, b=3, c=2, d=2)) == ["c", "c", "d", "d"]


def test_slow_links_are_used_where_no_fast_group_has_room() -> None:
    assert sites_of("chunk:grouped=1", 6, nodes(a=2, b=2, c=2, d=1)) == ["a", "a", "b", "b", "c", "c"]


def test_gang_with_a_server_starts_in_the_group_too() -> None:
    cluster = nodes(a=2, b=3, c=2, d=3)
    assert sites_of("chunk:grouped=1", 4, cluster, server=worker(gpus=0), servers=1) == ["a", "a", "b", "b"]


def test_site_with_slow_network_inside_is_no_good_group() -> None:
    slow_inside = [*SITES[:3], Site("d", links={**SITES[3].links, "d": SLOW})]
    assert sites_of("chunk:grouped=1", 4, nodes(a=2, b=2, c=1, d=4), slow_inside) == ["a", "a", "b", "b"]


@pytest.mark.parametrize("members", [1, 3])
def test_gang_that_does_not_fit_waits(members: int) -> None:
    assert sites_of("chunk:grouped=1", members + 4, nodes(a=2, b=2)) == []
