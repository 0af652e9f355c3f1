"""Rules for events about phases, waiting, preemption and templates. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from tranche.kube.api import names
from tranche.kube.api.resources import TrainingJob
from tranche.kube.convert.attempt_history import ended_attempts, next_start
from tranche.model import AttemptRecord, without_moments
from tranche.model.place_counts import places_text
from tranche.model.stop_text import cost_text, preemption_text
from tranche_operator.reconcile.actions import EmitEvent, EmitPendingEvent, EvictPod, RequeueAfter
from tranche_operator.reconcile.observed import PodView, TemplateVerdict, Wait, is_current, is_open
from tranche_operator.reconcile.status import PhaseUpdate, condition_of

_ROLES = {names.ROLE_WORKER: "worker", names.ROLE_SERVER: "parameter server", names.ROLE_CHIEF: "chief"}


def phase_events(job: TrainingJob, job_phase: PhaseUpdate) -> list[EmitEvent]:
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
    job: TrainingJob, job_phase: PhaseUpdate, wait: Wait, now: datetime
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


def eviction_events(evicted: Iterable[EvictPod]) -> list[EmitEvent]:
    """Return the events about evicted pods: Preempting if they make way for another job, else Stopping.

    Pods that stop for one cause are one event, so that it fits into the length of a message.
    """
    groups: dict[tuple[str, str, int], list[EvictPod]] = {}
    for action in evicted:
        groups.setdefault((action.preempted_by, action.why, action.grace_seconds), []).append(action)
    return [_eviction_event(*cause, actions) for cause, actions in groups.items()]


def _eviction_event(preemptor: str, why: str, grace_seconds: int, pods: Sequence[EvictPod]) -> EmitEvent:
    first = pods[0].name
    sites = Counter(pod.site for pod in pods if pod.site)
    where = f" ({places_text(sites)})" if sites else ""
    stop = f"pod {first} stops" if len(pods) == 1 else f"{len(pods)} pods{where} stop"
    stops = f"{stop} within {grace_seconds} s (grace period)"
    if preemptor:
        message = f"{_sentence(preemption_text(preemptor, why))}: {stops}."
        return EmitEvent("Normal", "Preempting", message, first)
    return EmitEvent("Normal", "Stopping", f"{_sentence(stops)}: {why}.", first)


def victim_events(evicted: Iterable[EvictPod], victim: str) -> dict[str, EmitEvent]:
    """Return the events about evicted pods of one job for the jobs that they make way for, by key of the latter.

    Args:
        evicted: The pods of the victim that were evicted.
        victim: Key of the victim.
    """
    by_preemptor: dict[str, list[EvictPod]] = {}
    for action in evicted:
        if action.preempted_by:
            by_preemptor.setdefault(action.preempted_by, []).append(action)
    return {
        key: EmitEvent("Normal", "PreemptedOther", f"Preempted {victim}: {_pods(actions, victim)}.", actions[0].name)
        for key, actions in by_preemptor.items()
    }


def _pods(evicted: Sequence[EvictPod], victim: str) -> str:
    """Count evicted pods of a job by role, such as "2 workers and 1 parameter server"."""
    job = victim.partition("/")[2]
    roles = Counter(one.name.removeprefix(f"{job}-").partition("-")[0] for one in evicted)
    parts = [f"{roles[role]} {name}{'' if roles[role] == 1 else 's'}" for role, name in _ROLES.items() if roles[role]]
    return " and ".join(parts)


def preempted_events(
    job: TrainingJob, counted: Iterable[PodView], reported: Collection[str], now: datetime
) -> list[EmitEvent]:
    """Return events about preempted pods that have ended: by which job, why, and what that cost.

    Only pods that are about to be released are reported, so that an event is not repeated while a pod is kept.

    Args:
        job: The job as read.
        counted: Its pods whose end is in the ledger.
        reported: UIDs of the pods that earlier events have reported, and whose release is deferred.
        now: Current time, with a time zone.
    """
    waiting = (pod for pod in counted if names.FINALIZER_LEDGER in pod.finalizers and pod.uid not in reported)
    unreleased = {pod.attempt: pod for pod in waiting}
    groups: dict[tuple[str, str], list[AttemptRecord]] = {}
    for record in ended_attempts(job.status.progress) if unreleased else ():
        if record.preempted_by and record.attempt in unreleased:
            groups.setdefault((record.preempted_by, record.why), []).append(record)
    resumes = next_start(job, now)
    return [
        _preempted_event(by, why, [unreleased[one.attempt] for one in records], records, resumes)
        for (by, why), records in groups.items()
    ]


def _preempted_event(
    by: str, why: str, pods: Sequence[PodView], records: Sequence[AttemptRecord], resumes: datetime | None
) -> EmitEvent:
    first = pods[0].name
    ended = f"pod {first} has ended" if len(pods) == 1 else f"{len(pods)} pods have ended"
    cost = cost_text(sum(record.lost_seconds for record in records), resumes)
    message = f"{_sentence(preemption_text(by, why))}: {ended}; {cost}."
    return EmitEvent("Normal", "Preempted", message, first, ended=tuple(pod.uid for pod in pods))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
