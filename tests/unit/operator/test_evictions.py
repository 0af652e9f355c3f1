"""Requests by which the operator stops pods."""

import asyncio
from typing import Any

import pytest

from support.operator_objects import NOW, observed, pod
from tranche_operator.execute.executor import ActionExecutor
from tranche_operator.execute.reconciler_cache import ReconcilerCache
from tranche_operator.reconcile.actions import DeletePod, EvictPod
from tranche_operator.settings import Settings

RUNS = pod(0, 1)


class PodEndpoint:
    """Pods of an API server that stops each pod as it is asked to."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, dict[str, Any]]] = []

    async def request(self, method: str, path: str, *, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.sent.append((method, path.rpartition("/")[2], body))
        return {}


@pytest.mark.parametrize("action", [EvictPod(RUNS.name, RUNS.uid, 45, "w"), DeletePod(RUNS.name, RUNS.uid, 45)])
@pytest.mark.parametrize("budget", [False, True])
def test_stopped_pod_has_its_grace_period(action: EvictPod | DeletePod, budget: bool) -> None:
    endpoint, cache = PodEndpoint(), ReconcilerCache()
    executor = ActionExecutor(
        endpoint,  # type: ignore[arg-type]
        cache,
        None,  # type: ignore[arg-type]
        Settings(),
        lambda: NOW,
        may_have_budget=lambda namespace: budget,
    )
    asyncio.run(executor.execute(observed(None, RUNS), [action]))
    ((_, _, body),) = endpoint.sent
    assert body.get("deleteOptions", body)["gracePeriodSeconds"] == 45
