"""Pods that still hold their resources after their grace period, condition PodsDoNotStop. Pure.

Only a kubelet confirms that a pod has stopped. A driver that hangs, a volume that cannot be unmounted, or a node that
is gone keep a pod in Terminating for as long as they last.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from tranche.kube.api import names
from tranche.kube.api.resources import TrainingJob
from tranche_operator.reconcile.actions import Action, EmitEvent, RequeueAfter
from tranche_operator.reconcile.observed import PodView
from tranche_operator.reconcile.status import ConditionUpdate, condition_of

SLACK = timedelta(seconds=15)
"""Time after the grace period in which a kubelet removes a pod."""
MAX_NAMED = 10
"""Number of pods that the condition names."""


def is_stuck(pod: PodView, now: datetime) -> bool:
    """Return whether the pod should have stopped by now."""
    return pod.ends_by is not None and not pod.over and now >= pod.ends_by + SLACK


def count(pods: Iterable[PodView], now: datetime) -> int:
    """Return the number of pods that do not stop."""
    return sum(is_stuck(pod, now) for pod in pods)


def updates(job: TrainingJob, pods: Iterable[PodView], now: datetime) -> list[ConditionUpdate]:
    """Update the condition: True while a pod does not stop, False when none is left."""
    stuck = sorted((pod for pod in pods if is_stuck(pod, now)), key=lambda pod: pod.name)
    if stuck:
        places = [f"{pod.name} on node {pod.node}" for pod in stuck[:MAX_NAMED]]
        more = f", and {len(stuck) - MAX_NAMED} more" if len(stuck) > MAX_NAMED else ""
        message = f"these pods do not stop, and hold their resources: {', '.join(places)}{more}"
        return [ConditionUpdate(names.CONDITION_PODS_DO_NOT_STOP, "True", "Terminating", message)]
    before = condition_of(job, names.CONDITION_PODS_DO_NOT_STOP)
    if before is not None and before.status == "True":
        return [ConditionUpdate(names.CONDITION_PODS_DO_NOT_STOP, "False", "Stopped", "all pods have stopped")]
    return []


def actions(job: TrainingJob, pods: Iterable[PodView], found: Iterable[ConditionUpdate], now: datetime) -> list[Action]:
    """Return the event about pods that do not stop, and the time at which terminating pods are looked at again."""
    before = condition_of(job, names.CONDITION_PODS_DO_NOT_STOP)
    known = before.message if before is not None and before.status == "True" else ""
    events: list[Action] = [
        EmitEvent("Warning", names.CONDITION_PODS_DO_NOT_STOP, f"{one.message[0].upper()}{one.message[1:]}.")
        for one in found
        if one.status == "True" and one.message != known
    ]
    due = [pod.ends_by + SLACK for pod in pods if pod.ends_by is not None and not pod.over]
    return events + [RequeueAfter((at - now).total_seconds()) for at in due if at > now]
