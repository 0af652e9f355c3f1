"""Condition PodsNotStarting and its events: pods with a node whose containers do not start. Pure.

The planner stops such a pod after a time that depends on the reason (`tranche.live.settings`).
"""

from collections.abc import Collection, Iterable
from datetime import datetime

from tranche.kube.api import names
from tranche.kube.api.resources import TrainingJob
from tranche.kube.convert.container_start import StartDelay, StartProblem
from tranche_operator.reconcile.actions import EmitEvent, RequeueAfter
from tranche_operator.reconcile.observed import PodView
from tranche_operator.reconcile.status import ConditionUpdate, condition_of
from tranche_operator.settings import Settings

CONFIGURATION_ERROR = "CreateContainerConfigError"
"""Reason of the kubelet whose message names a missing object or key; retries repeat it until the object exists."""


def updates(
    job: TrainingJob, own: Collection[PodView], settings: Settings, now: datetime
) -> tuple[list[ConditionUpdate], list[RequeueAfter]]:
    """Update condition PodsNotStarting: True while containers do not start, False when a pod runs again.

    A reason that the kubelet reports counts at once. A container without a reason, such as one that waits for a volume,
    counts after `Settings.start_delay_seconds`.
    """
    pods = sorted((pod for pod in own if not (pod.over or pod.terminating)), key=lambda pod: pod.name)
    delayed = [(pod, pod.delay) for pod in pods if pod.delay is not None]
    requeues = []
    for pod in pods:
        if pod.delay is not None or pod.phase != "Pending":
            continue
        waited = (now - pod.creating_since).total_seconds() if pod.creating_since is not None else 0.0
        if waited >= settings.start_delay_seconds:
            message = "; ".join(part for part in (pod.creating, "see the events of the pod") if part)
            delayed.append((pod, StartDelay(StartProblem.CREATION, "ContainerCreating", message)))
        else:
            requeues.append(RequeueAfter(settings.start_delay_seconds - max(0.0, waited)))
    before = condition_of(job, names.CONDITION_PODS_NOT_STARTING)
    holds = before is not None and before.status == "True"
    if delayed:
        update = _describe(delayed)
        if before is not None and holds and before.reason == update.reason and _is_valid(before.message, own, delayed):
            update = ConditionUpdate(update.type, update.status, update.reason, before.message)
        return [update], requeues
    if holds and any(pod.phase == "Running" for pod in pods):
        return [ConditionUpdate(names.CONDITION_PODS_NOT_STARTING, "False", "Started", "pods start")], requeues
    return [], requeues


def events(job: TrainingJob, found: Iterable[ConditionUpdate]) -> list[EmitEvent]:
    """Return the events about condition PodsNotStarting that becomes True or gets another reason or message."""
    before = condition_of(job, names.CONDITION_PODS_NOT_STARTING)
    known = (before.reason, before.message) if before is not None and before.status == "True" else None
    return [
        EmitEvent("Warning", names.CONDITION_PODS_NOT_STARTING, one.message)
        for one in found
        if one.type == names.CONDITION_PODS_NOT_STARTING and one.status == "True" and (one.reason, one.message) != known
    ]


def _is_valid(message: str, own: Iterable[PodView], delayed: Iterable[tuple[PodView, StartDelay]]) -> bool:
    """Return whether an earlier message still holds: its pod exists, does not run, and has no other known problem.

    The messages of retries alternate, and a status for each would be one every few seconds.
    """
    pod = next((pod for pod in own if message.startswith(f"{pod.name}: ")), None)
    if pod is None or pod.over or pod.phase == "Running":
        return False
    delay = next((delay for one, delay in delayed if one is pod), None)
    return delay is None or delay.reason != CONFIGURATION_ERROR or delay.text in message


def _describe(delayed: list[tuple[PodView, StartDelay]]) -> ConditionUpdate:
    pod, delay = delayed[0]
    others = f" ({len(delayed) - 1} more pods do not start)" if len(delayed) > 1 else ""
    message = f"{pod.name}: {delay.text}{others}"
    return ConditionUpdate(names.CONDITION_PODS_NOT_STARTING, "True", delay.kind.value, message)
