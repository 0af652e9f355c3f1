"""Rules for events about phases, waiting, preemption and templates. Pure."""

from datetime import datetime

from tranche.kube.api import names
from tranche.kube.api.resources import TrainingJob
from tranche.model import without_moments
from tranche_operator.reconcile.actions import EmitEvent, EmitPendingEvent, EvictPod, RequeueAfter
from tranche_operator.reconcile.observed import TemplateVerdict, Wait, is_current, is_open
from tranche_operator.reconcile.status import JobPhase, condition_of


def phase_events(job: TrainingJob, job_phase: JobPhase) -> list[EmitEvent]:
    """Return the events about a change from the phase in the status to the computed one."""
    before, phase = job.status.phase, job_phase.phase
    if before == phase:
        return []
    match phase:
        case "Succeeded":
            return [EmitEvent("Normal", "Completed", job_phase.message)]
        case "Failed":
            return [EmitEvent("Warning", "Failed", job_phase.message)]
        case "Suspended":
            return [EmitEvent("Normal", "Suspended", "all pods have stopped; checkpointed progress is kept")]
        case "Starting" | "Running" if before in (None, "Waiting", "Suspended"):
            if job.status.start_time is None:
                return [EmitEvent("Normal", "Started", "the first workers are starting")]
            return [EmitEvent("Normal", "Resumed", "workers are starting again from checkpointed progress")]
    return []


def wait_events(
    job: TrainingJob, job_phase: JobPhase, wait: Wait, now: datetime
) -> list[EmitPendingEvent | RequeueAfter]:
    """Return an event with the plan's explanation, if it differs from the last one in more than times.

    It is a warning with the reason of condition Planned if that is False, and else has the reason Pending.

    Args:
        job: The job as read.
        job_phase: Its computed phase.
        wait: The last Pending event.
        now: Current time, with a time zone.
    """
    plan = job.status.plan
    if job_phase.phase != "Waiting" or plan is None or not is_current(job) or any(map(is_open, plan.workers)):
        return []
    if not plan.explanation or without_moments(plan.explanation) == without_moments(wait.last_message):
        return []
    if wait.not_before is not None and wait.not_before > now:
        return [RequeueAfter((wait.not_before - now).total_seconds())]
    planned = condition_of(job, names.CONDITION_PLANNED)
    unplannable = planned.reason if planned is not None and planned.status == "False" else ""
    return [EmitPendingEvent(plan.explanation, unplannable)]


def verdict_events(job: TrainingJob, verdict: TemplateVerdict) -> list[EmitEvent]:
    """Return the event about a dry run that the API server rejected, unless the status has the message already."""
    update, before = verdict.update, condition_of(job, verdict.update.type)
    known = before is not None and (before.status, before.message) == (update.status, update.message)
    if update.status == "False" or known:
        return []
    reason = "TemplateRejected" if update.status == "True" else "PodsNotAdmitted"
    return [EmitEvent("Warning", reason, update.message)]


def eviction_event(action: EvictPod) -> EmitEvent:
    """Return the event about an evicted pod: Preempting if it makes way for another job, else Stopping."""
    stops = f"{action.name} stops within {action.grace_seconds} s (grace period)"
    if action.preempted_by:
        return EmitEvent("Normal", "Preempting", f"Preempted by {action.preempted_by}: pod {stops}.", action.name)
    return EmitEvent("Normal", "Stopping", f"Pod {stops}: {action.why}.", action.name)
