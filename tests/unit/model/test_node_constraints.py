from typing import Any

import pytest

from tranche.model import Constraints, Requirement, Taint, Toleration

GPU = Taint("nvidia.com/gpu", "true")
LABELS = {"zone": "edge-a", "generation": "7"}


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration("nvidia.com/gpu", "Equal", "true"), True),
        (Toleration("nvidia.com/gpu", "Equal", "false"), False),
        (Toleration("nvidia.com/gpu", "Exists"), True),
        (Toleration("nvidia.com/gpu", "Exists", effect="NoSchedule"), True),
        (Toleration("nvidia.com/gpu", "Exists", effect="NoExecute"), False),
        (Toleration("other", "Exists"), False),
        (Toleration("", "Exists"), True),
        (Toleration("", "Exists", effect="NoExecute"), False),
        (Toleration(), False),
    ],
)
def test_a_toleration_covers_key_value_and_effect(toleration: Toleration, tolerated: bool) -> None:
    assert toleration.tolerates(GPU) is tolerated


@pytest.mark.parametrize(
    ("key", "operator", "values", "matches"),
    [
        ("zone", "In", ("edge-a", "edge-b"), True),
        ("zone", "In", ("edge-b",), False),
        ("missing", "In", ("x",), False),
        ("zone", "NotIn", ("edge-b",), True),
        ("zone", "NotIn", ("edge-a",), False),
        ("missing", "NotIn", ("x",), True),
        ("zone", "Exists", (), True),
        ("missing", "Exists", (), False),
        ("missing", "DoesNotExist", (), True),
        ("zone", "DoesNotExist", (), False),
        ("generation", "Gt", ("6",), True),
        ("generation", "Gt", ("7",), False),
        ("generation", "Lt", ("8",), True),
        ("generation", "Lt", ("7",), False),
        ("zone", "Gt", ("6",), False),
        ("missing", "Lt", ("6",), False),
        ("generation", "Gt", (), False),
        ("generation", "Gt", ("six",), False),
    ],
)
def test_an_expression_compares_a_label(key: str, operator: Any, values: tuple[str, ...], matches: bool) -> None:
    assert Requirement(key, operator, values).matches("node-1", LABELS) is matches


@pytest.mark.parametrize(
    ("label", "is_number"),
    [("007", True), ("1_000", False), ("9223372036854775807", True), ("9223372036854775808", False)],
)
def test_a_label_is_a_number_where_kubernetes_reads_one(label: str, is_number: bool) -> None:
    assert Requirement("memory", "Gt", ("6",)).matches("n", {"memory": label}) is is_number


def test_a_field_expression_compares_the_name() -> None:
    requirement = Requirement("metadata.name", "In", ("node-1",), field=True)
    assert requirement.matches("node-1", {})
    assert not requirement.matches("node-2", {"metadata.name": "node-1"})


IN_A = Requirement("zone", "In", ("edge-a",))
IN_B = Requirement("zone", "In", ("edge-b",))
NEW = Requirement("generation", "Gt", ("6",))


@pytest.mark.parametrize(
    ("constraints", "objection"),
    [
        (Constraints(), None),
        (Constraints(selector=(("zone", "edge-a"),)), None),
        (Constraints(selector=(("zone", "edge-a"), ("arch", "arm64"))), "do not match the node selector arch=arm64"),
        (Constraints(affinity=((IN_A, NEW),)), None),
        (Constraints(affinity=((IN_B,), (IN_A,))), None),
        (Constraints(affinity=((IN_A, IN_B),)), "do not match the required node affinity"),
        (Constraints(affinity=((),)), "do not match the required node affinity"),
        (Constraints(affinity=()), "do not match the required node affinity"),
    ],
)
def test_selector_and_every_expression_of_one_term_must_match(constraints: Constraints, objection: str | None) -> None:
    assert constraints.objection("node-1", LABELS, ()) == objection


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_hard_taint_is_an_objection_unless_tolerated(effect: str) -> None:
    taint = Taint("gpu", "true", effect)
    limit = " without a time limit" if effect == "NoExecute" else ""
    objection = f"have the taint gpu=true:{effect}, which is not tolerated{limit}"
    assert Constraints().objection("n", {}, (taint,)) == objection
    assert Constraints(tolerations=(Toleration("gpu", "Exists"),)).objection("n", {}, (taint,)) is None


def test_a_soft_taint_is_no_objection() -> None:
    assert Constraints().objection("n", {}, (Taint("gpu", effect="PreferNoSchedule"),)) is None


def test_every_taint_needs_its_toleration() -> None:
    constraints = Constraints(tolerations=(Toleration("a", "Exists"),))
    objection = constraints.objection("n", {}, (Taint("a"), Taint("b")))
    assert objection == "have the taint b=:NoSchedule, which is not tolerated"
