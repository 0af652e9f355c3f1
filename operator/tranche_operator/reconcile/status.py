"""The operator's part of a job's status: phase, conditions, counts and times. Pure.

The phases Succeeded and Failed are final. This module computes only the fields and conditions that the operator owns;
status.plan, status.progress and condition Planned belong to the planner, and server-side apply leaves them unchanged.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from tranche.kube.api import names
from tranche.kube.api.condition import find_condition
from tranche.kube.api.resources import AdmittedPods, Condition, TrainingJob, TrainingJobStatus
from tranche.kube.api.timestamp import rfc3339
from tranche.model import parse_chunks

Phase = Literal["Waiting", "Starting", "Running", "Suspended", "Succeeded", "Failed"]
Truth = Literal["True", "False", "Unknown"]
TERMINAL: frozenset[str] = frozenset({"Succeeded", "Failed"})
PASSING = frozenset({"Waiting", "Starting"})
"""Phases that a job passes through for a short time when it starts or is preempted."""
_PRESENT = frozenset({"Starting", "Running"})
"""Phases of a job that has pods."""
_POD_FIELDS = frozenset({"activeWorkers", "activeParameterServers", "firstPodTime", "sites"})
"""Fields that every pod changes."""
_FIRST_FIELDS = frozenset({"phase", "observedGeneration", "admitted", "startTime", "checkpointDirectory"})
"""Further fields of the first status of a job that has its pods. A job with a checkpoint volume has its directory in
the status before it has pods."""
_TROUBLES = {
    names.CONDITION_EVICTIONS_REFUSED: "NoneRefused",
    names.CONDITION_PODS_NOT_STARTING: "Started",
    names.CONDITION_PODS_REJECTED: "NoPodMissing",
    names.CONDITION_STAGING_FAILED: "NoneFailing",
}
"""Conditions about single pods, which say nothing about a job that has succeeded, with their reasons if False."""
OWN_CONDITIONS = frozenset(
    {
        names.CONDITION_COMPLETE,
        names.CONDITION_EVICTIONS_REFUSED,
        names.CONDITION_FAILED,
        names.CONDITION_INVALID_TEMPLATE,
        names.CONDITION_PODS_DO_NOT_STOP,
        names.CONDITION_PODS_NOT_STARTING,
        names.CONDITION_PODS_REJECTED,
        names.CONDITION_RUNNING,
        names.CONDITION_STAGING_FAILED,
        names.CONDITION_SUSPENDED,
    }
)


@dataclass(frozen=True, slots=True)
class PodCounts:
    """Counts of a job's pods; a pod is active until it has ended."""

    active_workers: int = 0
    running_workers: int = 0
    active_servers: int = 0
    active_chiefs: int = 0
    running_chiefs: int = 0
    awaits_count: bool = False
    """Whether all pods that can complete the job have ended, and the planner has not counted all of their ends."""
    any_pod: bool = False
    """Whether any pod that trains, serves or coordinates exists."""
    started: bool = False
    """Whether any of the existing worker pods has ever run."""
    sites: tuple[str, ...] = ()
    """Sites of the active pods."""


@dataclass(frozen=True, slots=True)
class PodTimes:
    """When the operator first saw pods of a job."""

    first_pod: datetime | None = None
    """First pod that is no staging pod."""
    start: datetime | None = None
    """First worker that ran."""


NO_TIMES = PodTimes()


@dataclass(frozen=True, slots=True)
class PhaseUpdate:
    """Value of status.phase, with the reason and the message of its conditions."""

    phase: Phase
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ConditionUpdate:
    """The content of a condition, without its times."""

    type: str
    status: Truth
    reason: str
    message: str = ""


def _all_done(members: int, *, is_gang: bool) -> str:
    if members == 1:
        return "the only member of the gang is done" if is_gang else "the only chunk is done"
    return f"all {members} {'members of the gang' if is_gang else 'chunks'} are done"


