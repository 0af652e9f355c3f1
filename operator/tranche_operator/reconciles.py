"""Reconciliation of one job: from the observed state to a list of actions. Pure: no I/O, no clock, no state.

Rules (docs/architecture.md, "The path of a job"): the pods of open windows and servers exist; pods that are closing or
not in the plan are evicted; a pod that has ended keeps the ledger finalizer until the planner has counted it, that is,
until the plan has no entry for it. A plan for another generation of the spec creates and evicts nothing.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from tranche.kube import names
from tranche.kube.resources import PlannedStaging, TrainingJob
from tranche_operator import endings, openings, stagings, transitions
from tranche_operator.actions import Action, CheckTemplate, RequeueAfter, WriteStatus, in_order
from tranche_operator.observations import Observed, PodView
from tranche_operator.plans import Entry, entries_of
from tranche_operator.pods import checked_pods
from tranche_operator.settings import Settings
from tranche_operator.statuses import (
    TERMINAL,
    ConditionUpdate,
    JobPhase,
    PodCounts,
    compute_phase,
    condition_of,
    deadline_of,
    may_wait,
    new_status,
    own_status,
)


def reconcile(observed: Observed, settings: Settings, now: datetime) -> list[Action]:
    """Return the actions that bring the cluster to the state that the plan requires.

    Args:
        observed: The job, its pods and cached results.
        settings: The operator's settings.
        now: Current time, with a time zone.

    Returns:
        Actions in the order of execution; at most one RequeueAfter, at the end.

    Raises:
        ValueError: if the planner's part of the status cannot be decoded.
    """
    job = observed.job
    if job is None or job.metadata.deletion_timestamp is not None:
        return in_order(endings.abandon(observed.pods))
    own = tuple(pod for pod in observed.pods if pod.owner == job.metadata.uid)
    strangers = [pod for pod in observed.pods if pod.owner != job.metadata.uid]
    entries = entries_of(job)
    counts = _count_pods(own, entries)
    job_phase = compute_phase(job, counts, now)
    actions = endings.abandon(strangers)
    updates: list[ConditionUpdate] = []
    if job_phase.phase in TERMINAL:
        actions += endings.finish(job, job_phase.phase, own, entries, settings, now)
    else:
        more, updates = _steer(observed, job, own, entries, settings, now)
        actions += more
    actions += _report(job, counts, job_phase, updates, now)
    actions += transitions.wait_events(job, job_phase, observed.wait, now)
    return _with_one_requeue(in_order(actions))


def _steer(
    observed: Observed,
    job: TrainingJob,
    own: tuple[PodView, ...],
    entries: Mapping[str, Entry],
    settings: Settings,
    now: datetime,
) -> tuple[list[Action], list[ConditionUpdate]]:
    """Return actions and condition updates for a job that has not ended."""
    missing = openings.missing_pods(observed, job, entries)
    bringing = {name: entry for name, entry in missing.items() if isinstance(entry, PlannedStaging)}
    training = {name: entry for name, entry in missing.items() if name not in bringing}
    rejection = openings.standing_rejection(observed.rejection, training)
    refused = openings.standing_rejection(observed.staging_rejection, bringing)
    unwanted = endings.unwanted_pods(job, own, entries)
    actions = [
        *endings.settle(job, own, entries, settings),
        *endings.evict(unwanted, entries, observed.refusals, now),
        *openings.open_service(observed, job, entries),
        *(openings.pause(rejection, now) or openings.open_pods(observed, job, training, settings)),
        *(openings.pause(refused, now) or openings.open_pods(observed, job, bringing, settings)),
        *openings.ungate(job, own, entries),
    ]
    updates = openings.rejection_updates(job, rejection, training)
    updates += stagings.updates(job, refused)
    actions += stagings.events(job, updates)
    updates += endings.eviction_updates(job, unwanted, observed.refusals)
    verdict = observed.verdict
    if not _is_checked(job):
        if verdict is None or verdict.generation != job.metadata.generation:
            actions.append(CheckTemplate(job.metadata.generation, checked_pods(job, settings)))
        else:
            updates.append(verdict.update)
            actions += transitions.verdict_events(verdict)
    deadline = deadline_of(job)
    if deadline is not None:
        actions.append(RequeueAfter((deadline - now).total_seconds()))
    return actions, updates


def _report(
    job: TrainingJob, counts: PodCounts, job_phase: JobPhase, updates: list[ConditionUpdate], now: datetime
) -> list[Action]:
    """Write the status if it changes, with the events about the change."""
    status, before = new_status(job, counts, job_phase, updates, now), own_status(job.status)
    if status == before:
        return []
    news = tuple(transitions.phase_events(job, job_phase))
    return [WriteStatus(job.metadata.resource_version, status, news, in_time=may_wait(status, before))]


def _is_checked(job: TrainingJob) -> bool:
    """Return whether the status has a dry-run result for this generation."""
    condition = condition_of(job, names.CONDITION_INVALID_TEMPLATE)
    return condition is not None and condition.observed_generation == job.metadata.generation


def _count_pods(own: Iterable[PodView], entries: Mapping[str, Entry]) -> PodCounts:
    workers = [pod for pod in own if pod.role == names.ROLE_WORKER]
    active = [pod for pod in own if not pod.over]
    return PodCounts(
        active_workers=sum(not pod.over for pod in workers),
        running_workers=sum(not pod.over and pod.phase == "Running" for pod in workers),
        active_servers=sum(pod.role == names.ROLE_SERVER for pod in active),
        active_chiefs=sum(pod.role == names.ROLE_CHIEF for pod in active),
        running_chiefs=sum(pod.role == names.ROLE_CHIEF and pod.phase == "Running" for pod in active),
        started=any(pod.phase in ("Running", "Succeeded", "Failed") for pod in workers),
        sites=tuple(sorted({entries[pod.name].site for pod in active if pod.name in entries})),
    )


def _with_one_requeue(actions: list[Action]) -> list[Action]:
    """Replace all RequeueAfter actions by the earliest."""
    delays = [action.seconds for action in actions if isinstance(action, RequeueAfter)]
    once: list[Action] = [action for action in actions if not isinstance(action, RequeueAfter)]
    if delays:
        once.append(RequeueAfter(max(0.0, min(delays))))
    return once
