"""Fencing against plans of other planners: a newer plan deposes this planner, a late older plan is adopted.

The CEL rule on status.plan rejects writes with a smaller term, once this planner has written the job. Until then, late
writes of the previous planner may still arrive, and the operator acts on them.
"""

from tranche.kube.api.resources import TrainingJob
from tranche.kube.client.leader_election import DeposedError


def wrote_late(old: TrainingJob | None, new: TrainingJob | None, term: int) -> bool:
    """Whether an earlier planner wrote the job's plan after this planner had read it.

    Raises:
        DeposedError: a newer planner has written it.
    """
    after = _stamp(new)
    if after[0] > term:
        raise DeposedError(f"{new.key if new else ''} has a plan of term {after[0]}, but this planner has term {term}")
    return old is not None and 0 < after[0] < term and after != _stamp(old)


def precondition(resource: TrainingJob, term: int, since: float) -> str | None:
    """Return the resource version that the first write of this term must match.

    None if no earlier planner can interfere.

    Args:
        resource: Job as last watched.
        term: Term of this planner.
        since: Start of the term, in seconds since the epoch.
    """
    created = resource.metadata.creation_timestamp
    claimed = _stamp(resource)[0] == term or (created is not None and created.timestamp() > since)
    return None if claimed else resource.metadata.resource_version


def _stamp(resource: TrainingJob | None) -> tuple[int, int]:
    plan = resource.status.plan if resource is not None else None
    return (plan.term, plan.revision) if plan is not None else (0, 0)
