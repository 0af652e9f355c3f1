"""Base class of the policies that place gangs by topology level: the most delayed job goes first.

Source: design ours [I] after the abstract of Dally, arXiv 2401.16492. Jobs are ordered by the training that they have
had, at their narrowest level, over their time since arrival, then by attained service. Gangs get the narrowest level
with room; when jobs complete, running gangs move to narrower levels if that pays; a job at the head of the queue
preempts others if it gains more than they lose. Subclasses decide which places a gang declines, and for how long.
Worked numbers: docs/reference/systems/dally-like.md.
"""

from dataclasses import dataclass

from tranche.policies.base import PolicyTraits, PooledPolicy, Rank
from tranche.policies.locality.network_gain import relative_progress
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState

TRAITS = PolicyTraits(
    precedence_reason="which waiting or the network has delayed more",
    places_by_level=True,
    ranks_each_decision=True,
)


@dataclass(frozen=True, slots=True)
class MostDelayed(PooledPolicy):
    """Order by relative progress; subclasses decide what gangs decline."""

    def rank(self, state: JobState, cluster: ClusterState, now: float) -> Rank:
        """Return the job's relative progress, then its attained GPU-seconds."""
        return (progress_of(state, cluster, now), state.attained_gpu_seconds(now))


def batches_left(state: JobState, now: float) -> float:
    """Return the remaining mini-batches of a job that its members train together."""
    seconds = state.nominal_batch_seconds
    return max(0.0, state.worker_seconds(now)) / seconds / state.job.chunks if seconds > 0 else 0.0


def level_seconds(state: JobState, cluster: ClusterState, level: int) -> float:
    """Return τ: the time of a mini-batch at a topology level, in seconds."""
    if cluster.level_network is None or state.job.servers:
        return state.nominal_batch_seconds
    return cluster.level_seconds(state, level)


def progress_of(state: JobState, cluster: ClusterState, now: float) -> float:
    """Return S of a job (`relative_progress`)."""
    done = state.job.batches_per_chunk_total - batches_left(state, now)
    narrowest = level_seconds(state, cluster, cluster.narrowest_level(state))
    return relative_progress(max(0.0, done), narrowest, now - state.job.submitted)
