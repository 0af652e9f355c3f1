"""Dominant resource fairness between tenants.

Source: Ghodsi, Zaharia, Hindman, Konwinski, Shenker, Stoica, Dominant Resource Fairness, NSDI 2011, Alg. 1: the next
task is launched for the user with the least dominant share, the largest of its shares of any resource. [I] users are
namespaces (virtual clusters of a trace); a user's jobs go in arrival order, one that does not fit is passed over, and
nothing that runs is preempted. With a single user this is fifo-skip.
"""

from dataclasses import dataclass
from typing import ClassVar

from tranche.policies.base import PooledPolicy, Rank
from tranche.state.cluster import ClusterState
from tranche.state.entities import JobState


@dataclass(frozen=True, slots=True)
class Drf(PooledPolicy):
    """Least dominant share first; a tenant's own jobs in arrival order."""

    name: ClassVar[str] = "drf"
    source: ClassVar[str] = "Dominant resource fairness between namespaces (Ghodsi et al., NSDI 2011)"
    counts_held: ClassVar[bool] = True
    grouped: ClassVar[bool] = True
    behind: ClassVar[str] = "whose namespace has the smaller share"

    def rank(self, state: JobState, cluster: ClusterState, now: float) -> Rank:
        """The tenant's dominant share."""
        return (cluster.dominant_share(state.job.tenant), 0.0)

    def rank_group(self, state: JobState) -> str:
        """The tenant."""
        return state.job.tenant