def compute_phase(job: TrainingJob, counts: PodCounts, now: datetime) -> PhaseUpdate:
    """Compute the job's phase; a terminal phase in its status is kept."""
    if job.status.phase in TERMINAL:
        return _as_before(job.status)
    members = job.spec.data.chunks if job.spec.data else job.spec.workers.max_replicas
    progress = job.status.progress
    chief_goes_on = job.status.plan is not None and job.status.plan.chief is not None
    if progress is not None and not chief_goes_on and parse_chunks(progress.done).issuperset(range(members)):
        return PhaseUpdate("Succeeded", "AllDone", _all_done(members, is_gang=job.spec.data is None))
    limit = job.spec.run_policy.backoff_limit
    if progress is not None and progress.failures > limit:
        message = f"{progress.failures} pods failed, more than runPolicy.backoffLimit ({limit}) allows"
        return PhaseUpdate("Failed", "BackoffLimitExceeded", message)
    deadline = deadline_of(job)
    if deadline is not None and now >= deadline and not counts.awaits_count:
        seconds = job.spec.run_policy.active_deadline_seconds
        return PhaseUpdate(
            "Failed",
            "DeadlineExceeded",
            f"not done {seconds} s after its first pod was created (runPolicy.activeDeadlineSeconds)",
        )
    if job.spec.suspend and not (counts.active_workers or counts.active_servers or counts.active_chiefs):
        return PhaseUpdate("Suspended", "Suspended", "spec.suspend is true")
    if counts.running_workers or counts.running_chiefs:
        return PhaseUpdate("Running", "WorkersRun", "workers run")
    if counts.active_workers or counts.active_chiefs:
        return PhaseUpdate("Starting", "WorkersStart", "no worker runs yet")
    return PhaseUpdate("Waiting", "NoWorkers", "no worker is planned now")


def deadline_of(job: TrainingJob) -> datetime | None:
    """Return the time at which an unfinished job fails; None if it has had no pod, is suspended or has no deadline.

    It counts from the creation of the first pod, so that it also ends a job whose containers never start. After a
    suspension it counts from the next first pod, as the deadline of a Job of Kubernetes does.
    """
    if job.spec.suspend:
        return None
    seconds, start = job.spec.run_policy.active_deadline_seconds, job.status.first_pod_time
    if not _was_suspended(job):  # an earlier release of the operator wrote only the start time
        known = (start, job.status.start_time)
        start = min((time for time in known if time is not None), default=None)
    return None if seconds is None or start is None else start + timedelta(seconds=seconds)


def _was_suspended(job: TrainingJob) -> bool:
    return find_condition(job.status.conditions, names.CONDITION_SUSPENDED) is not None


def pod_times(job: TrainingJob, counts: PodCounts, job_phase: PhaseUpdate, now: datetime, known: PodTimes) -> PodTimes:
    """Return the times of the first pod and of the start.

    That of the first pod is None while the job is suspended, until it has a pod again.

    Args:
        job: The job as read.
        counts: Counts of its pods.
        job_phase: Its phase.
        now: Current time, with a time zone.
        known: Times of a status that waits to be written.
    """
    status = job.status
    start = status.start_time or known.start or (now if counts.started else None)
    if job_phase.phase == "Suspended":
        return PodTimes(None, start)
    active = counts.active_workers or counts.active_servers or counts.active_chiefs
    has_pod = active if _was_suspended(job) else counts.any_pod  # after a suspension, ended pods may be kept
    return PodTimes(status.first_pod_time or known.first_pod or (now if has_pod else None), start)


def new_status(
    job: TrainingJob,
    counts: PodCounts,
    job_phase: PhaseUpdate,
    updates: Iterable[ConditionUpdate],
    now: datetime,
    times: PodTimes,
    admitted: AdmittedPods | None = None,
    checkpoint_directory: str | None = None,
) -> dict[str, Any]:
    """Compute the operator's part of the status, ready for server-side apply.

    Args:
        job: The job as read. The transition time of a condition whose status does not change is kept.
        counts: Counts of its pods.
        job_phase: Its phase.
        updates: Conditions that change, besides those that follow from the phase.
        now: Current time, with a time zone.
        times: Result of `pod_times`.
        admitted: Result of a new dry run; None keeps the one in the status.
        checkpoint_directory: Directory of the job on its checkpoint volume.
    """
    status, generation = job.status, job.metadata.generation
    terminal = job_phase.phase in TERMINAL
    before = {condition.type: condition for condition in status.conditions if condition.type in OWN_CONDITIONS}
    conditions = {**before}
    for update in [*_phase_updates(job, job_phase, before), *updates]:
        conditions[update.type] = _condition(update, before.get(update.type), generation, now)
    return _document(
        TrainingJobStatus(
            phase=job_phase.phase,
            conditions=[conditions[kind] for kind in sorted(conditions)],
            observed_generation=generation,
            admitted=admitted or status.admitted,
            active_workers=counts.active_workers,
            active_parameter_servers=counts.active_servers,
            sites=", ".join(counts.sites)[:4096] or None,
            first_pod_time=times.first_pod,
            checkpoint_directory=checkpoint_directory or status.checkpoint_directory,
            start_time=times.start,
            completion_time=(status.completion_time or now) if terminal else None,
        )
    )


def own_status(status: TrainingJobStatus) -> dict[str, Any]:
    """Return the operator's part of a status that was read, in the form of `new_status`, for comparison."""
    own = [condition for condition in status.conditions if condition.type in OWN_CONDITIONS]
    return _document(status.model_copy(update={"conditions": sorted(own, key=lambda condition: condition.type)}))


