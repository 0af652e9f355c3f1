"""Requests by which a superseded pod leaves the Service of its job, and by which an older Service lets it leave."""

import asyncio
from typing import Any

import pytest

from support.operator_objects import NOW, observed, plan, pod, training_job, window
from tranche.kube.client.client import ApiError
from tranche_operator.execute.executor import CHANGED_SECONDS, ActionExecutor
from tranche_operator.execute.reader import Reader
from tranche_operator.execute.reconciler_cache import ReconcilerCache
from tranche_operator.manifests.pod import service
from tranche_operator.reconcile.actions import Action, CreatePod, UpdateService, WithdrawPod
from tranche_operator.reconcile.observed import ServiceState
from tranche_operator.reconcile.reconcile import reconcile
from tranche_operator.settings import Settings

LOST = pod(0, 1, terminating=True)
JOB = training_job(status={"plan": plan(window(0, 2))})
LABELS = {"tranche.dev/job": "cats", "tranche.dev/role": "worker", "tranche.dev/index": "0", "tranche.dev/attempt": "1"}
UPDATE = UpdateService({"tranche.dev/job": "cats"}, {"tranche.dev/job": "cats", "app.kubernetes.io/managed-by": "x"})


class Server:
    """API server that answers patches with an error or a pod without the label, and creates each pod."""

    def __init__(self, code: int = 200) -> None:
        self.code = code
        self.sent: list[tuple[str, str, Any]] = []

    async def request(self, method: str, path: str, *, body: Any, **_: Any) -> dict[str, Any]:
        self.sent.append((method, path, body))
        if method == "POST":
            return {**body, "metadata": {**body["metadata"], "uid": "new", "resourceVersion": "8"}, "status": {}}
        if self.code != 200:
            raise ApiError(self.code, "Refused", "no")
        metadata = {"name": LOST.name, "namespace": "lab", "uid": LOST.uid, "labels": LABELS, "resourceVersion": "9"}
        return {"metadata": metadata, "spec": {}, "status": {}}


class Recorder:
    """Receiver of events that ignores them."""

    async def emit(self, job: Any, event: Any) -> None:
        pass


def execute(server: Server, *actions: Action, cache: ReconcilerCache | None = None) -> float | None:
    executor = ActionExecutor(
        server,  # type: ignore[arg-type]
        cache or ReconcilerCache(),
        Recorder(),
        Settings(),
        lambda: NOW,
    )
    return asyncio.run(executor.execute(observed(JOB, LOST), list(actions)))


def test_withdrawn_pod_loses_the_label_and_is_known_without_it() -> None:
    server, cache = Server(), ReconcilerCache()
    assert execute(server, WithdrawPod(LOST.name, LOST.uid), cache=cache) is None
    ((method, path, patch),) = server.sent
    assert (method, path) == ("PATCH", "/api/v1/namespaces/lab/pods/cats-worker-0-1")
    assert patch == [
        {"op": "test", "path": "/metadata/uid", "value": LOST.uid},
        {"op": "remove", "path": "/metadata/labels/app.kubernetes.io~1managed-by"},
    ]
    assert [one.selected for one in cache.pods.of("lab/cats")] == [False]


@pytest.mark.parametrize("action", [WithdrawPod(LOST.name, LOST.uid), UPDATE])
@pytest.mark.parametrize(("code", "pause"), [(404, None), (422, CHANGED_SECONDS)])
def test_object_that_is_gone_or_changed_is_no_failure(action: Action, code: int, pause: float | None) -> None:
    assert execute(Server(code), action) == pause


def test_failed_patch_is_raised_after_the_new_pod_is_created() -> None:
    server, actions = Server(500), reconcile(observed(JOB, LOST), Settings(), NOW)
    with pytest.raises(ApiError, match="no"):
        execute(server, *(one for one in actions if isinstance(one, WithdrawPod | CreatePod)))
    assert [method for method, _, _ in server.sent] == ["PATCH", "POST"]


def test_updated_service_is_known_as_the_jobs_own() -> None:
    server, cache = Server(), ReconcilerCache()
    assert execute(server, UPDATE, cache=cache) is None
    ((method, path, patch),) = server.sent
    assert (method, path) == ("PATCH", "/api/v1/namespaces/lab/services/cats")
    assert patch == [
        {"op": "test", "path": "/spec/selector", "value": UPDATE.former},
        {"op": "replace", "path": "/spec/selector", "value": UPDATE.selector},
    ]
    assert cache.services["lab/cats"][0] == JOB.metadata.uid


class Services:
    """API server with the job and its Service."""

    def __init__(self, selector: dict[str, str] | None) -> None:
        self.selector = selector

    async def request(self, method: str, path: str) -> dict[str, Any]:
        if "/trainingjobs/" in path:
            return JOB.model_dump(by_alias=True, mode="json")
        made = service(JOB)
        return {**made, "spec": {**made["spec"], "selector": self.selector or made["spec"]["selector"]}}


@pytest.mark.parametrize(
    ("selector", "state"),
    [
        (None, ServiceState.OWN),
        ({"tranche.dev/job": "cats"}, ServiceState.OUTDATED),
        ({"tranche.dev/job": "cats", "rack": "1"}, ServiceState.OWN),
    ],
    ids=["ours", "of an earlier release", "of its user"],
)
def test_service_of_an_earlier_release_is_recognized(selector: dict[str, str] | None, state: ServiceState) -> None:
    cache = ReconcilerCache()
    cache.pods.sync([("lab/cats", pod(0, 2))], cache.pods.clock())
    cache.services["lab/cats"] = JOB.metadata.uid, float("-inf")
    reader = Reader(Services(selector), cache, lambda: NOW)  # type: ignore[arg-type]
    assert asyncio.run(reader.observe("lab/cats")).service is state
