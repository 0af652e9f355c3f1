"""What the operator says of a job in its status: phase, conditions, counts, times. Pure.

The phases Succeeded and Failed are final. Only the operator's own fields and conditions are made here; status.plan,
status.progress and condition Planned belong to the planner and stay untouched by server-side apply.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from tranche.kube.api import names
from tranche.kube.api.resources import Condition, TrainingJob, TrainingJobStatus
from tranche.kube.timestamps import rfc3339
from tranche.model import parse_chunks

Phase = Literal["Waiting", "Starting", "Running", "Suspended", "Succeeded", "Failed"]
Truth = Literal["True", "False", "Unknown"]
TERMINAL: frozenset[str] = frozenset({"Succeeded", "Failed"})
_PASSING = frozenset({"Waiting", "Starting"})
"""A job that is preempted, or that starts, is in one of these for a moment."""
OWN_CONDITIONS = frozenset(
    {
        names.CONDITION_COMPLETE,
        names.CONDITION_EVICTIONS_REFUSED,
        names.CONDITION_FAILED,
        names.CONDITION_INVALID_TEMPLATE,
        names.CONDITION_PODS_REJECTED,
        names.CONDITION_RUNNING,
        names.CONDITION_STAGING_FAILED,
        names.CONDITION_SUSPENDED,
    }
)


@dataclass(frozen=True, slots=True)
class Tally:
    """The job's pods, counted; a pod is active until it is over."""

    active_workers: int = 0
    running_workers: int = 0
    active_servers: int = 0
    active_chiefs: int = 0
    running_chiefs: int = 0
    started: bool = False
    """Whether a worker has ever run, as far as its pods tell."""
    sites: tuple[str, ...] = ()
    """Where active pods are."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A phase and why."""

    phase: Phase
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition's content, without its times."""

    type: str
    status: Truth
    reason: str
    message: str = ""


def judge(job: TrainingJob, tally: Tally, now: datetime) -> Judgement:
    """The phase that the job is in now; a terminal phase that its status holds stays."""
    if job.status.phase in TERMINAL:
        return _as_before(job.status)
    members, kind = (
        (job.spec.data.chunks, "chunks") if job.spec.data else (job.spec.workers.max_replicas, "members of the gang")
    )
    progress = job.status.progress
    chief_goes_on = job.status.plan is not None and job.status.plan.chief is not None
    if progress is not None and not chief_goes_on and parse_chunks(progress.done).issuperset(range(members)):
        return Judgement("Succeeded", "AllDone", f"all {members} {kind} are done")
    limit = job.spec.run_policy.backoff_limit
    if progress is not None and progress.failures > limit:
        message = f"{progress.failures} pods failed, more than runPolicy.backoffLimit ({limit}) allows"
        return Judgement("Failed", "BackoffLimitExceeded", message)
    deadline = deadline_of(job)
    if deadline is not None and now >= deadline:
        seconds = job.spec.run_policy.active_deadline_seconds
        return Judgement("Failed", "DeadlineExceeded", f"not done {seconds} s after its first pod started")
    if job.spec.suspend and not (tally.active_workers or tally.active_servers or tally.active_chiefs):
        return Judgement("Suspended", "Suspended", "spec.suspend is true")
    if tally.running_workers or tally.running_chiefs:
        return Judgement("Running", "WorkersRun", "")
    if tally.active_workers or tally.active_chiefs:
        return Judgement("Starting", "WorkersStart", "no worker runs yet")
    return Judgement("Waiting", "NoWorkers", "no worker is planned now")


def deadline_of(job: TrainingJob) -> datetime | None:
    """When the job fails if it is not done, as far as it has started and has such a limit."""
    seconds, start = job.spec.run_policy.active_deadline_seconds, job.status.start_time
    return None if seconds is None or start is None else start + timedelta(seconds=seconds)


def new_status(
    job: TrainingJob, tally: Tally, judgement: Judgement, findings: Iterable[Finding], now: datetime
) -> dict[str, Any]:
    """The operator's part of the status as it should be, ready to be applied.

    Args:
        job: As read; times of conditions whose status stays are kept from it.
        tally: Its pods.
        judgement: Its phase.
        findings: Conditions InvalidTemplate and PodsRejected, as far as there is something new to say of them.
        now: Time zone aware.
    """
    status, generation = job.status, job.metadata.generation
    terminal = judgement.phase in TERMINAL
    before = {condition.type: condition for condition in status.conditions if condition.type in OWN_CONDITIONS}
    conditions = {**before}
    for finding in [*_phase_findings(job, judgement, before), *findings]:
        conditions[finding.type] = _condition(finding, before.get(finding.type), generation, now)
    return _document(
        TrainingJobStatus(
            phase=judgement.phase,
            conditions=[conditions[kind] for kind in sorted(conditions)],
            observed_generation=generation,
            active_workers=tally.active_workers,
            active_parameter_servers=tally.active_servers,
            sites=", ".join(tally.sites)[:4096] or None,
            start_time=status.start_time or (now if tally.started else None),
            completion_time=(status.completion_time or now) if terminal else None,
        )
    )