def only_reports(job: TrainingJob, counts: PodCounts, status: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Return whether nothing in the cluster waits for a status.

    That is a status that differs only in what every pod of a starting or stopping gang changes, or that says of a job
    with all of its workers that the API server has admitted them and that they start or run.

    Args:
        job: The job as read.
        counts: Counts of its pods.
        status: Result of `new_status`.
        before: Result of `own_status` for the status that is written.
    """
    fields, conditions = set(_POD_FIELDS), set[str]()
    if before.get("phase") is not None and status["phase"] in PASSING:
        fields.add("phase")
        conditions.add(names.CONDITION_RUNNING)
    # A job that waits for further workers may need the result of the dry run, for which the planner stops other jobs.
    if status["phase"] in _PRESENT and counts.active_workers >= job.spec.workers.max_replicas:
        fields |= _FIRST_FIELDS
        conditions |= {names.CONDITION_RUNNING, *_accepted(status)}
    return _without(status, fields, conditions) == _without(before, fields, conditions)


def _accepted(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield condition InvalidTemplate if it is False."""
    for condition in status["conditions"]:
        if condition["type"] == names.CONDITION_INVALID_TEMPLATE and condition["status"] == "False":
            yield condition["type"]


def _without(status: Mapping[str, Any], fields: Collection[str], conditions: Collection[str]) -> dict[str, Any]:
    kept = {field: value for field, value in status.items() if field not in fields}
    return kept | {"conditions": [one for one in status.get("conditions", ()) if one["type"] not in conditions]}


def condition_of(job: TrainingJob, kind: str) -> Condition | None:
    """Return the condition of this type, or None."""
    return find_condition(job.status.conditions, kind)


def _as_before(status: TrainingJobStatus) -> PhaseUpdate:
    kind = names.CONDITION_COMPLETE if status.phase == "Succeeded" else names.CONDITION_FAILED
    phase: Phase = "Succeeded" if status.phase == "Succeeded" else "Failed"
    condition = find_condition(status.conditions, kind)
    return PhaseUpdate(phase, condition.reason if condition else phase, condition.message if condition else "")


def _phase_updates(job: TrainingJob, job_phase: PhaseUpdate, before: Mapping[str, Condition]) -> list[ConditionUpdate]:
    phase, reason, message = job_phase.phase, job_phase.reason, job_phase.message
    running: Truth = "True" if phase == "Running" else "False"
    updates = [ConditionUpdate(names.CONDITION_RUNNING, running, reason, message)]
    if phase == "Succeeded":
        updates.append(ConditionUpdate(names.CONDITION_COMPLETE, "True", reason, message))
        updates += [
            ConditionUpdate(kind, "False", none, "the job has succeeded")
            for kind, none in _TROUBLES.items()
            if kind in before and before[kind].status == "True"
        ]
    elif phase == "Failed":
        updates.append(ConditionUpdate(names.CONDITION_FAILED, "True", reason, message))
    elif phase == "Suspended":
        updates.append(ConditionUpdate(names.CONDITION_SUSPENDED, "True", reason, message))
    elif job.spec.suspend:
        updates.append(
            ConditionUpdate(names.CONDITION_SUSPENDED, "False", "PodsStopping", "the job's pods are stopping")
        )
    if names.CONDITION_SUSPENDED in before and not job.spec.suspend:
        updates.append(ConditionUpdate(names.CONDITION_SUSPENDED, "False", "Resumed", "spec.suspend is false"))
    return updates


def _condition(update: ConditionUpdate, before: Condition | None, generation: int, now: datetime) -> Condition:
    unchanged = before is not None and before.status == update.status
    return Condition(
        type=update.type,
        status=update.status,
        observed_generation=generation,
        last_transition_time=before.last_transition_time if before is not None and unchanged else now,
        reason=update.reason,
        message=update.message[:32768],
    )


def _document(status: TrainingJobStatus) -> dict[str, Any]:
    """Serialize the operator's fields, without absent ones. Condition times have whole seconds, as metav1.Time."""
    document: dict[str, Any] = {
        "phase": status.phase,
        "conditions": [_condition_document(condition) for condition in status.conditions],
        "observedGeneration": status.observed_generation,
        "admitted": status.admitted.model_dump(by_alias=True) if status.admitted is not None else None,
        "activeWorkers": status.active_workers,
        "activeParameterServers": status.active_parameter_servers,
        "sites": status.sites,
        "firstPodTime": _micro_time(status.first_pod_time),
        "checkpointDirectory": status.checkpoint_directory,
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
