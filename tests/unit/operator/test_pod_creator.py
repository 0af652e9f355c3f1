"""Answers of the API server to the creation of a planned pod whose name is taken."""

import asyncio
from typing import Any

import pytest

from support.operator_objects import NOW, UID, observed, plan, training_job, window
from tranche.kube.client.errors import ApiError
from tranche_operator.execute.pod_creator import Creation, create_pods
from tranche_operator.reconcile.actions import CreatePod
from tranche_operator.reconcile.reconcile import reconcile
from tranche_operator.settings import Settings

OWN = {"tranche.dev/job": "cats"}


class TakenName:
    """Pods of an API server with a pod of every name."""

    def __init__(self, **metadata: Any) -> None:
        self.found = {"metadata": {"namespace": "lab", "uid": "z", **metadata}, "spec": {}}

    async def request(self, method: str, path: str, **_: Any) -> dict[str, Any]:
        if method == "POST":
            raise ApiError(409, "AlreadyExists", "pod already exists")
        return self.found


def creation(found: TakenName) -> Creation:
    job = training_job(status={"plan": plan(window(0, 1))})
    created = [action for action in reconcile(observed(job), Settings(), NOW) if isinstance(action, CreatePod)]
    assert len(created) == 1
    return asyncio.run(create_pods(found, job, created))  # type: ignore[arg-type]


def owner(uid: str) -> list[dict[str, Any]]:
    return [
        {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "name": "cats", "uid": uid, "controller": True}
    ]


@pytest.mark.parametrize("uid", [UID, "deleted job"])
def test_existing_pod_of_the_job_or_namesake_is_no_refusal(uid: str) -> None:
    made = creation(TakenName(labels=OWN, ownerReferences=owner(uid)))
    assert (made.created, made.refusal, made.error) == ([], None, None)


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"labels": OWN},
        {"ownerReferences": owner(UID)},
        {"ownerReferences": owner("another")},
        {"labels": {"tranche.dev/job": "dogs"}, "ownerReferences": owner(UID)},
    ],
    ids=["plain", "without owner", "without label", "of an unlabelled other", "with label of another"],
)
def test_other_pod_of_the_name_is_a_refusal(metadata: dict[str, Any]) -> None:
    refusal = creation(TakenName(**metadata)).refusal
    assert refusal is not None
    assert refusal.reason == "NameTaken"
