"""Answers of the API server to the creation of a planned pod whose name is taken."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from support.operator_objects import NOW, UID, observed, plan, pod, training_job, window
from tranche.kube.api.resources import AdmittedPod, AdmittedPods, AdmittedToleration
from tranche.kube.client.errors import ApiError
from tranche_operator.execute.executor import ActionExecutor
from tranche_operator.execute.pod_creator import CREATION_SECONDS, Creation, create_pods
from tranche_operator.execute.reconciler_cache import ReconcilerCache
from tranche_operator.reconcile.actions import CreatePod, EmitEvent, WriteStatus
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


class Events:
    """Receiver of events."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    async def emit(self, job: Any, event: EmitEvent) -> None:
        self.reasons.append(event.reason)


def test_pods_are_rejected_after_30_s_without_the_webhook() -> None:
    cache, events = ReconcilerCache(), Events()
    job = training_job(status={"plan": plan(window(0, 1))})
    pods = Denied(ApiError(500, "InternalError", 'failed calling webhook "w": context deadline exceeded'))
    for seconds in (0, 10, 29, 31):
        now = NOW + timedelta(seconds=seconds)
        executor = ActionExecutor(pods, cache, events, Settings(), lambda now=now: now)  # type: ignore[arg-type, misc]
        created = [action for action in reconcile(observed(job), Settings(), now) if isinstance(action, CreatePod)]
        asyncio.run(executor.execute(observed(job), list(created)))
        assert bool(cache.rejections) is (seconds > 30)
    assert events.reasons == ["PodsRejected"]


TOLERATED = [{"key": key, "operator": "Exists", "effect": "NoExecute"} for key in ("a", "b")]


class Mutating:
    """Pods of an API server with a webhook that adds labels of nodes."""

    def __init__(self, **labels: str) -> None:
        self.labels = labels

    async def request(self, method: str, path: str, *, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {**body, "spec": {**body["spec"], "nodeSelector": self.labels, "tolerations": TOLERATED[::-1]}}


@pytest.mark.parametrize(("labels", "written"), [({"pool": "gold"}, [{"pool": "gold"}]), ({}, [])])
def test_admission_that_changes_after_the_dry_run_is_reported(labels: dict[str, str], written: list[Any]) -> None:
    """Else a webhook that was installed later would let the planner choose nodes that no pod of the job fits."""
    job = training_job(status={"plan": plan(window(0, 1))})
    before = AdmittedPod(role="worker", tolerations=[AdmittedToleration(**one) for one in TOLERATED])
    status = job.status.model_copy(update={"admitted": AdmittedPods(generation=1, pods=[before])})
    job = job.model_copy(update={"status": status})
    cache = ReconcilerCache()
    executor = ActionExecutor(Mutating(**labels), cache, Events(), Settings(), lambda: NOW)  # type: ignore[arg-type]
    created = [action for action in reconcile(observed(job), Settings(), NOW) if isinstance(action, CreatePod)]
    asyncio.run(executor.execute(observed(job), list(created)))
    later = reconcile(observed(job, pod(0, 1), verdict=cache.verdicts.get("lab/cats")), Settings(), NOW)
    found = [one.status["admitted"]["pods"][0]["nodeSelector"] for one in later if isinstance(one, WriteStatus)]
    assert [one for one in found if one] == written
