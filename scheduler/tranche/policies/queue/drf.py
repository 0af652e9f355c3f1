"""Dominant resource fairness between tenants or between jobs.

Source: Ghodsi, Zaharia, Hindman, Konwinski, Shenker, Stoica, Dominant Resource Fairness, NSDI 2011, recalled [R]: the
next task is launched for the user with the least dominant share, the largest of its shares of any resource. With
``users=jobs`` [I] each job is a user of its own, its share is divided by its weight, and it gets one worker at a time.
With ``users=tenants`` [I] users are namespaces (virtual clusters of a trace), a user's jobs go in arrival order, and a
job gets all its workers that fit before shares are compared again; with a single user this is fifo-skip. A job that
does not fit is passed over, and nothing that runs is preempted.
"""

from dataclasses import dataclass
from typing import ClassVar

from tranche.policies.base import PolicyTraits, PooledPolicy, Rank
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState


@dataclass(frozen=True, slots=True)
class Drf(PooledPolicy):
    """Least dominant share first; a tenant's own jobs in arrival order."""

    name: ClassVar[str] = "drf"
    source: ClassVar[str] = (
        "Dominant resource fairness between namespaces or jobs (Ghodsi et al., NSDI 2011, recalled [R])"
    )
    traits: ClassVar[PolicyTraits] = PolicyTraits(
        precedence_reason="whose namespace has the smaller share",
        tracks_tenant_usage=True,
        ranks_by_group=True,
    )

    users: str = "tenants"
    """`tenants`: shares are those of namespaces; `jobs`: each job has a share of its own, divided by its weight, and
    gets one worker at a time."""

    def __post_init__(self) -> None:
        PooledPolicy.__post_init__(self)
        if self.users not in ("tenants", "jobs"):
            raise ValueError(f"drf knows users tenants and jobs, not {self.users!r}")

    @property
    def uses_weights(self) -> bool:
        """Whether each job is a user of its own."""
        return self.users == "jobs"

    def precedence_reason(self, first: JobState, second: JobState, cluster: ClusterState, now: float) -> str:
        """Return why the first job ranks before the second: as `QueuePolicy`, with the share of the job or tenant."""
        reason = PooledPolicy.precedence_reason(self, first, second, cluster, now)
        own = self.users == "jobs" and reason == self.traits.precedence_reason
        return "which has the smaller share" if own else reason

    def rank(self, state: JobState, cluster: ClusterState, now: float) -> Rank:
        """Return the dominant share of the tenant, or that of the job over its weight."""
        if self.users == "jobs":
            return (cluster.dominant_share_of(state) / state.job.weight, 0.0)
        return (cluster.dominant_share(state.job.tenant), 0.0)

    def rank_group(self, state: JobState) -> str:
        """Return the tenant or the job."""
        return state.job.key if self.users == "jobs" else state.job.tenant

    def fills_progressively(self) -> bool:
        """Return whether each job is a user of its own."""
        return self.users == "jobs"
