"""Changes of TrainingJobs as events of the planner."""

from collections.abc import Iterator

from tranche.kube.converts import read_plan, read_progress, to_job
from tranche.kube.names import CONDITION_INVALID_TEMPLATE, CONDITION_PODS_REJECTED
from tranche.kube.resources import Condition, TrainingJob
from tranche.planner import Event, JobChanged, JobRemoved, JobSubmitted, WorkerRejected


def submission(resource: TrainingJob, gpu_resource: str) -> JobSubmitted:
    """A job as it is found, with what an earlier planner left.

    Raises:
        ValueError: if its specification cannot be read.
    """
    status = resource.status
    return JobSubmitted(
        to_job(resource, gpu_resource),
        read_plan(status.plan) if status.plan else None,
        read_progress(status.progress) if status.progress else None,
    )


def over(resource: TrainingJob | None) -> bool:
    """Whether the planner has nothing to do with the job any more: gone, being deleted, or ended by the operator."""
    return (
        resource is None
        or resource.metadata.deletion_timestamp is not None
        or resource.status.phase in ("Succeeded", "Failed")
    )


def events_of(old: TrainingJob | None, new: TrainingJob | None, gpu_resource: str) -> Iterator[Event]:
    """What the planner should hear when a TrainingJob changed from `old` to `new` (None: it is not there).

    Raises:
        ValueError: if the new specification cannot be read.
    """
    replaced = old is not None and new is not None and old.metadata.uid != new.metadata.uid
    if replaced or (over(new) and not over(old)):
        known = old or new
        assert known is not None
        yield JobRemoved(known.key)
    if new is None or over(new):
        return
    if old is None or replaced or over(old):
        yield submission(new, gpu_resource)
    elif new.metadata.generation != old.metadata.generation:
        yield JobChanged(to_job(new, gpu_resource))
    before = None if replaced else old
    for kind, permanent in ((CONDITION_INVALID_TEMPLATE, True), (CONDITION_PODS_REJECTED, False)):
        condition, earlier = _holds(new, kind), _holds(before, kind)
        if condition and (earlier is None or earlier.last_transition_time != condition.last_transition_time):
            yield WorkerRejected(new.key, condition.reason, condition.message, permanent)


def _holds(resource: TrainingJob | None, kind: str) -> Condition | None:
    """The condition if it is True for the present generation."""
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
