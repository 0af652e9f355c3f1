"""Reconciliation of one job: from the observed state to a list of actions. Pure: no I/O, no clock, no state.

Rules (docs/explanation/architecture.md, "The path of a job"): the pods of open windows and servers exist; pods that
are closing or not in the plan are evicted; a pod that has ended keeps the ledger finalizer until the planner has
counted it, that is, until the plan has no entry for it. A plan for another generation of the spec creates and evicts
nothing.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from tranche.kube.api import names
from tranche.kube.api.resources import PlannedStaging, TrainingJob
from tranche_operator.manifests.pod import checked_pods
from tranche_operator.reconcile import event_rules, pod_creation, pod_teardown, staging_status
from tranche_operator.reconcile.actions import Action, CheckTemplate, RequeueAfter, WriteStatus, in_order
from tranche_operator.reconcile.observed import Entry, Observed, PodView, entries_of
from tranche_operator.reconcile.status import (
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
from tranche_operator.settings import Settings


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
        return in_order(pod_teardown.abandon(observed.pods))
    own = tuple(pod for pod in observed.pods if pod.owner == job.metadata.uid)
    strangers = [pod for pod in observed.pods if pod.owner != job.metadata.uid]
    entries = entries_of(job)
    counts = _count_pods(own, entries)
    job_phase = compute_phase(job, counts, now)
    actions = pod_teardown.abandon(strangers)
    updates: list[ConditionUpdate] = []
    if job_phase.phase in TERMINAL:
        actions += pod_teardown.finish(job, job_phase.phase, own, entries, settings, now)
    else:
        more, updates = _steer(observed, job, own, entries, settings, now)
        actions += more
    actions += _report(job, counts, job_phase, updates, now)
    actions += event_rules.wait_events(job, job_phase, observed.wait, now)
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
    missing = pod_creation.missing_pods(observed, job, entries)
    bringing = {name: entry for name, entry in missing.items() if isinstance(entry, PlannedStaging)}
    training = {name: entry for name, entry in missing.items() if name not in bringing}
    rejection = pod_creation.standing_rejection(observed.rejection, training)
    refused = pod_creation.standing_rejection(observed.staging_rejection, bringing)
    unwanted = pod_teardown.unwanted_pods(job, own, entries)
    actions = [
        *pod_teardown.settle(job, own, entries, settings),
        *pod_teardown.evict(unwanted, entries, observed.refusals, now),
        *pod_creation.open_service(observed, job, entries),
        *(pod_creation.pause(rejection, now) or pod_creation.open_pods(observed, job, training, settings)),
        *(pod_creation.pause(refused, now) or pod_creation.open_pods(observed, job, bringing, settings)),
        *pod_creation.ungate(job, own, entries),
    ]
    updates = pod_creation.rejection_updates(job, rejection, training)
    updates += staging_status.updates(job, refused)
    actions += staging_status.events(job, updates)
    updates += pod_teardown.eviction_updates(job, unwanted, observed.refusals)
    verdict = observed.verdict
    if not _is_checked(job):
        if verdict is None or verdict.generation != job.metadata.generation:
            actions.append(CheckTemplate(job.metadata.generation, checked_pods(job, settings)))
        else:
            updates.append(verdict.update)
            actions += event_rules.verdict_events(verdict)
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
    news = tuple(event_rules.phase_events(job, job_phase))
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
