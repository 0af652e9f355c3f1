"""Rules for evicting pods, removing the ledger finalizer and deleting pods. Pure."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta

from tranche.kube.api import names
from tranche.kube.api.resources import PlannedStaging, PlannedWindow, TrainingJob
from tranche_operator.reconcile import event_rules
from tranche_operator.reconcile.actions import (
    Action,
    DeleteJob,
    DeletePod,
    EmitEvent,
    EvictPod,
    ReleasePod,
    RequeueAfter,
)
from tranche_operator.reconcile.observed import Entry, PodView, Rejection, is_current, is_open
from tranche_operator.reconcile.status import ConditionUpdate, condition_of
from tranche_operator.settings import Settings

RECHECK_SECONDS = 2.0
"""Delay after which a finished job whose end is being written to its status is looked at again. It is not zero, so that
a write that the API server refuses again and again does not become a hot loop."""


def release_and_delete(pods: Iterable[PodView]) -> list[Action]:
    """Release and delete the pods of a job that is deleted or being deleted: the planner no longer counts them.

    A pod that no TrainingJob controls (``kubectl delete --cascade=orphan`` leaves such pods) is released, since the
    finalizer is ours, but not deleted. Its owner may have been removed a moment ago, so a pod that has changed since
    it was read is looked at again first.
    """
    return [
        action
        for pod in pods
        for action in (*_release(pod), *(_delete(pod, pod.version) if pod.owner is not None else ()))
    ]


def is_orphaned(job: TrainingJob) -> bool:
    """Return whether the job is being deleted without its pods (``kubectl delete --cascade=orphan``)."""
    return job.metadata.deletion_timestamp is not None and names.FINALIZER_ORPHAN in job.metadata.finalizers


def clean_up_counted(
    job: TrainingJob,
    pods: Iterable[PodView],
    entries: Mapping[str, Entry],
    reported: Collection[str],
    settings: Settings,
    now: datetime,
) -> list[Action]:
    """Release pods whose end is counted, and delete all of them except the last ones (`Settings.kept_failed`).

    A pod is counted when the plan no longer has an entry for it. A plan for another generation is valid here as well,
    since the planner writes it together with the ledger. Without a plan, no pod is known to be counted.

    A counted pod in which other containers still run is deleted. Before it is counted, its deletion would look like a
    preemption.
    """
    if job.status.plan is None:
        return []
    ended = [pod for pod in pods if pod.ended and pod.name not in entries]
    counted = sorted((pod for pod in ended if pod.over), key=lambda pod: (pod.attempt, pod.name))
    held = [pod for pod in ended if pod.sidecars and not (pod.over or pod.terminating)]
    failed = [pod for pod in counted if pod.phase == "Failed" and not pod.terminating]
    others = [pod for pod in counted if pod.phase != "Failed" and not pod.terminating]
    surplus = [*failed[: -settings.kept_failed], *others[: -settings.kept_succeeded]]
    return [
        *event_rules.preempted_events(job, counted, reported, now),
        *(action for pod in counted for action in _release(pod)),
        *(action for pod in surplus for action in _delete(pod)),
        *(action for pod in held for action in _stop_sidecars(pod)),
    ]


def _stop_sidecars(pod: PodView) -> tuple[Action, ...]:
    message = (
        f"The training container of pod {pod.name} has ended; the pod is deleted, because other containers still run."
    )
    return (*_delete(pod), EmitEvent("Normal", "SidecarsStopped", message, pod.name))


def unwanted_pods(job: TrainingJob, pods: Iterable[PodView], entries: Mapping[str, Entry]) -> list[PodView]:
    """Return the training pods whose window is closing or which are not in the plan."""
    return [pod for pod in _unneeded(job, pods, entries) if not (pod.ended or pod.terminating)]


def shorten_deletions(job: TrainingJob, pods: Iterable[PodView], entries: Mapping[str, Entry]) -> list[Action]:
    """Delete unneeded pods again that another client has deleted with a longer grace period than their template's.

    The limit of a namespace holds for templates only, so such a pod would keep its GPU for as long as its tenant likes.
    A deletion can shorten the grace period of an earlier one, and never lengthens it.
    """
    return [action for pod in _unneeded(job, pods, entries) if pod.lingers for action in _delete(pod)]


def _unneeded(job: TrainingJob, pods: Iterable[PodView], entries: Mapping[str, Entry]) -> list[PodView]:
    """Return the pods whose window is closing, and by a plan for the current generation those that it does not have.

    A pod that is to stop does so whatever its job has become: otherwise a job whose specification changes all the time
    would keep the GPUs that others wait for.
    """
    closing = [pod for pod in pods if pod.name in entries and not is_open(entries[pod.name])]
    return closing + [pod for pod in pods if pod.name not in entries] if is_current(job) else closing


def evict(
    unwanted: Iterable[PodView], entries: Mapping[str, Entry], refusals: Mapping[str, Rejection], now: datetime
) -> list[Action]:
    """Evict unwanted pods, those whose eviction was refused only after the pause."""
    actions: list[Action] = []
    for pod in unwanted:
        refusal = refusals.get(pod.name)
        if refusal is not None and now < refusal.until:
            actions.append(RequeueAfter((refusal.until - now).total_seconds()))
        else:
            entry = entries.get(pod.name)
            closing = "its window is closing" if pod.role == names.ROLE_WORKER else "no worker needs it now"
            why = closing if entry is not None else "it is no longer in the plan"
            by = ""
            if not (entry is None or isinstance(entry, PlannedStaging)):
                by = entry.preempted_by or ""
                why = entry.why or ("" if by else why)
            actions.append(
                EvictPod(pod.name, pod.uid, pod.grace_seconds, why, by, entry.site if entry is not None else "")
            )
    return actions


def eviction_updates(
    job: TrainingJob, unwanted: Collection[PodView], refusals: Mapping[str, Rejection]
) -> list[ConditionUpdate]:
    """Update condition EvictionsRefused: True while a budget protects an unwanted pod, False when none is left."""
    refused = [refusals[pod.name] for pod in unwanted if pod.name in refusals]
    if refused:
        message = "; ".join(f"{refusal.pod}: {refusal.message}" for refusal in refused)
        return [ConditionUpdate(names.CONDITION_EVICTIONS_REFUSED, "True", refused[0].reason, message)]
    before = condition_of(job, names.CONDITION_EVICTIONS_REFUSED)
    if before is not None and before.status == "True" and not unwanted:
        return [ConditionUpdate(names.CONDITION_EVICTIONS_REFUSED, "False", "NoneRefused", "no eviction is refused")]
    return []


def clean_up_finished(
    job: TrainingJob,
    phase: str,
    pods: tuple[PodView, ...],
    entries: Mapping[str, Entry],
    settings: Settings,
    now: datetime,
) -> list[Action]:
    """Clean up after a finished job, as runPolicy says.

    During `Settings.ledger_patience_seconds` the planner may still count the last pods, pods in which training has
    ended and workers of a job that succeeded may end by themselves, and parameter servers run until these workers have
    ended. After that, pods are released and deleted without waiting. The planner counts no pods of a job whose status
    says Failed.
    """
    policy = job.spec.run_policy
    since = now - (job.status.completion_time or now)
    patient = since < timedelta(seconds=settings.ledger_patience_seconds)
    actions: list[Action] = []
    if patient:
        actions.append(RequeueAfter(settings.ledger_patience_seconds - since.total_seconds()))
    training = job.spec.chief is None and any(pod.role == names.ROLE_WORKER and not pod.ended for pod in pods)
    for pod in pods:
        entry = entries.get(pod.name)
        if pod.over:
            if entry is None or not patient or job.status.phase == "Failed":
                actions += _release(pod)
                actions += _delete(pod) if policy.clean_pod_policy == "All" else ()
        elif policy.clean_pod_policy != "None":
            ends = pod.trained and not pod.sidecars
            needed = training if pod.role == names.ROLE_SERVER else isinstance(entry, PlannedWindow) and is_open(entry)
            if not (patient and (ends or (phase == "Succeeded" and needed))):
                actions += _delete(pod)
    return [*actions, *_end_of_life(job, now)]


def _end_of_life(job: TrainingJob, now: datetime) -> tuple[Action, ...]:
    """Delete a finished job after its time to live, which begins once its end is in the status."""
    seconds, end = job.spec.run_policy.ttl_seconds_after_finished, job.status.completion_time
    if seconds is None:
        return ()
    if end is None:
        return (RequeueAfter(max(float(seconds), RECHECK_SECONDS)),)
    left = seconds - (now - end).total_seconds()
    return (RequeueAfter(left) if left > 0 else DeleteJob(job.metadata.uid),)


def _release(pod: PodView) -> tuple[Action, ...]:
    return (ReleasePod(pod.name, pod.uid, pod.finalizers),) if names.FINALIZER_LEDGER in pod.finalizers else ()


def _delete(pod: PodView, version: int = 0) -> tuple[Action, ...]:
    return () if pod.terminating and not pod.lingers else (DeletePod(pod.name, pod.uid, pod.grace_seconds, version),)
