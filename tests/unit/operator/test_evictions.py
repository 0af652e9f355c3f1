"""Requests by which the operator stops pods."""

import asyncio
from typing import Any

import pytest

from support.operator_objects import NOW, observed, pod, training_job
from tranche.kube.api.resources import TrainingJob
from tranche.kube.client.client import ApiError
from tranche_operator.execute.executor import SEVERAL_BUDGETS, ActionExecutor
from tranche_operator.execute.reconciler_cache import ReconcilerCache
from tranche_operator.reconcile.actions import Action, DeletePod, EmitEvent, EvictPod
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


class BudgetedPod(PodEndpoint):
    """A pod that two disruption budgets select."""

    async def request(self, method: str, path: str, *, body: dict[str, Any], **more: Any) -> dict[str, Any]:
        await super().request(method, path, body=body, **more)
        if path.endswith("/eviction"):
            raise ApiError(500, "InternalError", f"This pod has {SEVERAL_BUDGETS}, which the eviction subresource ...")
        return {}


class Events:
    """Receiver of events."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    async def emit(self, job: TrainingJob, event: EmitEvent) -> None:
        self.reasons.append(event.reason)


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


def test_victim_with_two_budgets_outlasts_a_change_of_leaders() -> None:
    endpoint, cache, events = BudgetedPod(), ReconcilerCache(), Events()
    seen, attempts = observed(training_job(), RUNS), [NOW]
    executor = ActionExecutor(endpoint, cache, events, Settings(), lambda: attempts[-1])  # type: ignore[arg-type]
    stop = EvictPod(RUNS.name, RUNS.uid, 45, "", preempted_by="lab/dogs")
    asyncio.run(executor.execute(seen, [stop]))
    while not any(method == "DELETE" for method, _, _ in endpoint.sent):
        attempts.append(cache.refusals[seen.key][RUNS.name].until)
        asyncio.run(executor.execute(seen, [stop]))
    assert cache.refusals[seen.key][RUNS.name].reason == "SeveralBudgets"
    assert [(at - NOW).total_seconds() for at in attempts] == [0, 5, 15, 35, 75]
    assert events.reasons == [*4 * ["EvictionRefused"], "BudgetsBypassed", "Preempting"]
    assert endpoint.sent[-1][2]["gracePeriodSeconds"] == 45
