"""Assignment of nodes to sites, and condition NodesShared of a Site."""

from datetime import UTC, datetime

from tranche.kube.api.resources import Condition, SiteObject
from tranche.kube.convert.node_condition import LISTED
from tranche.kube.convert.site_membership import shared_condition, site_of, sites_of

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
SHARED = Condition(type="NodesShared", status="True", reason="SelectorsOverlap", last_transition_time=NOW)


def site(name: str, **selector: str) -> SiteObject:
    return SiteObject.model_validate({"metadata": {"name": name}, "spec": {"nodeSelector": selector}})


SITES = {"b": site("b", zone="z", pool="gpu"), "a": site("a", zone="z"), "c": site("c", zone="y")}


def test_node_belongs_to_the_first_site_by_name() -> None:
    labels = {"zone": "z", "pool": "gpu"}
    assert list(sites_of(labels, SITES)) == ["a", "b"]
    assert site_of(labels, SITES) == "a"


def test_node_that_no_selector_matches_has_no_site() -> None:
    assert site_of({"zone": "x"}, SITES) is None


def test_condition_names_the_first_nodes() -> None:
    nodes = [(f"n{number}", "a") for number in range(LISTED + 3)]
    found = shared_condition(nodes, [], NOW.timestamp())
    assert found is not None
    assert (found["status"], found["reason"]) == ("True", "SelectorsOverlap")
    assert "n0 (a), n1 (a)" in found["message"]
    assert f"n{LISTED}" not in found["message"]
    assert "and 3 more" in found["message"]


def test_condition_is_missing_before_nodes_are_shared() -> None:
    assert shared_condition([], [], NOW.timestamp()) is None


def test_condition_becomes_false_when_selectors_change() -> None:
    found = shared_condition([], [SHARED], NOW.timestamp() + 60)
    assert found is not None
    assert (found["status"], found["reason"]) == ("False", "NoneShared")
