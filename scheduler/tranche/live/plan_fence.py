"""Fencing against plans of other planners: the holder of the Lease leads, and adopts late plans of earlier terms.

The CEL rule on status.plan rejects writes with a smaller (term, revision), once this planner has written the job. Until
then, late writes of the previous planner may still arrive, and the operator acts on them.

A user with rights on the status of one job can write any term there. Therefore a term above that of the Lease deposes
no leader: if another process really leads, the next renewal of the Lease fails.
"""

from collections.abc import Iterable

from tranche.kube.api.resources import TrainingJob

LARGEST_KNOWN_TERM = 2**30
"""Plans with a larger term are ignored when the Lease has been deleted. Terms count changes of the leader, and the
Lease's counter is an int32."""
LATE_WRITE_SECONDS = 60.0
"""Time after a take-over in which writes of the previous leader may arrive: the timeout of its requests, doubled."""


class InvalidPlanError(ValueError):
    """A plan has a (term, revision) that no planner can have written."""


def check(resource: TrainingJob | None, term: int, revision: int) -> None:
    """Check that a plan is not newer than the last one of the leader.

    Args:
        resource: The job with the plan; None if it is gone.
        term: Term of the leader, this process.
        revision: Last revision that it has written.

    Raises:
        InvalidPlanError: the plan is newer.
    """
    if _stamp(resource) > (term, revision):
        raise InvalidPlanError(
            f"status.plan is newer than every plan of the scheduler that holds the Lease (term {term}): another client "
            "has written it; delete the job and create it again"
        )


def wrote_late(old: TrainingJob | None, new: TrainingJob | None, term: int) -> bool:
    """Return whether an earlier planner wrote the job's plan after this planner had read it."""
    after = _stamp(new)
    is_same = old is not None and new is not None and old.metadata.uid == new.metadata.uid
    return is_same and 0 < after[0] < term and after != _stamp(old)


def precondition(resource: TrainingJob, term: int, *, is_inherited: bool) -> str | None:
    """Return the resource version that the first write of this term must match.

    None if no earlier planner can interfere.

    Args:
        resource: Job as last watched.
        term: Term of this planner.
        is_inherited: Whether a write of an earlier planner that has seen the job may still arrive. Creation times are
            not compared, because they are those of the API server's clock.
    """
    claimed = not is_inherited or _stamp(resource)[0] == term
    return None if claimed else resource.metadata.resource_version


def largest_known_term(jobs: Iterable[TrainingJob]) -> int:
    """Return the largest term of all plans, which counts only if the Lease has been deleted."""
    terms = (_stamp(job)[0] for job in jobs)
    return max((term for term in terms if term <= LARGEST_KNOWN_TERM), default=0)


def _stamp(resource: TrainingJob | None) -> tuple[int, int]:
    plan = resource.status.plan if resource is not None else None
    return (plan.term, plan.revision) if plan is not None else (0, 0)
