"""Condition NodesExcluded of a Site."""

from datetime import UTC, datetime

from tranche.kube.api.resources import Condition
from tranche.kube.convert.node_condition import LISTED, ExcludedNode, excluded_condition

NOW = datetime(2026, 11, 23, 10, tzinfo=UTC)
BAD = ExcludedNode("bad", NOW.timestamp() + 300, "UnexpectedAdmissionError: no healthy devices")


def known(status: str) -> Condition:
    earlier = datetime(2026, 11, 23, 9, tzinfo=UTC)
    return Condition(type="NodesExcluded", status=status, last_transition_time=earlier, reason="R")  # type: ignore[arg-type]


def test_condition_names_node_time_and_message_of_the_kubelet() -> None:
    found = excluded_condition([BAD], [], NOW.timestamp())
    assert found is not None
    assert found["status"] == "True"
    assert found["message"] == "bad until 2026-11-23T10:05:00Z: UnexpectedAdmissionError: no healthy devices"
    assert found["lastTransitionTime"] == "2026-11-23T10:00:00Z"


def test_transition_time_is_kept_while_the_status_is_the_same() -> None:
    found = excluded_condition([BAD], [known("True")], NOW.timestamp())
    assert found is not None
    assert found["lastTransitionTime"] == "2026-11-23T09:00:00Z"


def test_condition_becomes_false_when_no_node_is_excluded() -> None:
    found = excluded_condition([], [known("True")], NOW.timestamp())
    assert found is not None
    assert (found["status"], found["lastTransitionTime"]) == ("False", "2026-11-23T10:00:00Z")


def test_site_that_never_had_an_excluded_node_has_no_condition() -> None:
    assert excluded_condition([], [], NOW.timestamp()) is None


def test_message_is_bounded() -> None:
    found = excluded_condition([BAD._replace(name=f"n{i}") for i in range(5000)], [], NOW.timestamp())
    assert found is not None
    assert found["message"].endswith(f"and {5000 - LISTED} more")
    assert len(found["message"]) < 32768
