"""Attempts of a job, from the ledger and from the pods that still exist."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from tranche.kube.api.core_types import Pod
from tranche.kube.api.names import ROLE_CHIEF, ROLE_SERVER, ROLE_WORKER, pod_name
from tranche.kube.api.resources import EndedAttempt, TrainingJob
from tranche.kube.convert.pod_identity import Identity, identity, owner_uid
from tranche.kube.convert.pod_outcome import outcome
from tranche.kube.convert.pods_and_nodes import exit_code, is_over, trainer

_REASONS = {
    "Preempted": "stopped by the plan: the capacity or the specification changed",
    "NotStarted": "stopped before its container started",
    "Lost": "the pod or its node is gone",
    "Refused": "refused by the node before any container started",
    "Succeeded": "",
    "Failed": "",
}


class Attempt(msgspec.Struct, frozen=True, rename="camel"):
    """One attempt (pod) of a job."""

    attempt: int
    role: str
    """Role: worker, ps or chief."""
    index: int
    pod: str
    node: str
    """Node; empty before the pod is bound."""
    started: datetime | None
    """Start of the container; None before it, or if the pod no longer exists."""
    ended: datetime | None
    outcome: str
    """Succeeded, Preempted, Failed or Lost; for an active attempt Starting, Running or Closing."""
    why: str
    """Reason for the end, if known."""
    exit_code: int | None
    preempted_by: str = ""
    """Job that preempted it, ``namespace/name``, or a pod of no TrainingJob, ``pod/namespace/name``; empty if none."""
    log: list[str] | None = None
    """Last log lines; None if they are not available."""
    no_log: str = ""
    """Reason why there is no log; empty if there is one or none was requested."""


class JobEvent(msgspec.Struct, frozen=True, rename="camel"):
    """Kubernetes event of tranche for the job."""

    at: datetime | None
    reason: str
    message: str
    count: int = 1


class History(msgspec.Struct, frozen=True, rename="camel"):
    """Attempts, events and site usage of a job."""

    namespace: str
    name: str
    phase: str
    attempts: list[Attempt]
    """In order of their numbers; the ledger keeps the last 5 that ended (`KEPT_RECORDS` of the progress ledger)."""
    events: list[JobEvent]
    """Events, oldest first; Kubernetes deletes them after an hour."""
    sites: list[dict[str, Any]] = []
    """Usage at each site: GPU-seconds, chunks, copied bytes."""


def attempts_of(job: TrainingJob, pods: Iterable[Pod]) -> list[Attempt]:
    """Return the attempts by number, from the ledger and the pods with the UID of this job."""
    ledger = job.status.progress.attempts if job.status.progress else []
    closing = _preemptors(job)
    gone = {one.attempt: _of_ledger(job.metadata.name, one) for one in ledger}
    found: list[Attempt] = []
    for pod in pods:
        who = identity(pod)
        if who is None or who.job != job.key or owner_uid(pod.metadata) != job.metadata.uid:
            continue
        if who.role in (ROLE_WORKER, ROLE_SERVER, ROLE_CHIEF):
            found.append(_of_pod(pod, who, gone.pop(who.attempt, None), closing.get(who.attempt, "")))
    return sorted([*gone.values(), *found], key=lambda one: (one.attempt, one.role, one.index))


def _preemptors(job: TrainingJob) -> dict[int, str]:
    """Preemptors of closing windows and servers, by attempt."""
    plan = job.status.plan
    if plan is None:
        return {}
    planned = (*plan.workers, *plan.parameter_servers, *([plan.chief] if plan.chief else ()))
    return {one.attempt: one.preempted_by for one in planned if one.preempted_by}


def _preempted(by: str) -> str:
    return f"preempted by {by}" if by else ""


def _of_ledger(job: str, one: EndedAttempt) -> Attempt:
    return Attempt(
        attempt=one.attempt,
        role=one.role,
        index=one.index,
        pod=pod_name(job, one.role, one.index, one.attempt),
        node=one.node,
        started=None,
        ended=None,
        outcome=one.reason,
        why=_preempted(one.preempted_by or "") or _REASONS.get(one.reason, ""),
        exit_code=one.exit_code,
        preempted_by=one.preempted_by or "",
    )


def _of_pod(pod: Pod, who: Identity, counted: Attempt | None, closing_for: str) -> Attempt:
    state = trainer(pod)
    by = counted.preempted_by if counted else closing_for
    ended, running = state.terminated, state.running
    result = counted.outcome if counted else _outcome(pod)
    return Attempt(
        attempt=who.attempt,
        role=who.role,
        index=who.index,
        pod=pod.metadata.name,
        node=pod.spec.node_name,
        started=ended.started_at if ended else running.started_at if running else None,
        ended=ended.finished_at if ended else None,
        outcome=result,
        why=_preempted(by) or (_why(pod, result, ended.reason if ended else "") if is_over(pod) or counted else ""),
        exit_code=counted.exit_code if counted else exit_code(pod),
        preempted_by=by,
    )


def _outcome(pod: Pod) -> str:
    if is_over(pod):
        return outcome(pod)
    if pod.metadata.deletion_timestamp is not None:
        return "Closing"
    return "Running" if pod.status.phase == "Running" else "Starting"


def _why(pod: Pod, result: str, container: str) -> str:
    if result == "Succeeded":
        return ""
    refused = f"{pod.status.reason}: {pod.status.message}".strip(": ")
    said = container if container not in ("", "Completed", "Error") else ""
    return refused or _REASONS.get(result) or said or "the container failed"
