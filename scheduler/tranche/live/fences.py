"""Against plans of other planners: newer ones depose us; late ones of earlier planners are taken over.

The rule on status.plan refuses whoever has a smaller term, once we have written. Until then the last writes of the
planner before us may still arrive, and operators act on them.
"""

from tranche.kube.leases import DeposedError
from tranche.kube.resources import TrainingJob


def wrote_late(old: TrainingJob | None, new: TrainingJob | None, term: int) -> bool:
    """Whether an earlier planner has written the job's plan after we had read it.

    Raises:
        DeposedError: if a newer planner has written it.
    """
    after = _stamp(new)
    if after[0] > term:
        raise DeposedError(f"{new.key if new else ''} has a plan of term {after[0]}, but this planner has term {term}")
    return old is not None and 0 < after[0] < term and after != _stamp(old)


def precondition(resource: TrainingJob, term: int, since: float) -> str | None:
    """The version that our first plan of a job must find; None if nobody before us can have written it meanwhile.

    Args:
        resource: The job as we know it.
        term: Ours.
        since: When our term began, in seconds since the epoch.
    """
    created = resource.metadata.creation_timestamp
    claimed = _stamp(resource)[0] == term or (created is not None and created.timestamp() > since)
    return None if claimed else resource.metadata.resource_version


def _stamp(resource: TrainingJob | None) -> tuple[int, int]:
    plan = resource.status.plan if resource is not None else None
    return (plan.term, plan.revision) if plan is not None else (0, 0)
