"""First in, first out: the baseline that every user compares with.

Strict: the head of the queue takes the next free slots and whoever is behind waits, even if it would fit. Nothing is
preempted. A chunked job counts as served when all its chunks have a worker.
"""

from collections.abc import Collection, Sequence

from tranche.policies.choices import choose
from tranche.policies.interfaces import Placement
from tranche.policies.states import ClusterState, JobState, Key, NodeState


class Fifo:
    """Arrival order, head-of-line blocking, no preemption."""

    name = "fifo"
    source = "First in, first out with head-of-line blocking (the default of most cluster schedulers)"
    binds = False
    preemptive = False
    strict = True
    plans_gangs = True
    behind = "which came earlier"

    def key(self, state: JobState, chunk: int, seconds_per_batch: float) -> Key:
        """Arrival order."""
        return (0.0, state.job.submitted, state.job.key, chunk)

    def dispatch(
        self,
        cluster: ClusterState,
        state: JobState,
        chunks: Sequence[int],
        now: float,
        sites: Collection[str] | None = None,
    ) -> tuple[list[Placement], bool]:
        """Bind nothing."""
        return [], False

    def server_host(
        self, cluster: ClusterState, state: JobState, index: int, feasible: Sequence[NodeState], seed: int
    ) -> NodeState:
        """Any feasible node."""
        return choose(feasible, seed, state.job.uid, index)
