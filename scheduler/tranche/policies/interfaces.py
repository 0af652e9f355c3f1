"""What a policy is: an order, optionally a dispatch rule, and a choice of parameter server hosts."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from tranche.policies.states import ClusterState, Home, JobState, Key, NodeState


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the dispatch rule binds one chunk."""

    chunk: int
    home: Home
    key: Key
    ready_at: float
    batch_seconds: float
    cost: float
    """Q: the increase of Σ (1/D_j)(C_jd − r_j) that the rule expects, in seconds."""


class Policy(Protocol):
    """A scheduling algorithm: pure functions of state, clock and seed, rebuilt from spec and status alone."""

    name: str
    source: str
    """Publication and section."""
    binds: bool
    """Chunks are bound to slots at arrival; else one queue feeds all slots."""
    preemptive: bool
    strict: bool
    """The head of the queue blocks what is behind it (queues only)."""
    plans_gangs: bool
    behind: str
    """How a job that runs first is described: "behind B, which …"."""

    def key(self, state: JobState, chunk: int, seconds_per_batch: float) -> Key:
        """The chunk's rank; the smaller runs first."""
        ...

    def dispatch(
        self,
        cluster: ClusterState,
        state: JobState,
        chunks: Sequence[int],
        now: float,
        sites: Collection[str] | None = None,
    ) -> tuple[list[Placement], bool]:
        """Homes of the chunks, in the order of dispatch, and ζ.

        Args:
            cluster: Everything else that runs and waits.
            state: The arriving job.
            chunks: Its chunks to place; one that fits no node is left out of the answer.
            now: Clock, in seconds.
            sites: Only these, if given (a restart keeps the sites that hold the data).
        """
        ...

    def server_host(
        self, cluster: ClusterState, state: JobState, index: int, feasible: Sequence[NodeState], seed: int
    ) -> NodeState:
        """Which of the feasible nodes (at least one, sorted by name) hosts parameter server `index`."""
        ...
