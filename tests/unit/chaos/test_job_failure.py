"""The checks of a chaos round find failures that are counted against the wrong job, in histories made by hand."""

from typing import Any

import pytest

from chaos.checks.history import check
from support.history_builder import History


@pytest.fixture
def history() -> History:
    made = History()
    made.job((1, [0]), revision=2)
    made.pod(1, "0")
    return made


def test_failure_of_own_container_counts_once(history: History) -> None:
    history.pod(1, "0", phase="Failed", code=1, reason="Error", message="{}")
    history.job(revision=3, failures=1)
    assert check(history.changes) == []
    history.job(revision=4, failures=2)
    assert "has 2 failures, and 1 of its pods failed by themselves" in check(history.changes)[0]


@pytest.mark.parametrize(
    "end",
    [
        {"code": 143, "reason": "Error", "deleted": "2026-01-01T00:00:00Z"},
        {"code": 255, "reason": "Unknown"},
        {"code": 137, "reason": "ContainerStatusUnknown"},
        {"code": 0},
    ],
)
def test_end_by_others_that_counts_as_failure_is_found(history: History, end: dict[str, Any]) -> None:
    history.pod(1, "0", phase="Failed", message="{}", **end)
    history.job(revision=3, failures=1)
    assert "has 1 failures, and 0 of its pods failed by themselves" in check(history.changes)[0]


def test_failure_without_any_pod_is_found() -> None:
    history = History()
    history.job(failures=1, revision=2)
    assert "has 1 failures" in check(history.changes)[0]
