"""Requests by which the operator stops pods."""

import asyncio
from typing import Any

import pytest

from support.operator_objects import NOW, observed, pod
from tranche.kube.client.client import ApiError
from tranche_operator.execute.executor import ActionExecutor
from tranche_operator.execute.reconciler_cache import ReconcilerCache
from tranche_operator.reconcile.actions import Action, DeletePod, EvictPod
from tranche_operator.settings import Settings

RUNS = pod(0, 1)


class PodEndpoint:
    """Pods of an API server that stops each pod as it is asked to."""

    def __init__(self, *pauses: float | None) -> None:
        self.pauses = list(pauses)
        """Delays that the first answers ask for."""
        self.sent: list[tuple[str, str, dict[str, Any]]] = []

    async def request(self, method: str, path: str, *, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.sent.append((method, path.rpartition("/")[2], body))
        if self.pauses:
            raise ApiError(429, "TooManyRequests", "slow down", retry_after=self.pauses.pop(0))
        return {}


def execute(endpoint: PodEndpoint, *actions: Action, budget: bool) -> None:
    executor = ActionExecutor(
        endpoint,  # type: ignore[arg-type]
        ReconcilerCache(),
        None,  # type: ignore[arg-type]
        Settings(),
        lambda: NOW,
        may_have_budget=lambda namespace: budget,
    )
    asyncio.run(executor.execute(observed(None, RUNS), list(actions)))


@pytest.mark.parametrize("action", [EvictPod(RUNS.name, RUNS.uid, 45, "w"), DeletePod(RUNS.name, RUNS.uid, 45)])
@pytest.mark.parametrize("budget", [False, True])
def test_stopped_pod_has_its_grace_period(action: EvictPod | DeletePod, budget: bool) -> None:
    endpoint = PodEndpoint()
    execute(endpoint, action, budget=budget)
    ((_, _, body),) = endpoint.sent
    assert body.get("deleteOptions", body)["gracePeriodSeconds"] == 45


def test_longest_of_the_pauses_that_are_asked_for_counts() -> None:
    stops = [DeletePod(name, "uid", 45) for name in ("a", "b", "c", "d")]
    with pytest.raises(ApiError) as failure:
        execute(PodEndpoint(None, 5.0, 30.0, 1.0), *stops, budget=False)
    assert failure.value.retry_after == 30.0
