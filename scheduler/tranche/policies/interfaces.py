"""What a policy is: an order for one queue, or a dispatch rule that binds chunks to slots at arrival."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tranche.policies.choices import choose
from tranche.policies.states import ClusterState, Home, JobState, Key, NodeState

Rank = tuple[float, float]
"""Order of a job in a queue: the smaller runs first; equal ranks go to the earlier submission, then the smaller key."""


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


class Policy(ABC):
    """A scheduling algorithm: pure functions of state, clock and seed; its fields are its options."""

    name: ClassVar[str]
    source: ClassVar[str]
    """Publication and section."""
    preemptive: ClassVar[bool] = False
    plans_gangs: ClassVar[bool] = True
    behind: ClassVar[str]
    """How a job that runs first is described: "behind B, which …"."""
    rebuilds: ClassVar[bool] = True
    """All that it must remember is in spec and status; else it is for the simulator only."""

    def server_host(
        self, cluster: ClusterState, state: JobState, index: int, feasible: Sequence[NodeState], seed: int
    ) -> NodeState:
        """Which of the feasible nodes (at least one, by name) hosts parameter server `index`: any, by default."""
        return choose(feasible, seed, state.job.uid, index)


class QueuePolicy(Policy):
    """One queue feeds all slots: whoever ranks first and fits starts."""

    strict: ClassVar[bool] = False
    """The head of the queue blocks what is behind it."""
    first_fit: ClassVar[bool] = False
    """A worker goes to the first node, by name, with room for it; else to the one that it fills best."""
    fair: ClassVar[bool] = False
    """Shares of tenants count (`ClusterState.dominant_share`)."""
    grouped: ClassVar[bool] = False
    """All waiting jobs of a `group` rank alike, and ranks of groups may change with every decision."""

    @abstractmethod
    def rank(self, state: JobState, cluster: ClusterState, now: float) -> Rank:
        """The job's place in the order."""

    def slope(self, state: JobState, now: float) -> float:
        """By how much per second the first part of the rank falls while the job's windows train as they do now."""
        return 0.0

    def group(self, state: JobState) -> str:
        """Whom the job ranks alike with while both wait, if the policy is `grouped`."""
        return ""

    def level(self, state: JobState, cluster: ClusterState, now: float) -> int:
        """Which of a policy's priority queues the job is in; the planner notes it in the state, with the time."""
        return 0

    def next_change(self, state: JobState, cluster: ClusterState, now: float) -> float | None:
        """When level or promotion changes if nothing else happens, None if never."""
        return None

    def promotes(self, state: JobState, now: float) -> bool:
        """Whether what the job has attained is forgiven now, because it has waited so long."""
        return False

    def revision(self, cluster: ClusterState) -> int:
        """Rises when the ranks of all jobs have to be computed anew."""
        return 0


class BindingPolicy(Policy):
    """Chunks are bound to slots at arrival; every slot has its own queue."""

    preemptive: ClassVar[bool] = True
    plans_gangs: ClassVar[bool] = False

    @abstractmethod
    def key(self, state: JobState, chunk: int, seconds_per_batch: float) -> Key:
        """The chunk's rank in its slot's queue; the smaller runs first."""

    @abstractmethod
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
