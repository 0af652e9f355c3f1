"""Attempts of a job, from the ledger and from the pods that still exist."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from tranche.kube.api.core_types import Pod
from tranche.kube.api.names import ROLE_CHIEF, ROLE_SERVER, ROLE_WORKER, pod_name
from tranche.kube.api.resources import TrainingJob
from tranche.kube.convert.attempt_history import ended_attempts, resume_times
from tranche.kube.convert.pod_identity import Identity, identity, owner_uid
from tranche.kube.convert.pod_outcome import outcome
from tranche.kube.convert.pod_state import exit_code, is_over
from tranche.kube.convert.training_container import training_state
from tranche.model import AttemptRecord
from tranche.model.stop_text import preemption_text, stop_text

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
    """Start of the container; None before it."""
    ended: datetime | None
    outcome: str
    """Succeeded, Preempted, Failed or Lost; for an active attempt Starting, Running or Closing."""
    why: str
    """Reason for the end, if known, with the preemptor and the cost of a preemption."""
    exit_code: int | None
    preempted_by: str = ""
    """Job that preempted it, ``namespace/name``, or a pod of no TrainingJob, ``pod/namespace/name``; empty if none."""
    lost_seconds: float = 0.0
    """Estimated training time that was lost, because its result was not saved."""
    log: list[str] | None = None
    """Last log lines; None if they are not available. For a failed pod that is gone, the lines that the ledger has."""
    no_log: str = ""
    """Reason why there is no log; empty if there is one or none was requested."""


_EARLIEST = datetime.min.replace(tzinfo=UTC)


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
    """In order of their numbers; the ledger keeps the last 64 that ended (`KEPT_ATTEMPTS` of the attempt records)."""
    events: list[JobEvent]
    """Events, oldest first; Kubernetes deletes them after an hour."""
    sites: list[dict[str, Any]] = []
    """Usage at each site: GPU-seconds, chunks, copied bytes."""
    attempt_count: int = 0
    """Number of all attempts, also of those that are not listed."""
    attempt_totals: dict[str, int] = {}
    """Number of all ended attempts by outcome."""
    victims: list[dict[str, Any]] = []
    """Last jobs whose workers were stopped for this one: job, number of workers, time."""
    preempted_workers: int = 0
    """Number of all workers of other jobs that were stopped for this one."""


def events_of(items: Iterable[dict[str, Any]], uid: str) -> list[JobEvent]:
    """Return the events about the object with this UID, oldest first.

    Events have whole seconds: those of one second are in the order in which they were written.
    """
    own = [item for item in items if item.get("involvedObject", {}).get("uid") == uid]
    events = [
        msgspec.convert(
            {
                "at": item.get("lastTimestamp") or item.get("eventTime"),
                "reason": item.get("reason") or "",
                "message": item.get("message") or "",
                "count": item.get("count") or 1,
            },
            JobEvent,
        )
        for item in sorted(own, key=_version)
    ]
    return sorted(events, key=lambda event: event.at or _EARLIEST)


def _version(item: dict[str, Any]) -> int:
    version = str(item.get("metadata", {}).get("resourceVersion", ""))
    return int(version) if version.isdecimal() else 0


def attempts_of(job: TrainingJob, pods: Iterable[Pod], now: datetime) -> list[Attempt]:
    """Return the attempts by number, from the ledger and the pods with the UID of this job.

    Args:
        job: The job.
        pods: Pods with the label of the job.
        now: Current time, with a time zone: only a planned start after it is a time at which the job resumes.
    """
    stops, ledger = _stops(job), ended_attempts(job.status.progress)
    records, resumes = {record.attempt: record for record in ledger}, resume_times(job, ledger, now)
    attempts: list[Attempt] = []
    for pod in pods:
        pod_identity = identity(pod)
        if pod_identity is None or pod_identity.job != job.key or owner_uid(pod.metadata) != job.metadata.uid:
            continue
        if pod_identity.role in (ROLE_WORKER, ROLE_SERVER, ROLE_CHIEF):
            record = records.pop(pod_identity.attempt, None)
            if record is not None:
                attempts.append(_of_counted(pod, pod_identity, record, resumes.get(pod_identity.attempt)))
            else:
                attempts.append(_of_pod(pod, pod_identity, *stops.get(pod_identity.attempt, ("", ""))))
    of_deleted_pods = [
        _of_ledger(job.metadata.name, record, resumes.get(record.attempt)) for record in records.values()
    ]
    return sorted([*of_deleted_pods, *attempts], key=lambda record: (record.attempt, record.role, record.index))


def _stops(job: TrainingJob) -> dict[int, tuple[str, str]]:
    """Return the preemptors and reasons of closing windows and servers, by attempt."""
    plan = job.status.plan
    if plan is None:
        return {}
    stopped = (entry for entry in plan.entries if entry.preempted_by or entry.why)
    return {entry.attempt: (entry.preempted_by or "", entry.why or "") for entry in stopped}


def _of_ledger(job: str, record: AttemptRecord, resumes: datetime | None) -> Attempt:
    return Attempt(
        attempt=record.attempt,
        role=record.role,
        index=record.index,
        pod=pod_name(job, record.role, record.index, record.attempt),
        node=record.node,
        started=datetime.fromtimestamp(record.started, UTC) if record.started is not None else None,
        ended=datetime.fromtimestamp(record.ended, UTC) if record.ended is not None else None,
        outcome=record.reason,
        why=_stopped(record, resumes) or _REASONS.get(record.reason, ""),
        exit_code=record.exit_code,
        preempted_by=record.preempted_by,
        lost_seconds=record.lost_seconds,
        log=record.log.splitlines() or None,
    )


def _stopped(record: AttemptRecord, resumes: datetime | None) -> str:
    if record.ended is None and record.preempted_by:  # written by a version that did not record the cost
        return preemption_text(record.preempted_by, record.why)
    return stop_text(record.preempted_by, record.why, record.lost_seconds, resumes)


def _of_counted(pod: Pod, pod_identity: Identity, record: AttemptRecord, resumes: datetime | None) -> Attempt:
    """Return an ended attempt whose pod still exists: the times are those of its container."""
    counted, of_pod = _of_ledger(pod_identity.job.partition("/")[2], record, resumes), _of_pod(pod, pod_identity)
    return msgspec.structs.replace(
        counted,
        node=of_pod.node or counted.node,
        started=of_pod.started or counted.started,
        ended=of_pod.ended or counted.ended,
        why=_stopped(record, resumes) or _why(pod, record.reason),
    )


def _of_pod(pod: Pod, pod_identity: Identity, closing_for: str = "", why: str = "") -> Attempt:
    """Return an attempt that is not counted; `closing_for` and `why` are those of its window or server."""
    state, result = training_state(pod), _outcome(pod)
    cause = preemption_text(closing_for, why) if closing_for else why
    ended, running = state.terminated, state.running
    return Attempt(
        attempt=pod_identity.attempt,
        role=pod_identity.role,
        index=pod_identity.index,
        pod=pod.metadata.name,
        node=pod.spec.node_name,
        started=ended.started_at if ended else running.started_at if running else None,
        ended=ended.finished_at if ended else None,
        outcome=result,
        why=cause or (_why(pod, result) if is_over(pod) else ""),
        exit_code=exit_code(pod),
        preempted_by=closing_for,
    )


def _outcome(pod: Pod) -> str:
    if is_over(pod):
        return outcome(pod)
    if pod.metadata.deletion_timestamp is not None:
        return "Closing"
    return "Running" if pod.status.phase == "Running" else "Starting"


def _why(pod: Pod, result: str) -> str:
    if result == "Succeeded":
        return ""
    ended = training_state(pod).terminated
    container_reason = ended.reason if ended is not None and ended.reason not in ("Completed", "Error") else ""
    refused = f"{pod.status.reason}: {pod.status.message}".strip(": ")
    return refused or _REASONS.get(result) or container_reason or "the container failed"
