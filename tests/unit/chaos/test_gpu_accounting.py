"""The checks of a chaos round find windows on GPUs that others hold, in histories made by hand.

The node has two GPUs.
"""

import pytest

from chaos.checks.history import PODS, check
from support.history_builder import History

BEGIN, SOON, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:00:05Z", "2026-01-01T00:01:00Z"
HELD = "of whose 2 GPUs others hold"


@pytest.fixture
def history() -> History:
    made = History()
    resources = {"limits": {"nvidia.com/gpu": "1"}}
    made.spec["workers"]["template"] = {"spec": {"containers": [{"name": "t", "resources": resources}]}}
    return made


def stranger(history: History, gpus: int, labels: dict[str, str] | None = None) -> None:
    resources = {"requests": {"nvidia.com/gpu": str(gpus)}}
    meta = {"name": "stranger", "namespace": "default", "uid": "s", "labels": labels or {}}
    spec = {"nodeName": "n", "containers": [{"name": "c", "resources": resources}]}
    thing = {"metadata": {**meta, "managedFields": [{"time": BEGIN}]}, "spec": spec, "status": {"phase": "Running"}}
    history.write(PODS, "default/stranger", thing)


@pytest.mark.parametrize("labels", [{}, {"tranche.dev/job": "x"}])
def test_window_on_gpus_of_foreign_pod_is_found(history: History, labels: dict[str, str]) -> None:
    stranger(history, 2, labels)
    history.job((1, [0]), revision=2, time=LATER)
    (found,) = check(history.changes)
    assert "opens attempt 1 on n" in found
    assert HELD in found


def test_window_beside_foreign_pod_is_in_order(history: History) -> None:
    stranger(history, 1)
    history.job((1, [0]), revision=2, time=LATER)
    assert check(history.changes) == []


def test_foreign_pod_counts_only_after_a_while(history: History) -> None:
    stranger(history, 2)
    history.job((1, [0]), revision=2, time=SOON)
    assert check(history.changes) == []


def test_pod_that_does_not_stop_holds_its_gpus(history: History) -> None:
    history.job((1, [0]), revision=2, time=BEGIN)
    history.pod(1, "0", gpus=2, time=BEGIN)
    history.job((1, [0]), revision=3, state="Closing", time=BEGIN)
    history.pod(1, "0", gpus=2, deleted=SOON, time=BEGIN)
    history.job((1, [0]), revision=4, time=SOON)
    assert check(history.changes) == []
    history.job((2, [0]), revision=5, time=LATER)
    assert HELD in check(history.changes)[0]


def test_pod_that_no_plan_has_holds_its_gpus(history: History) -> None:
    history.job((1, [0]), revision=2, time=BEGIN)
    history.pod(1, "0", gpus=2, time=BEGIN)
    history.job(revision=3, time=BEGIN)
    history.job((2, [0]), revision=4, time=LATER)
    assert HELD in check(history.changes)[0]
