"""The operator's decision: what is observed of one job in, a list of actions out. Pure: no I/O, no clock, no memory.

Rules (docs/explanation/architecture.md, "The path of a job"): pods of open windows and of parameter servers exist; what
is closing or no longer planned is evicted; a pod that is over keeps its finalizer until the planner has counted it,
that is until the plan has no entry for it any more. A plan for another generation of the spec creates and evicts
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
    Finding,
    Judgement,
    Tally,
    condition_of,
    deadline_of,
    judge,
    may_wait,
    new_status,
    own_status,
)
from tranche_operator.settings import Settings


def reconcile(observed: Observed, settings: Settings, now: datetime) -> list[Action]:
    """What is to be done so that the cluster follows the plan.

    Args:
        observed: The job, its pods and what is remembered.
        settings: The operator's settings.
        now: Time zone aware.

    Returns:
        Actions in the order in which they are to be executed; at most one RequeueAfter, at the end.

    Raises:
        ValueError: if the planner's part of the status cannot be read.
    """
    job = observed.job
    if job is None or job.metadata.deletion_timestamp is not None:
        return in_order(pod_teardown.abandon(observed.pods))
    own = tuple(pod for pod in observed.pods if pod.owner == job.metadata.uid)
    strangers = [pod for pod in observed.pods if pod.owner != job.metadata.uid]
    entries = entries_of(job)
    tally = _tally(own, entries)
    judgement = judge(job, tally, now)
    actions = pod_teardown.abandon(strangers)
    findings: list[Finding] = []
    if judgement.phase in TERMINAL:
        actions += pod_teardown.finish(job, judgement.phase, own, entries, settings, now)
    else:
        more, findings = _steer(observed, job, own, entries, settings, now)
        actions += more
    actions += _report(job, tally, judgement, findings, now)
    actions += event_rules.wait_events(job, judgement, observed.wait, now)
    return _with_one_requeue(in_order(actions))


def _steer(
    observed: Observed,
    job: TrainingJob,
    own: tuple[PodView, ...],
    entries: Mapping[str, Entry],
    settings: Settings,
    now: datetime,
) -> tuple[list[Action], list[Finding]]:
    """Follow the plan of a job that is not over."""
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
    findings = pod_creation.rejection_findings(job, rejection, training)
    findings += staging_status.findings(job, refused)
    actions += staging_status.events(job, findings)
    findings += pod_teardown.refusal_findings(job, unwanted, observed.refusals)
    verdict = observed.verdict
    if not _is_checked(job):
        if verdict is None or verdict.generation != job.metadata.generation:
            actions.append(CheckTemplate(job.metadata.generation, checked_pods(job, settings)))
        else:
            findings.append(verdict.finding)
            actions += event_rules.verdict_events(verdict)
    deadline = deadline_of(job)
    if deadline is not None:
        actions.append(RequeueAfter((deadline - now).total_seconds()))
    return actions, findings


def _report(
    job: TrainingJob, tally: Tally, judgement: Judgement, findings: list[Finding], now: datetime
) -> list[Action]:
    """Write the status if it changes, and tell of the change."""
    status, before = new_status(job, tally, judgement, findings, now), own_status(job.status)
    if status == before:
        return []
    news = tuple(event_rules.phase_events(job, judgement))
    return [WriteStatus(job.metadata.resource_version, status, news, in_time=may_wait(status, before))]


def _is_checked(job: TrainingJob) -> bool:
    """Whether the status holds a verdict on the template of this generation."""
    condition = condition_of(job, names.CONDITION_INVALID_TEMPLATE)
    return condition is not None and condition.observed_generation == job.metadata.generation


def _tally(own: Iterable[PodView], entries: Mapping[str, Entry]) -> Tally:
    workers = [pod for pod in own if pod.role == names.ROLE_WORKER]
    active = [pod for pod in own if not pod.over]
    return Tally(
        active_workers=sum(not pod.over for pod in workers),
        running_workers=sum(not pod.over and pod.phase == "Running" for pod in workers),
        active_servers=sum(pod.role == names.ROLE_SERVER for pod in active),
        active_chiefs=sum(pod.role == names.ROLE_CHIEF for pod in active),
        running_chiefs=sum(pod.role == names.ROLE_CHIEF and pod.phase == "Running" for pod in active),
        started=any(pod.phase in ("Running", "Succeeded", "Failed") for pod in workers),
        sites=tuple(sorted({entries[pod.name].site for pod in active if pod.name in entries})),
    )


def _with_one_requeue(actions: list[Action]) -> list[Action]:
    """The earliest of several wishes to look again."""
    wishes = [action.seconds for action in actions if isinstance(action, RequeueAfter)]
    once: list[Action] = [action for action in actions if not isinstance(action, RequeueAfter)]
    if wishes:
        once.append(RequeueAfter(max(0.0, min(wishes))))
    return once
