"""What a policy is: an order for one queue, or a dispatch rule that binds chunks to slots at arrival."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from tranche.policies.allocation.draft import Draft
from tranche.policies.seeded_choice import choose
from tranche.state.cluster import ClusterState
from tranche.state.entities import JobState, Key, NodeState, SlotBinding, TrackedWindow

Rank = tuple[float, float]
"""Order of a job in its tier: the smaller runs first; equal ranks go to the earlier submission, then smaller key."""
Standing = tuple[float, float, float]
"""Order of a job in a queue: its tier, then its rank."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the dispatch rule binds one chunk."""

    chunk: int
    home: SlotBinding
    key: Key
    ready_at: float
    batch_seconds: float
    cost: float
    """Q of equation (5) of JSAC'22 under `chunk-faithful`: the increase of Σ (w_j/D_j)(C_jd − r_j) that the rule
    expects, in seconds; else the chunk's expected flow time over D_j."""


class Policy(ABC):
    """A scheduling algorithm: pure functions of state, clock and seed; its fields are its options."""

    name: ClassVar[str]
    source: ClassVar[str]
    """Publication, and how far the policy is that of its authors: ours [I], reconstructed [R], else as printed."""
    preemptive: ClassVar[bool] = False
    plans_gangs: ClassVar[bool] = True
    learns: ClassVar[bool] = False
    """Speeds and sizes are corrected by what was measured (`tranche.estimate`); published algorithms are not."""
    behind: ClassVar[str]
    """How a job that runs first is described: "behind B, which …"."""
    central_servers: ClassVar[bool] = False
    """Parameter servers go where the narrowest path to the job's workers is widest; else to one published site."""
    rebuilds: ClassVar[bool] = True
    """All that it must remember is in spec and status; else it is for the simulator only."""

    def choose_server_node(
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
    sited: ClassVar[bool] = False
    """Chunks train only where their data are, and the planner copies data ahead of need."""
    free_moves: ClassVar[bool] = False
    """Data are everywhere at once: a reference, not a policy for a cluster."""
    counts_held: ClassVar[bool] = False
    """Shares of tenants count (`ClusterState.dominant_share`)."""
    grouped: ClassVar[bool] = False
    """All waiting jobs of a `group` rank alike, and ranks of groups may change with every decision."""

    distributes: ClassVar[bool] = False
    """It gives every job a number of workers, `distribute`, and these are the most that it may have."""

    @abstractmethod
    def rank(self, state: JobState, cluster: ClusterState, now: float) -> Rank:
        """The job's place in the order of its tier."""

    def tier(self, state: JobState, cluster: ClusterState) -> float:
        """Any job of a smaller tier ranks before any of a larger; constant between what `rank_epoch` announces."""
        return 0.0

    def standing(self, state: JobState, cluster: ClusterState, now: float) -> Standing:
        """The job's place among all."""
        return (self.tier(state, cluster), *self.rank(state, cluster, now))

    def rank_decrease_per_second(self, state: JobState, now: float) -> float:
        """By how much per second the first part of the rank falls while the job's windows train as they do now."""
        return 0.0

    def min_remaining_to_preempt(self, state: JobState, seconds: float, victim: JobState, now: float) -> float:
        """Seconds that a worker of another job that ranks behind must still train for longer to be stopped.

        Args:
            state: Who wants the slots.
            seconds: That its chunk would train there.
            victim: Whose worker would stop.
            now: Clock, in seconds.

        Returns:
            -inf if it may always be stopped, inf if never.
        """
        return -inf

    def may_preempt_window(self, state: JobState, victim: JobState, run: TrackedWindow, now: float) -> bool:
        """Whether this window of a victim may be stopped for the job now, if `min_remaining_to_preempt` allows it for the victim.

        Asked window by window, when those before it have been stopped.
        """
        return True

    def allocate_workers(self, cluster: ClusterState, now: float) -> Draft:
        """How many workers every job is to have from now on and which windows go on, if the policy `distributes`."""
        return Draft(cluster, now)

    def uploads_on_arrival(self) -> bool:
        """Whether a job's data are uploaded to every site from its arrival on, and no GPU is held meanwhile.

        For policies that are neither `sited` nor have `free_moves`; else a worker fetches its data after its start.
        """
        return False

    @property
    def fetches_after_start(self) -> bool:
        """Whether a worker fetches its data after its start and holds its GPU meanwhile."""
        return not (self.sited or self.free_moves or self.uploads_on_arrival())

    def cloud_price(self) -> float:
        """Hours of JCT that one GPU-hour at an unlimited site may cost; 0: only time counts."""
        return 0.0

    def prefetch_site_count(self) -> int:
        """To how many sites beside their own the data of an arriving job are brought, if the policy is `sited`."""
        return 0

    def usage_halflife_seconds(self) -> float:
        """After how many seconds GPU time counts half in tenants' recent shares; 0: these do not matter."""
        return 0.0

    def rank_group(self, state: JobState) -> str:
        """Whom the job ranks alike with while both wait, if the policy is `grouped`."""
        return ""

    def level(self, state: JobState, cluster: ClusterState, now: float) -> int:
        """Which of a policy's priority queues the job is in; the planner notes it in the state, with the time."""
        return 0

    def next_rank_change(self, state: JobState, cluster: ClusterState, now: float) -> float | None:
        """When level or promotion changes if nothing else happens, None if never."""
        return None

    def should_promote(self, state: JobState, now: float) -> bool:
        """Whether what the job has attained is forgiven now, because it has waited so long."""
        return False

    def rank_epoch(self, cluster: ClusterState) -> int:
        """Rises when the ranks of all jobs have to be computed anew."""
        return 0


@dataclass(frozen=True, slots=True)
class PooledPolicy(QueuePolicy):
    """A queue policy that does not plan where data are: all nodes are one pool.

    By constraint (2i) of JSAC'22 no worker is used before a job's data are there. With ``uploads=ahead`` (the default)
    the data of a job are uploaded to every site from its arrival on, and no GPU is held meanwhile, as under
    `chunk-faithful`; with ``uploads=held`` a worker fetches its data after its start and holds its GPU.
    """

    uploads: str = "ahead"
    """`ahead`: data are uploaded to every site from a job's arrival on, and no GPU is held meanwhile. `held`: a worker
    fetches its data after its start."""

    def __post_init__(self) -> None:
        if self.uploads not in ("ahead", "held"):
            raise ValueError(f"{self.name} knows uploads ahead and held, not {self.uploads!r}")

    def uploads_on_arrival(self) -> bool:
        """As the option says."""
        return self.uploads == "ahead"


class BindingPolicy(Policy):
    """Chunks are bound to slots at arrival; every slot has its own queue."""

    preemptive: ClassVar[bool] = True
    plans_gangs: ClassVar[bool] = False

    @abstractmethod
    def queue_key(self, state: JobState, chunk: int, seconds_per_batch: float) -> Key:
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
