"""Reconciliation of one job: from the observed state to a list of actions. Pure: no I/O, no clock, no state.

Rules (docs/explanation/architecture.md, "The path of a job"): the pods of open windows and servers exist; pods that
are closing or not in the plan are evicted; a pod that has ended keeps the ledger finalizer until the planner has
counted it, that is, until the plan has no entry for it. A plan for another generation of the spec creates
nothing, and evicts only the pods of closing windows.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from tranche.kube.api import names
from tranche.kube.api.resources import PlannedChief, PlannedStaging, PlannedWindow, TrainingJob
from tranche_operator.manifests import checkpoint_volume
from tranche_operator.manifests.pod import checked_pods, checked_roles
from tranche_operator.reconcile import event_rules, pod_creation, pod_teardown, staging_status, start_status, stuck_pod
from tranche_operator.reconcile.actions import (
    Action,
    CheckByCreation,
    CheckTemplate,
    CreatePod,
    RequeueAfter,
    WriteStatus,
    in_order,
)
from tranche_operator.reconcile.observed import Entry, Observed, PodView, TemplateVerdict, entries_of, is_open
from tranche_operator.reconcile.status import (
    TERMINAL,
    ConditionUpdate,
    PhaseUpdate,
    PodCounts,
    compute_phase,
    condition_of,
    deadline_of,
    new_status,
    only_reports,
    own_status,
    pod_times,
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
    if job is not None and pod_teardown.is_orphaned(job):
        return []  # the pods are released when the garbage collector has made them independent
    if job is None or job.metadata.deletion_timestamp is not None:
        return in_order(pod_teardown.release_and_delete(observed.pods))
    own = tuple(pod for pod in observed.pods if pod.owner == job.metadata.uid)
    strangers = [pod for pod in observed.pods if pod.owner != job.metadata.uid]
    entries = entries_of(job)
    counts = _count_pods(job, own, entries)
    job_phase = compute_phase(job, counts, now)
    actions = pod_teardown.release_and_delete(strangers)
    updates: list[ConditionUpdate] = []
    if job_phase.phase in TERMINAL:
        actions += pod_teardown.clean_up_finished(job, job_phase.phase, own, entries, settings, now)
    else:
        more, updates = _actions_of_active_job(observed, job, own, entries, settings, now)
        actions += more
    found = stuck_pod.updates(job, own, now)
    actions += stuck_pod.actions(job, own, found, now)
    updates += found
    # The first status waits for the check of the template, whose result would follow in a second write.
    if job.status.phase is not None or job_phase.phase in TERMINAL or _has_result(observed, job):
        directory = checkpoint_volume.assigned_directory(job, observed.mounted)
        actions += _report(observed, job, counts, job_phase, updates, now, directory)
    actions += event_rules.wait_events(job, job_phase, observed.wait, now)
    return _with_one_requeue(in_order(actions))


def _actions_of_active_job(
    observed: Observed,
    job: TrainingJob,
    own: tuple[PodView, ...],
    entries: Mapping[str, Entry],
    settings: Settings,
    now: datetime,
) -> tuple[list[Action], list[ConditionUpdate]]:
    """Return actions and condition updates for a job that has not ended."""
    awaits = checkpoint_volume.awaits_directory(job)
    missing = {} if awaits else pod_creation.missing_pods(observed, job, entries, now)
    bringing = {name: entry for name, entry in missing.items() if isinstance(entry, PlannedStaging)}
    training = {name: entry for name, entry in missing.items() if name not in bringing}
    rejection = pod_creation.standing_rejection(observed.rejection, training, entries)
    refused = pod_creation.standing_rejection(observed.staging_rejection, bringing, entries)
    possible = {} if pod_creation.awaits_service(observed, job) else training
    unwanted = pod_teardown.unwanted_pods(job, own, entries)
    actions = [
        *pod_teardown.clean_up_counted(job, own, entries, observed.reported, settings, now),
        *pod_teardown.evict(unwanted, entries, observed.refusals, now),
        *pod_teardown.shorten_deletions(job, own, entries),
        *pod_creation.open_service(observed, job, entries, now),
        *(pod_creation.pause(rejection, now) or pod_creation.open_pods(observed, job, possible, settings)),
        *(pod_creation.pause(refused, now) or pod_creation.open_pods(observed, job, bringing, settings)),
        *pod_creation.ungate(job, own, entries),
    ]
    actions += pod_creation.withdraw(job, observed.pods, actions)
    if entries and awaits:
        actions.append(RequeueAfter(0.0))
    updates = pod_creation.rejection_updates(job, rejection, training)
    updates += staging_status.updates(job, refused)
    actions += staging_status.events(job, updates)
    starts, requeues = start_status.updates(job, own, settings, now)
    updates += starts
    actions += [*start_status.events(job, starts), *requeues]
    updates += pod_teardown.eviction_updates(job, unwanted, observed.refusals)
    created = {action.role for action in actions if isinstance(action, CreatePod)}
    more, found = _check_template(observed, job, created, settings, now)
    actions += more
    updates += found
    deadline = deadline_of(job)
    if deadline is not None and now < deadline:  # after it, only the planner's count can end the job
        actions.append(RequeueAfter((deadline - now).total_seconds()))
    return actions, updates


def _check_template(
    observed: Observed, job: TrainingJob, created: Collection[str], settings: Settings, now: datetime
) -> tuple[list[Action], list[ConditionUpdate]]:
    """Check the templates of each generation until the pods are admitted, with a pause after each other result.

    Pods that are created now need no dry run, except if the API server has just refused them: its result says why.
    While many jobs wait, a new job waits for its plan, which most often creates them.
    """
    if _is_checked(job):
        return [], []
    verdict = _verdict_of(observed, job)
    if verdict is None:
        roles = checked_roles(job)
        if roles <= set(created) and not observed.is_forbidden:
            return [CheckByCreation(job.metadata.generation, roles)], []
        if observed.is_busy and (wait := _plan_is_near(job, settings, now)) > 0:
            return [RequeueAfter(wait)], []
        return [CheckTemplate(job.metadata.generation, checked_pods(job, settings))], []
    actions: list[Action] = [*event_rules.verdict_events(job, verdict)]
    if verdict.until is not None and now >= verdict.until:
        actions.append(CheckTemplate(job.metadata.generation, checked_pods(job, settings)))
    elif verdict.until is not None:
        actions.append(RequeueAfter((verdict.until - now).total_seconds()))
    return actions, [verdict.update]


def _plan_is_near(job: TrainingJob, settings: Settings, now: datetime) -> float:
    """Return the seconds for which a job without a plan can still wait for its first one."""
    created = job.metadata.creation_timestamp
    if job.status.plan is not None or created is None:
        return 0.0
    return settings.busy_check_seconds - (now - created).total_seconds()


def _has_result(observed: Observed, job: TrainingJob) -> bool:
    """Return whether a check of the current template has a result."""
    return _is_checked(job) or _verdict_of(observed, job) is not None


def _verdict_of(observed: Observed, job: TrainingJob) -> TemplateVerdict | None:
    """Return the last result of a dry run if it is for this generation."""
    verdict = observed.verdict
    return verdict if verdict is not None and verdict.generation == job.metadata.generation else None


def _report(
    observed: Observed,
    job: TrainingJob,
    counts: PodCounts,
    job_phase: PhaseUpdate,
    updates: list[ConditionUpdate],
    now: datetime,
    directory: str,
) -> list[Action]:
    """Write the status if it changes, with the events about the change."""
    verdict = _verdict_of(observed, job)
    admitted = verdict.admitted if verdict is not None else None
    times = pod_times(job, counts, job_phase, now, observed.times)
    status = new_status(job, counts, job_phase, updates, now, times, admitted, directory)
    before = own_status(job.status)
    if status == before:
        return []
    news = tuple(event_rules.phase_events(job, job_phase))
    may_wait = only_reports(job, counts, status, before)
    return [WriteStatus(job.metadata.resource_version, status, news, may_wait=may_wait, times=times)]


def _is_checked(job: TrainingJob) -> bool:
    """Return whether the status says that the API server has admitted the pods of this generation."""
    condition, generation = condition_of(job, names.CONDITION_INVALID_TEMPLATE), job.metadata.generation
    if condition is None or condition.observed_generation != generation:
        return False
    admitted = job.status.admitted is not None and job.status.admitted.generation == generation
    return condition.status == "False" and admitted


def _count_pods(job: TrainingJob, own: Iterable[PodView], entries: Mapping[str, Entry]) -> PodCounts:
    workers = [pod for pod in own if pod.role == names.ROLE_WORKER]
    active = [pod for pod in own if not pod.over]
    return PodCounts(
        any_pod=any(pod.role != names.ROLE_STAGING for pod in own),
        awaits_count=_awaits_count(job, own, entries),
        active_workers=sum(not pod.over for pod in workers),
        running_workers=sum(not pod.ended and pod.phase == "Running" for pod in workers),
        active_servers=sum(pod.role == names.ROLE_SERVER for pod in active),
        active_chiefs=sum(pod.role == names.ROLE_CHIEF for pod in active),
        running_chiefs=sum(pod.role == names.ROLE_CHIEF and pod.phase == "Running" for pod in active),
        started=any(pod.phase in ("Running", "Succeeded", "Failed") for pod in workers),
        sites=tuple(sorted({entries[pod.name].site for pod in active if pod.name in entries})),
    )


def _awaits_count(job: TrainingJob, own: Iterable[PodView], entries: Mapping[str, Entry]) -> bool:
    """Return whether the pods that can complete the job have ended, and the plan has an entry for at least one of them.

    Those are its workers, or its chief if it has one. The plan has an entry for a pod until its end is counted. A job
    with a planned pod that does not exist yet is not complete.
    """
    role, kind = (names.ROLE_CHIEF, PlannedChief) if job.spec.chief is not None else (names.ROLE_WORKER, PlannedWindow)
    pods = [pod for pod in own if pod.role == role]
    planned = {name for name, entry in entries.items() if isinstance(entry, kind) and is_open(entry)}
    existing = {pod.name for pod in pods}
    return all(pod.ended for pod in pods) and planned <= existing and not existing.isdisjoint(entries)


def _with_one_requeue(actions: list[Action]) -> list[Action]:
    """Replace all RequeueAfter actions by the earliest."""
    delays = [action.seconds for action in actions if isinstance(action, RequeueAfter)]
    once: list[Action] = [action for action in actions if not isinstance(action, RequeueAfter)]
    if delays:
        once.append(RequeueAfter(max(0.0, min(delays))))
    return once
