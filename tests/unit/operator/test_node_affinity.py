"""The required node affinity means exactly the planned node, its fallbacks and the terms of the template."""

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tranche.kube.convert.pod_shape import pod_constraints, pod_of_template
from tranche_operator.manifests import node_affinity

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def terms_of(spec: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    return found


def test_each_node_is_a_term_of_its_own_the_planned_one_first() -> None:
    spec: dict[str, Any] = {}
    node_affinity.restrict(spec, node_affinity.node_terms(["n2", "n1", "n2"]))
    assert terms_of(spec) == [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in ("n2", "n1")
    ]


def test_preferences_and_other_affinities_of_the_user_stay() -> None:
    spec: dict[str, Any] = {
        "affinity": {"podAntiAffinity": {"x": 1}, "nodeAffinity": {"preferredDuringScheduling": [1]}}
    }
    node_affinity.restrict(spec, node_affinity.node_terms(["n1"]))
    assert spec["affinity"]["podAntiAffinity"] == {"x": 1}
    assert spec["affinity"]["nodeAffinity"]["preferredDuringScheduling"] == [1]


def test_preferred_node_is_added_to_preferences_of_the_user() -> None:
    own = {"weight": 1, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}
    spec: dict[str, Any] = {"affinity": {"nodeAffinity": {PREFERRED: [own]}}}
    node_affinity.prefer(spec, "n1")
    (preference,) = node_affinity.node_terms(["n1"])
    assert spec["affinity"]["nodeAffinity"][PREFERRED] == [own, {"weight": 100, "preference": preference}]


def test_an_affinity_that_is_null_is_like_none() -> None:
    spec: dict[str, Any] = {"affinity": None}
    node_affinity.restrict(spec, node_affinity.node_terms(["n1"]))
    assert len(terms_of(spec)) == 1


def test_empty_user_term_still_matches_no_node() -> None:
    zone = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    spec: dict[str, Any] = {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}, zone]}}}}
    node_affinity.restrict(spec, node_affinity.node_terms(["n1", "n2"]))
    assert all("matchExpressions" in term for term in terms_of(spec))
    assert len(terms_of(spec)) == 2


def test_an_affinity_that_no_node_can_meet_stays_as_it_is() -> None:
    spec: dict[str, Any] = {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}]}}}}
    before = copy.deepcopy(spec)
    node_affinity.restrict(spec, node_affinity.node_terms(["n1"]))
    assert spec == before


EXPRESSION = st.one_of(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["zone", "gpu"]),
            "operator": st.sampled_from(["In", "NotIn"]),
            "values": st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=2),
        }
    ),
    st.fixed_dictionaries(
        {"key": st.sampled_from(["zone", "gpu"]), "operator": st.sampled_from(["Exists", "DoesNotExist"])}
    ),
)
TERM = st.fixed_dictionaries({}, optional={"matchExpressions": st.lists(EXPRESSION, max_size=2)})
NODES = {"n1": {"zone": "a"}, "n2": {"zone": "b", "gpu": "a"}, "n3": {"gpu": "b"}, "n4": {}}


@given(st.lists(TERM, min_size=1, max_size=3), st.lists(st.sampled_from(sorted(NODES)), min_size=1, max_size=3))
def test_node_is_allowed_if_listed_and_matching_user_terms(terms: list[dict[str, Any]], listed: list[str]) -> None:
    own: dict[str, Any] = {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}, "containers": []}
    narrowed = copy.deepcopy(own)
    node_affinity.restrict(narrowed, node_affinity.node_terms(listed))
    before, after = (pod_constraints(pod_of_template({"spec": spec})) for spec in (own, narrowed))
    for name, labels in NODES.items():
        allowed = before.objection(name, labels, ()) is None and name in listed
        assert (after.objection(name, labels, ()) is None) == allowed


@given(st.lists(TERM, min_size=1, max_size=3))
def test_every_term_names_one_node(terms: list[dict[str, Any]]) -> None:
    spec: dict[str, Any] = {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}
    if not any(any(term.values()) for term in terms):
        return
    node_affinity.restrict(spec, node_affinity.node_terms(["n1", "n2"]))
    for term in terms_of(spec):
        assert [field["key"] for field in term["matchFields"]] == ["metadata.name"]
        assert len(term["matchFields"][0]["values"]) == 1


def test_the_labels_of_a_site_are_one_term() -> None:
    spec: dict[str, Any] = {}
    node_affinity.restrict(spec, node_affinity.label_terms({"zone": "c", "pool": "gpu"}))
    (term,) = terms_of(spec)
    assert [(e["key"], e["values"]) for e in term["matchExpressions"]] == [("pool", ["gpu"]), ("zone", ["c"])]
