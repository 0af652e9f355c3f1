"""Dominant resource fairness between tenants.

Source: Ghodsi, Zaharia, Hindman, Konwinski, Shenker, Stoica, Dominant Resource Fairness, NSDI 2011, Alg. 1: the next
task is launched for the user with the least dominant share, the largest of its shares of any resource. [I] users are
namespaces (virtual clusters of a trace); a user's jobs go in arrival order, one that does not fit is passed over, and
nothing that runs is preempted. With a single user this is fifo-skip.
"""

from dataclasses import dataclass
from typing import ClassVar

from tranche.policies.interfaces import PolicyTraits, PooledPolicy, Rank
from tranche.policies.jobs import JobState
from tranche.policies.states import ClusterState


@dataclass(frozen=True, slots=True)
class Drf(PooledPolicy):
    """Least dominant share first; a tenant's own jobs in arrival order."""

    name: ClassVar[str] = "drf"
    source: ClassVar[str] = "Dominant resource fairness between namespaces (Ghodsi et al., NSDI 2011)"
    traits: ClassVar[PolicyTraits] = PolicyTraits(
        precedence_reason="whose namespace has the smaller share",
        tracks_tenant_usage=True,
        ranks_by_group=True,
    )

    def rank(self, state: JobState, cluster: ClusterState, now: float) -> Rank:
        """Return the tenant's dominant share."""
        return (cluster.dominant_share(state.job.tenant), 0.0)

    def rank_group(self, state: JobState) -> str:
        """Return the tenant."""
        return state.job.tenant
