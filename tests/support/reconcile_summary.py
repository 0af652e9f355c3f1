"""Short names for the decisions of reconcile."""

from datetime import timedelta
from typing import Any, TypeVar

from support.operator_objects import NOW, plan, training_job
from tranche.kube.api.resources import TrainingJob
from tranche_operator.reconcile.actions import (
    Action,
    CreatePod,
    DeletePod,
    EvictPod,
    ReleasePod,
    RequeueAfter,
    UngatePod,
    WithdrawPod,
)
from tranche_operator.reconcile.observed import Observed
from tranche_operator.reconcile.reconcile import reconcile
from tranche_operator.settings import Settings

SETTINGS = Settings()
T = TypeVar("T")


def decide(seen: Observed, after: float = 0.0) -> list[Action]:
    return reconcile(seen, SETTINGS, NOW + timedelta(seconds=after))


def of_type(kind: type[T], actions: list[Action]) -> list[T]:
    return [action for action in actions if isinstance(action, kind)]


def created(actions: list[Action]) -> list[str]:
    return [action.manifest["metadata"]["name"] for action in of_type(CreatePod, actions)]


def named(kind: type[ReleasePod | EvictPod | DeletePod | UngatePod | WithdrawPod], actions: list[Action]) -> list[str]:
    return [action.name for action in actions if isinstance(action, kind)]


def pauses(actions: list[Action]) -> list[float]:
    return [action.seconds for action in of_type(RequeueAfter, actions)]


def job_with(*windows: dict[str, Any], **more: Any) -> TrainingJob:
    status = {"plan": plan(*windows, servers=more.pop("planned_servers", ())), **more.pop("status", {})}
    return training_job(status=status, **more)


def done_job(policy: str = "Running", since: float = 0.0, phase: str = "Succeeded", **more: Any) -> TrainingJob:
    """Return a job that ended `since` seconds ago."""
    completed = (NOW - timedelta(seconds=since)).isoformat()
    status = {"phase": phase, "completionTime": completed, "plan": plan(*more.pop("windows", ()))}
    policies = {"cleanPodPolicy": policy, **more.pop("run_policy", {})}
    return training_job(status={**status, **more.pop("status", {})}, spec={"runPolicy": policies}, **more)