def own_status(status: TrainingJobStatus) -> dict[str, Any]:
    """The operator's part of a status as it was read, in the form of `new_status`, to see whether it differs."""
    own = [condition for condition in status.conditions if condition.type in OWN_CONDITIONS]
    return _document(status.model_copy(update={"conditions": sorted(own, key=lambda condition: condition.type)}))


def may_wait(status: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Whether a status differs from what is written only by what a starting or stopping gang changes with every pod.

    Args:
        status: As from `new_status`.
        before: As from `own_status`.
    """
    passing = before.get("phase") is not None and status["phase"] in _PASSING
    ignored = {"activeWorkers", "activeParameterServers", "sites", *(("phase",) if passing else ())}
    return _without(status, ignored, passing) == _without(before, ignored, passing)


def _without(status: Mapping[str, Any], fields: Collection[str], passing: bool) -> dict[str, Any]:
    kept = {field: value for field, value in status.items() if field not in fields}
    conditions = status.get("conditions", ())
    return kept | {"conditions": [c for c in conditions if not (passing and c["type"] == names.CONDITION_RUNNING)]}


def condition_of(job: TrainingJob, kind: str) -> Condition | None:
    """The condition of this type, if the status has one."""
    return next((condition for condition in job.status.conditions if condition.type == kind), None)


def _as_before(status: TrainingJobStatus) -> Judgement:
    kind = names.CONDITION_COMPLETE if status.phase == "Succeeded" else names.CONDITION_FAILED
    phase: Phase = "Succeeded" if status.phase == "Succeeded" else "Failed"
    condition = next((condition for condition in status.conditions if condition.type == kind), None)
    return Judgement(phase, condition.reason if condition else phase, condition.message if condition else "")


def _phase_findings(job: TrainingJob, judgement: Judgement, before: Mapping[str, Condition]) -> list[Finding]:
    phase, reason, message = judgement.phase, judgement.reason, judgement.message
    running: Truth = "True" if phase == "Running" else "False"
    findings = [Finding(names.CONDITION_RUNNING, running, reason, message)]
    if phase == "Succeeded":
        findings.append(Finding(names.CONDITION_COMPLETE, "True", reason, message))
    elif phase == "Failed":
        findings.append(Finding(names.CONDITION_FAILED, "True", reason, message))
    elif phase == "Suspended":
        findings.append(Finding(names.CONDITION_SUSPENDED, "True", reason, message))
    elif job.spec.suspend:
        findings.append(Finding(names.CONDITION_SUSPENDED, "False", "PodsStopping", "the job's pods are being stopped"))
    if names.CONDITION_SUSPENDED in before and not job.spec.suspend:
        findings.append(Finding(names.CONDITION_SUSPENDED, "False", "Resumed", "spec.suspend is false"))
    return findings


def _condition(finding: Finding, before: Condition | None, generation: int, now: datetime) -> Condition:
    unchanged = before is not None and before.status == finding.status
    return Condition(
        type=finding.type,
        status=finding.status,
        observed_generation=generation,
        last_transition_time=before.last_transition_time if before is not None and unchanged else now,
        reason=finding.reason,
        message=finding.message[:32768],
    )


def _document(status: TrainingJobStatus) -> dict[str, Any]:
    """JSON of the operator's fields; absent ones are left out. Condition times have whole seconds, as metav1.Time."""
    document: dict[str, Any] = {
        "phase": status.phase,
        "conditions": [_condition_document(condition) for condition in status.conditions],
        "observedGeneration": status.observed_generation,
        "activeWorkers": status.active_workers,
        "activeParameterServers": status.active_parameter_servers,
        "sites": status.sites,
        "startTime": _micro_time(status.start_time),
        "completionTime": _micro_time(status.completion_time),
    }
    return {field: value for field, value in document.items() if value is not None}


def _condition_document(condition: Condition) -> dict[str, Any]:
    document = {
        "type": condition.type,
        "status": condition.status,
        "observedGeneration": condition.observed_generation,
        "lastTransitionTime": rfc3339(condition.last_transition_time),
        "reason": condition.reason,
        "message": condition.message,
    }
    return {field: value for field, value in document.items() if value is not None}


def _micro_time(time: datetime | None) -> str | None:
    return None if time is None else rfc3339(time, microseconds=True)
