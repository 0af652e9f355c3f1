"""Views of the API server's pods for reconcile."""

import json
from typing import Any

import pytest

from support.operator_objects import NOW, observed, plan, training_job
from tranche_operator.reconcile.actions import EvictPod
from tranche_operator.reconcile.observed import PodView
from tranche_operator.reconcile.reconcile import reconcile
from tranche_operator.settings import Settings
from tranche_operator.watch.pod_decoder import read_pods, view

LABELS = {
    "tranche.dev/job": "cats",
    "tranche.dev/role": "worker",
    "tranche.dev/index": "0",
    "tranche.dev/attempt": "3",
    "app.kubernetes.io/managed-by": "tranche",
}
OWNER = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "name": "cats", "uid": "u1", "controller": True}


def raw_pod(**changes: Any) -> dict[str, Any]:
    metadata = {
        "name": "cats-worker-0-3",
        "namespace": "lab",
        "uid": "p1",
        "labels": LABELS,
        "annotations": {"tranche.dev/plan": "2.17"},
        "finalizers": ["tranche.dev/ledger"],
        "ownerReferences": [OWNER],
        **changes.pop("metadata", {}),
    }
    spec = {"terminationGracePeriodSeconds": 45, "nodeName": "n1", **changes.pop("spec", {})}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running", **changes.pop("status", {})}}


def read(pod: dict[str, Any]) -> PodView:
    (found,) = read_pods(json.dumps({"metadata": {}, "items": [pod]}).encode()).items
    return view(found)


def test_an_ordinary_pod() -> None:
    assert read(raw_pod(spec={"schedulingGates": [{"name": "other"}, {"name": "tranche.dev/gang"}]})) == PodView(
        name="cats-worker-0-3",
        uid="p1",
        owner="u1",
        role="worker",
        attempt=3,
        phase="Running",
        over=False,
        terminating=False,
        finalizers=("tranche.dev/ledger",),
        gates=("other", "tranche.dev/gang"),
        grace_seconds=45,
    )


@pytest.mark.parametrize(("template", "seconds"), [(0, 1), (1, 1), (None, 30)])
def test_grace_period_is_never_zero(template: int | None, seconds: int) -> None:
    assert read(raw_pod(spec={"terminationGracePeriodSeconds": template})).grace_seconds == seconds


@pytest.mark.parametrize(
    "owner",
    [
        {**OWNER, "controller": False},
        {**OWNER, "kind": "Job"},
        {**OWNER, "apiVersion": "kubeflow.org/v1"},
        {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "uid": "u1"},
    ],
)
def test_only_a_training_job_that_controls_the_pod_owns_it(owner: dict[str, Any]) -> None:
    assert read(raw_pod(metadata={"ownerReferences": [owner]})).owner is None


@pytest.mark.parametrize(
    ("changes", "over", "terminating"),
    [
        ({}, False, False),
        ({"status": {"phase": "Failed"}}, True, False),
        ({"metadata": {"deletionTimestamp": "2026-11-21T12:00:00Z", "deletionGracePeriodSeconds": 30}}, False, True),
        ({"metadata": {"deletionTimestamp": "2026-11-21T12:00:00Z", "deletionGracePeriodSeconds": 0}}, True, True),
        ({"metadata": {"deletionTimestamp": "2026-11-21T12:00:00Z"}, "spec": {"nodeName": ""}}, True, True),
    ],
)
def test_when_a_pod_is_over(changes: dict[str, Any], over: bool, terminating: bool) -> None:
    found = read(raw_pod(**changes))
    assert (found.over, found.terminating) == (over, terminating)


@pytest.mark.parametrize(("statuses", "sidecars"), [("initContainerStatuses", False), ("containerStatuses", True)])
def test_native_sidecar_is_left_to_the_kubelet(statuses: str, sidecars: bool) -> None:
    """A deletion would take the pod's log away, and the kubelet stops such containers by itself."""
    ended = {"name": "main", "state": {"terminated": {"exitCode": 0}}}
    runs = {"name": "proxy", "state": {"running": {}}}
    status: dict[str, Any] = {"phase": "Running", "containerStatuses": [ended]}
    status[statuses] = [*status.get(statuses, ()), runs]
    found = read(raw_pod(status=status, spec={"containers": [{"name": "main"}]}))
    assert found.trained
    assert found.sidecars is sidecars


@pytest.mark.parametrize(("grace", "lingers"), [(7, False), (8, True), (0, False), (None, False)])
def test_pod_lingers_if_deleted_with_more_than_its_grace(grace: int | None, lingers: bool) -> None:
    deleted = {"deletionTimestamp": "2026-11-21T12:00:00Z", "deletionGracePeriodSeconds": grace}
    assert read(raw_pod(metadata=deleted, spec={"terminationGracePeriodSeconds": 7})).lingers is lingers
    assert not read(raw_pod(spec={"terminationGracePeriodSeconds": 7})).lingers


@pytest.mark.parametrize("attempt", ["", "x", "1.5", "²"])
def test_a_label_that_somebody_has_changed_does_no_harm(attempt: str) -> None:
    assert read(raw_pod(metadata={"labels": {**LABELS, "tranche.dev/attempt": attempt}})).attempt == 0


@pytest.mark.parametrize("text", ["2.17", "999999999.1", "x"])
def test_plan_annotation_does_not_protect_a_pod(text: str) -> None:
    kept = read(raw_pod(metadata={"annotations": {"tranche.dev/plan": text}}))
    actions = reconcile(observed(training_job(uid="u1", status={"plan": plan()}), kept), Settings(), NOW)
    assert [action.name for action in actions if isinstance(action, EvictPod)] == ["cats-worker-0-3"]


def test_a_page_says_where_the_next_one_begins() -> None:
    assert read_pods(b'{"metadata": {"continue": "abc"}, "items": []}').metadata.next_page == "abc"
