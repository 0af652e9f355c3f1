"""Translation of TrainingJob changes into planner events."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from tranche.kube.api.condition import find_condition
from tranche.kube.api.core_types import Pod
from tranche.kube.api.job_decoder import UnreadableJob
from tranche.kube.api.names import (
    CONDITION_EVICTIONS_REFUSED,
    CONDITION_FAILED,
    CONDITION_INVALID_TEMPLATE,
    CONDITION_PODS_REJECTED,
    ROLE_CHIEF,
    ROLE_SERVER,
    ROLE_STAGING,
    ROLE_WORKER,
    GpuResources,
    pod_name,
    staging_pod_name,
)
from tranche.kube.api.resources import Condition, TrainingJob
from tranche.kube.convert.pod_identity import owner_uid
from tranche.kube.convert.pod_shape import pod_requests
from tranche.kube.convert.pod_state import is_over, started_at
from tranche.kube.convert.training_container import is_from, is_from_other, pod_source
from tranche.kube.convert.trainingjob import planned_condition, read_plan, read_progress, status_object, to_job
from tranche.model import Job, JobPlan
from tranche.planner import Event, EvictionRefused, JobChanged, JobFailed, JobRemoved, JobSubmitted, WorkerRejected

INVALID_SPEC, INVALID_PLAN, STATUS_REJECTED = REJECTION_REASONS = "InvalidSpec", "InvalidPlan", "StatusRejected"
"""Reasons of the condition Planned: the specification cannot be read, the plan is not one of the leader, or the API
server does not take the status."""
MESSAGE_LENGTH = 1024
"""Maximum length of the condition's message, so that it fits where a whole status does not."""


def submission(
    resource: TrainingJob, gpu_resources: GpuResources, pods: Mapping[str, Pod] = MappingProxyType({})
) -> JobSubmitted:
    """Return the submission of a job with the plan and ledger of an earlier planner.

    Args:
        resource: The TrainingJob.
        gpu_resources: Resource names of the GPUs.
        pods: All pods by key, to find pods that were created from an earlier specification.

    Raises:
        ValueError: the specification, or the requests of a pod, cannot be read.
    """
    status, job = resource.status, to_job(resource, gpu_resources)
    plan = read_plan(status.plan) if status.plan else None
    progress = read_progress(status.progress) if status.progress else None
    if plan is None or plan.generation == job.generation:
        return JobSubmitted(job, plan, progress)
    outdated = {
        attempt
        for role, attempt, pod in planned_pods(resource, pods)
        if role == ROLE_WORKER and _is_outdated(pod, resource, job, gpu_resources)
    }
    return JobSubmitted(job, plan, progress, frozenset(outdated), _revised_attempts(resource, job, pods))


def planned_pods(resource: TrainingJob, pods: Mapping[str, Pod]) -> Iterator[tuple[str, int, Pod]]:
    """Yield role, attempt and pod of the entries of the written plan that have a pod."""
    plan = resource.status.plan
    if plan is None:
        return
    name = resource.metadata.name
    entries = [
        (role, one.attempt, pod_name(name, role, one.index, one.attempt)) for role, one in plan.entries_by_role()
    ]
    entries += [
        (ROLE_STAGING, one.attempt, staging_pod_name(name, one.site, one.attempt))
        for one in plan.staging
        if one.attempt is not None
    ]
    for role, attempt, pod in entries:
        found = pods.get(f"{resource.metadata.namespace}/{pod}")
        if found is not None and owner_uid(found.metadata) == resource.metadata.uid:
            yield role, attempt, found


def _revised_attempts(resource: TrainingJob, job: Job, pods: Mapping[str, Pod]) -> frozenset[int]:
    """Return the attempts whose pods have not started and are from an earlier template.

    All staging pods are, because they lose no training. The workers of a gang have one template, so that all of them
    are, or none if one has started.
    """
    sources, planned = _sources(resource), list(planned_pods(resource, pods))
    revised = {
        attempt: role
        for role, attempt, pod in planned
        if (role == ROLE_STAGING or started_at(pod) is None) and is_from_other(pod, sources[role] or {})
    }
    if job.is_gang and ROLE_WORKER in revised.values():
        workers = {attempt: pod for role, attempt, pod in planned if role == ROLE_WORKER}
        begun = any(started_at(pod) is not None for pod in workers.values())
        others = {attempt: role for attempt, role in revised.items() if role != ROLE_WORKER}
        revised = others | ({} if begun else dict.fromkeys(workers, ROLE_WORKER))
    return frozenset(revised)


