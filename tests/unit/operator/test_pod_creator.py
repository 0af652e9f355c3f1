"""Answers of the API server to the creation of a planned pod whose name is taken."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from support.operator_objects import NOW, UID, observed, plan, training_job, window
from tranche.kube.client.errors import ApiError
from tranche_operator.execute.executor import ActionExecutor
from tranche_operator.execute.pod_creator import CREATION_SECONDS, Creation, create_pods
from tranche_operator.execute.reconciler_cache import ReconcilerCache
from tranche_operator.reconcile.actions import CreatePod, EmitEvent
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


def creation(found: "TakenName | Denied") -> Creation:
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


@pytest.mark.parametrize(
    ("finalizers", "reason"),
    [(["x.io/keep"], "because the finalizer x.io/keep keeps it"), ([], "because its containers do not stop")],
)
def test_pod_of_namesake_that_does_not_go_is_a_refusal(finalizers: list[str], reason: str) -> None:
    leaving = {"deletionTimestamp": "2026-11-21T11:00:00Z", "finalizers": finalizers}
    refusal = creation(TakenName(labels=OWN, ownerReferences=owner("deleted job"), **leaving)).refusal
    assert refusal is not None
    assert (refusal.reason, refusal.passing) == ("NameTaken", True)
    assert reason in refusal.message
    leaving["finalizers"] = ["tranche.dev/ledger"]
    assert creation(TakenName(labels=OWN, ownerReferences=owner("deleted job"), **leaving)).refusal is None


class Denied:
    """Pods of an API server that answers each creation with an error."""

    def __init__(self, error: ApiError) -> None:
        self.error = error
        self.timeouts: list[float] = []

    async def request(self, method: str, path: str, *, timeout: float = 30.0, **_: Any) -> dict[str, Any]:
        self.timeouts.append(timeout)
        raise self.error


@pytest.mark.parametrize(
    ("error", "passing"),
    [
        (ApiError(500, "InternalError", 'failed calling webhook "w": context deadline exceeded'), True),
        (ApiError(503, "ServiceUnavailable", 'admission webhook "w" denied the request: starting'), True),
        (ApiError(400, "BadRequest", 'admission webhook "w" denied the request'), False),
        (ApiError(500, "InternalError", "etcdserver: leader changed"), None),
        (ApiError(429, "TooManyRequests", "try again later"), None),
    ],
    ids=["no answer", "denied with 5xx", "denied", "etcd", "busy"],
)
def test_webhook_that_does_not_answer_is_a_refusal(error: ApiError, passing: bool | None) -> None:
    """Otherwise the planner would keep GPUs for pods that cannot be created, for as long as the webhook is down."""
    pods = Denied(error)
    made = creation(pods)
    assert (made.refusal.passing if made.refusal is not None else None) is passing
    assert (made.error is None) is (passing is not None)
    assert pods.timeouts == [CREATION_SECONDS], "longer than a webhook may take"


def test_pods_are_rejected_after_30_s_without_the_webhook() -> None:
    cache, events = ReconcilerCache(), list[EmitEvent]()

    class Events:
        async def emit(self, job: Any, event: EmitEvent) -> None:
            events.append(event)

    job = training_job(status={"plan": plan(window(0, 1))})
    pods = Denied(ApiError(500, "InternalError", 'failed calling webhook "w": context deadline exceeded'))
    for seconds in (0, 10, 29, 31):
        now = NOW + timedelta(seconds=seconds)
        executor = ActionExecutor(pods, cache, Events(), Settings(), lambda now=now: now)  # type: ignore[arg-type, misc]
        created = [action for action in reconcile(observed(job), Settings(), now) if isinstance(action, CreatePod)]
        asyncio.run(executor.execute(observed(job), list(created)))
        assert bool(cache.rejections) is (seconds > 30)
    assert [event.reason for event in events] == ["PodsRejected"]
