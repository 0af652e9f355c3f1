"""Condition KubeSchedulerSilent of a Site: whether kube-scheduler decides about none of the waiting pods. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from tranche.kube.api.resources import Condition
from tranche.kube.convert.node_condition import site_condition

CONDITION_SCHEDULER_SILENT = "KubeSchedulerSilent"


def silence_condition(known: Iterable[Condition], now: float, *, silent: bool) -> Mapping[str, Any] | None:
    """Build the condition; None if kube-scheduler responds and always did.

    Args:
        known: Conditions of the Site as read; the transition time is kept while the status does not change.
        now: Seconds since the epoch.
        silent: Whether kube-scheduler does not respond.
    """
    reason, message = "Responds", "kube-scheduler responds"
    if silent:
        reason = "NoDecision"
        message = "kube-scheduler neither binds nor judges the pods that wait for it; preemption pauses on all sites"
    return site_condition(CONDITION_SCHEDULER_SILENT, reason, message, known, now, holds=silent)