def _is_outdated(pod: Pod, resource: TrainingJob, job: Job, gpu_resources: GpuResources) -> bool:
    """Return whether the template of a worker pod had other requests. Admission may have added to those of the pod."""
    same = is_from(pod, resource.spec.workers.template)
    if same is None:  # created by an operator that did not record the template's requests
        return not job.declared_requests.fits(pod_requests(pod, gpu_resources))
    return not same


class Rejections:
    """Jobs that cannot be planned or whose status cannot be written, with the condition that reports it."""

    def __init__(self) -> None:
        self._plans: dict[str, tuple[str, bool, JobPlan]] = {}
        """UID of the job, whether this release cannot read all of it, and what its condition reports, by key."""

    def note(self, resource: TrainingJob, reason: str, message: str) -> bool:
        """Record a rejection; returns False if it is known already."""
        found = (
            resource.metadata.uid,
            isinstance(resource, UnreadableJob),
            JobPlan(resource.metadata.generation, message[:MESSAGE_LENGTH], unplannable=reason),
        )
        known = self._plans.get(resource.key)
        self._plans[resource.key] = found
        return known != found

    def has_changed(self, key: str, resource: TrainingJob | None) -> bool:
        """Forget the job's rejection if the job has changed or is gone; returns whether there was one."""
        uid, unreadable, plan = self._plans.get(key, ("", False, None))
        if plan is None:
            return False
        same = resource is not None and (resource.metadata.uid, resource.metadata.generation) == (uid, plan.generation)
        if same and (not unreadable or isinstance(resource, UnreadableJob)):
            return False
        del self._plans[key]
        return True

    def condition(self, resource: TrainingJob, now: float, *reasons: str) -> dict[str, Any] | None:
        """Return the condition Planned of a rejected job; None if the job is not rejected for one of the reasons."""
        uid, _, plan = self._plans.get(resource.key, ("", False, None))
        if plan is None or uid != resource.metadata.uid or plan.unplannable not in reasons:
            return None
        return planned_condition(plan, plan.generation, resource.status.conditions, now)

    def status(self, resource: TrainingJob, now: float) -> dict[str, Any] | None:
        """Return the object that applies this condition alone."""
        condition = self.condition(resource, now, *REJECTION_REASONS)
        return status_object(resource, {"conditions": [condition]}) if condition is not None else None


def is_job_over(resource: TrainingJob | None) -> bool:
    """Return whether the planner no longer plans the job: it is deleted, terminating, or has ended."""
    return (
        resource is None
        or resource.metadata.deletion_timestamp is not None
        or resource.status.phase in ("Succeeded", "Failed")
    )


def _has_failed_with_pods(resource: TrainingJob) -> bool:
    """Return whether a job has failed and its written plan still has pods, whose ends must count."""
    plan, gone = resource.status.plan, resource.metadata.deletion_timestamp is not None
    if gone or resource.status.phase != "Failed" or plan is None:
        return False
    return bool(plan.workers or plan.parameter_servers or plan.chief)


def needs_planner(resource: TrainingJob) -> bool:
    """Return whether a new planner must take over the job: the job has not ended, or ends of its pods must count."""
    return not is_job_over(resource) or _has_failed_with_pods(resource)


def _end_reason(resource: TrainingJob) -> str:
    """Return why the operator has ended a job, from its condition."""
    found = find_condition(resource.status.conditions, CONDITION_FAILED)
    return found.message if found is not None and found.message else "the operator ended it"


