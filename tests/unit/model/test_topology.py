"""Topology levels of nodes."""

import pytest

from support.builders import node
from tranche.model import Node
from tranche.model.topology import NODE_LEVEL, RACK_LEVEL, SITE_LEVEL, WAN_LEVEL, Topology

TOPOLOGY = Topology()
RACK = {RACK_LEVEL: "r1"}


def test_topology_default_is_node_rack_site_wan() -> None:
    assert [TOPOLOGY.name(level) for level in range(4)] == [NODE_LEVEL, RACK_LEVEL, SITE_LEVEL, WAN_LEVEL]
    assert [TOPOLOGY.level(name) for name in (NODE_LEVEL, WAN_LEVEL, "zone")] == [0, 3, None]


@pytest.mark.parametrize(
    ("others", "level"),
    [
        ([], 0),
        ([node("b", labels=RACK)], 1),
        ([node("b", labels={RACK_LEVEL: "r2"})], 2),
        ([node("b")], 2),
        ([node("b", "edge-b", labels=RACK)], 3),
        ([node("b", labels=RACK), node("c", labels={RACK_LEVEL: "r2"})], 2),
    ],
)
def test_level_of_nodes_is_the_narrowest_that_all_share(others: list[Node], level: int) -> None:
    nodes = [node("a", labels=RACK), *others]
    assert TOPOLOGY.level_of(TOPOLOGY.domain(one) for one in nodes) == level


def test_nodes_without_the_label_are_groups_of_their_own() -> None:
    domains = {TOPOLOGY.domain(one)[1:] for one in (node("a"), node("b"), node("c", labels=RACK))}
    assert len(domains) == 3


def test_equal_rack_names_of_two_sites_are_two_racks() -> None:
    here, there = (TOPOLOGY.domain(node("a", site, labels=RACK)) for site in ("edge-a", "edge-b"))
    assert here[1:] != there[1:]


def test_level_of_no_nodes_is_the_narrowest() -> None:
    assert TOPOLOGY.level_of(()) == 0


def test_fresh_nodes_of_a_site_are_one_node_or_one_site() -> None:
    assert [TOPOLOGY.fresh_level(gpus, 8) for gpus in (8, 9)] == [0, 2]
    assert Topology((RACK_LEVEL,)).fresh_level(9, 8) == 1


def test_levels_may_be_any_label_keys() -> None:
    nvlink = Topology((NODE_LEVEL, "island", RACK_LEVEL))
    a, b = (nvlink.domain(node(name, labels={**RACK, "island": "i"})) for name in "ab")
    assert nvlink.level_of((a, b)) == 1


@pytest.mark.parametrize("labels", [("rack", "rack"), ("",), (WAN_LEVEL,)])
def test_topology_refuses_repeated_and_reserved_labels(labels: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="must be different label keys"):
        Topology(labels)