def events_of(
    old: TrainingJob | None, new: TrainingJob | None, gpu_resources: GpuResources, pods: Mapping[str, Pod]
) -> Iterator[Event]:
    """Yield the planner events of a change of a TrainingJob.

    Args:
        old: Job before the change, if the planner has it; None if it is new.
        new: Job after the change; None if it is gone.
        gpu_resources: Resource names of the GPUs.
        pods: All pods by key.

    Raises:
        ValueError: the new specification cannot be read.
    """
    if old is not None and new is not None and old.metadata.uid != new.metadata.uid:
        yield JobRemoved(old.key)
        old = None
    if new is not None and _has_failed_with_pods(new):
        if old is None:
            yield submission(new, gpu_resources, pods)
        if old is None or not is_job_over(old):
            yield JobFailed(new.key, _end_reason(new), new.spec.run_policy.clean_pod_policy == "None")
    elif old is not None and is_job_over(new) and (_has_failed_with_pods(old) or not is_job_over(old)):
        yield JobRemoved(old.key)
    if new is None or is_job_over(new):
        return
    if old is None or is_job_over(old):
        yield submission(new, gpu_resources, pods)
    elif new.metadata.generation != old.metadata.generation or _admission(new) != _admission(old):
        revised = _revised(old, new)
        unstarted = _unstarted(new, pods) if revised & {ROLE_SERVER, ROLE_CHIEF} else frozenset()
        yield JobChanged(to_job(new, gpu_resources), revised, unstarted)
    for kind, permanent in ((CONDITION_INVALID_TEMPLATE, True), (CONDITION_PODS_REJECTED, False)):
        condition, earlier = _holds(new, kind), _holds(old, kind)
        if condition and (earlier is None or earlier.last_transition_time != condition.last_transition_time):
            yield WorkerRejected(new.key, condition.reason, condition.message, permanent)
    refused, earlier = _holds(new, CONDITION_EVICTIONS_REFUSED), _holds(old, CONDITION_EVICTIONS_REFUSED)
    if refused and (earlier is None or earlier.message != refused.message):
        yield EvictionRefused(new.key, tuple(_still_there(new, pods)), refused.message)


def _revised(old: TrainingJob, new: TrainingJob) -> frozenset[str]:
    """Return the roles whose pods that have not started are replaced: other pods would be created now."""
    before, after = _sources(old), _sources(new)
    return frozenset(role for role, source in after.items() if source != before[role])


def _sources(resource: TrainingJob) -> dict[str, Mapping[str, Any] | None]:
    data = resource.spec.data
    servers, chief = resource.spec.parameter_servers, resource.spec.chief
    templates = {
        ROLE_WORKER: resource.spec.workers.template,
        ROLE_STAGING: data.staging.template if data is not None and data.staging is not None else None,
        ROLE_SERVER: servers.template if servers is not None else None,
        ROLE_CHIEF: chief.template if chief is not None else None,
    }
    return {
        role: pod_source(resource.spec, template) if template is not None else None
        for role, template in templates.items()
    }


def _unstarted(resource: TrainingJob, pods: Mapping[str, Pod]) -> frozenset[int]:
    """Return the attempts of parameter servers and chief in the written plan whose containers have not started."""
    plan = resource.status.plan
    servers = (*plan.parameter_servers, *((plan.chief,) if plan.chief is not None else ())) if plan is not None else ()
    begun = {attempt for _, attempt, pod in planned_pods(resource, pods) if started_at(pod) is not None}
    return frozenset(one.attempt for one in servers if one.attempt not in begun)


def _admission(resource: TrainingJob) -> tuple[object, ...]:
    """Return the result of the operator's dry run, for comparison."""
    found = find_condition(resource.status.conditions, CONDITION_INVALID_TEMPLATE)
    verdict = (found.status, found.reason, found.message, found.observed_generation) if found is not None else ()
    return (resource.status.admitted, *verdict)


def _still_there(job: TrainingJob, pods: Mapping[str, Pod]) -> Iterator[int]:
    """Yield the closing attempts whose pods are not terminating yet."""
    plan = job.status.plan
    for role, entry in plan.entries_by_role() if plan is not None else ():
        name = pod_name(job.metadata.name, role, entry.index, entry.attempt)
        pod = pods.get(f"{job.metadata.namespace}/{name}") if entry.state == "Closing" else None
        if pod is not None and pod.metadata.deletion_timestamp is None and not is_over(pod):
            yield entry.attempt


def _holds(resource: TrainingJob | None, kind: str) -> Condition | None:
    """Return the condition if it is True for the current generation; else None."""
    conditions = resource.status.conditions if resource is not None else ()
    return next(
        (
            c
            for c in conditions
            if c.type == kind
            and c.status == "True"
            and resource is not None
            and c.observed_generation in (None, resource.metadata.generation)
        ),
        None,
    )
