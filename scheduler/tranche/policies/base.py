"""Base classes of the policies: a rank for one queue, or a dispatch rule that binds chunks to slots at arrival.

A policy is a frozen dataclass whose fields are its options. Its fixed properties are in `PolicyTraits`, and the planner
calls its other methods ("hooks") at the moments that their docstrings name. Hooks are pure functions: they read the
state and must not change it, and equal arguments give equal results, so that a planner that restarts, a rollout of the
plan and the simulator decide alike. Times are in seconds on the planner's clock (Unix time in production, time since
the start in the simulator).
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from tranche.model.tenancy import class_of
from tranche.policies.allocation.draft import Draft
from tranche.policies.seeded_choice import choose
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState, QueueKey
from tranche.state.node import NodeState
from tranche.state.window import SlotBinding, TrackedWindow

Rank = tuple[float, float]
"""Order of a job in its tier: the smaller runs first; equal ranks go to the earlier submission, then smaller key."""
TieredRank = tuple[float, float, float]
"""Order of a job in a queue: its tier, then its rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTraits:
    """Fixed properties of a policy that decide how the planner treats its jobs.

    Traits do not depend on the policy's options, the state or the time; what does is a hook of the policy. The traits
    below `recoverable` concern queue policies only.
    """

    precedence_reason: str
    """Why a job of the same tier runs before another, as a relative clause for explanations: "waits for 1 GPU, behind
    B, *which has less work left*"."""
    preemptive: bool = False
    """Whether a running worker may be stopped for a job that ranks before its own."""
    uses_weights: bool = False
    """Whether the order of the jobs depends on their weights, if no option decides it (`Policy.uses_weights`)."""
    supports_gangs: bool = True
    """Whether gangs of more than one pod can be planned; else the planner rejects them."""
    uses_learned_estimates: bool = False
    """Whether speeds and sizes are corrected by measurements (`tranche.estimate`); published algorithms use those that
    the specification declares."""
    optimizes_server_site: bool = False
    """Whether parameter servers go to the site whose narrowest path to the job's workers is the widest; else to the
    published site, that of the data or of most chunks."""
    recoverable: bool = True
    """Whether a restarted planner can restore all that the policy remembers from spec and status; else the policy is
    for the simulator only."""

    head_of_line_blocking: bool = False
    """Whether the first job of the queue blocks those behind it, even those that would fit."""
    first_fit: bool = False
    """Whether a worker takes the first node, by name, with room for it; else the one that it fills best."""
    needs_local_data: bool = False
    """Whether chunks train only at sites that hold their data; the planner then copies data ahead of need."""
    free_data_movement: bool = False
    """Whether data are at every site at once, at no cost: for a reference, not for a cluster."""
    tracks_tenant_usage: bool = False
    """Whether the planner counts what each tenant's open windows hold, for `ClusterState.dominant_share`."""
    ranks_by_group: bool = False
    """Whether all waiting jobs of one `QueuePolicy.rank_group` have the same rank, and the ranks of groups may change
    with every decision."""
    places_by_level: bool = False
    """Whether gangs get places at the narrowest topology level with room and may decline them
    (`QueuePolicy.seconds_to_accept`), move to narrower levels, and preempt others if they gain more than these lose."""
    ranks_each_decision: bool = False
    """Whether all waiting jobs are ranked again before each decision, because their ranks change with time."""
    allocates_workers: bool = False
    """Whether `QueuePolicy.allocate_workers` gives each job the number of workers that it may have at most."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Slots that the dispatch rule has chosen for one chunk."""

    chunk: int
    home: SlotBinding
    key: QueueKey
    ready_at: float
    """When the chunk's data are there, in seconds on the planner's clock."""
    batch_seconds: float
    """Expected time of a mini-batch there, in seconds."""
    cost: float
    """Q of equation (5) of JSAC'22 under `chunk-faithful`: the increase of Σ (w_j/D_j)(C_jd − r_j) that the rule
    expects, in seconds; else the chunk's expected flow time over D_j."""


class Policy(ABC):
    """A scheduling algorithm: pure functions of state, clock and seed; its fields are its options."""

    name: ClassVar[str]
    """Name in the registry, on command lines and in the chart's values."""
    source: ClassVar[str]
    """Publication, and how far the policy is that of its authors: ours [I], reconstructed [R], else as printed."""
    traits: ClassVar[PolicyTraits]

    uses_tiers: ClassVar[bool] = False
    """Whether every job of a higher priority class ranks before all jobs of lower ones."""

    @property
    def used(self) -> str:
        """Uses of the policy, for lists."""
        return "live, simulated" if self.traits.recoverable else "simulated"

    @property
    def preempts(self) -> bool:
        """Whether it stops running workers for other jobs, by their ranks or by topology level."""
        return self.traits.preemptive or self.traits.places_by_level

    @property
    def uses_weights(self) -> bool:
        """Whether the order of the jobs depends on their weights."""
        return self.traits.uses_weights

    @property
    def draws(self) -> bool:
        """Whether the seed decides more than the nodes of parameter servers (`choose_server_node`)."""
        return False

    @property
    def corrects_declared_sizes(self) -> bool:
        """Whether declared sizes of gangs and jobs of one chunk are corrected by completed jobs of the namespace."""
        return False

    def precedence_reason(self, first: JobState, second: JobState, cluster: ClusterState, now: float) -> str:
        """Return why the first job comes before the second, as a relative clause for explanations."""
        return self.traits.precedence_reason

    def choose_server_node(
        self, cluster: ClusterState, state: JobState, index: int, feasible: Sequence[NodeState], seed: int
    ) -> NodeState:
        """Return the node that hosts a parameter server. The default draws one uniformly by the seed.

        The planner calls it for each parameter server or chief that it places on its own.

        Args:
            cluster: State of the cluster.
            state: The server's job.
            index: Number of the server within its job.
            feasible: Nodes with room for it, at least one, by name.
            seed: Seed of the planner.
        """
        return choose(feasible, seed, state.job.uid, index)


class QueuePolicy(Policy):
    """A policy with one queue for all slots: the first job in rank that fits starts."""

    uses_tiers: ClassVar[bool] = True

    @abstractmethod
    def rank(self, state: JobState, cluster: ClusterState, now: float) -> Rank:
        """Return the job's place within its tier; the smaller rank runs first.

        The planner keeps the result until the job, its windows or the rank epoch has changed, or the time has come that
        `next_rank_change` has given. Between these moments the rank of a job without running windows must be constant
        (or, if the policy `ranks_by_group`, equal for all jobs of a group), and that of a job with running windows may
        only fall by `rank_decrease_per_second`.
        """

    def tier(self, state: JobState, cluster: ClusterState) -> float:
        """Return the job's tier: every job of a smaller tier ranks before all jobs of larger ones.

        The default is that of its priority class. It must be constant while the job and `rank_epoch` are.
        """
        return -float(state.job.priority)

    def tiered_rank(self, state: JobState, cluster: ClusterState, now: float) -> TieredRank:
        """Return the job's place in the whole queue: tier, then rank."""
        return (self.tier(state, cluster), *self.rank(state, cluster, now))

    def precedence_reason(self, first: JobState, second: JobState, cluster: ClusterState, now: float) -> str:
        """Return why the first job ranks before the second: the priority class, the order of arrival, or the rank."""
        if first.job.priority > second.job.priority:
            return f"which has the higher priority class {class_of(first.job.priority)}"
        if self.tiered_rank(first, cluster, now) == self.tiered_rank(second, cluster, now):
            return "which came earlier"
        return self.traits.precedence_reason

    def rank_decrease_per_second(self, state: JobState, now: float) -> float:
        """Return by how much the first number of the rank falls per second while the job's present windows train."""
        return 0.0

    def min_remaining_to_preempt(self, state: JobState, seconds: float, victim: JobState, now: float) -> float:
        """Return the remaining time above which a worker of a job that ranks behind may be stopped, in seconds.

        The planner calls it if the policy is `preemptive`, for jobs that rank behind the waiting one, the last first.

        Args:
            state: The waiting job.
            seconds: Training time of one of its chunks in the slots that would become free.
            victim: The job whose worker would stop.
            now: Clock, in seconds.

        Returns:
            Seconds; -inf if the worker may always be stopped, inf if never.
        """
        return -inf

    def may_preempt_window(self, state: JobState, victim: JobState, run: TrackedWindow, now: float) -> bool:
        """Return whether this window of a victim may be stopped for the waiting job.

        The planner calls it window by window, after those before it have been stopped; `min_remaining_to_preempt` has
        to allow it as well.
        """
        return True

    def fills_progressively(self) -> bool:
        """Return whether a chunked job gets one worker at a time, and ranks are compared again after each."""
        return False

    def worker_limit(self, state: JobState, cluster: ClusterState) -> int | None:
        """Return the most workers on nodes that a chunked job may have; None: as many as it asks for.

        The planner calls it whenever it ranks the job, unless the policy `allocates_workers`.
        """
        return None

    def prefers_levels(self, state: JobState, cluster: ClusterState) -> bool:
        """Return whether a gang that names no topology level takes the narrowest one that has room for it now."""
        return False

    def allocate_workers(self, cluster: ClusterState, now: float) -> Draft:
        """Return how many workers each job may have at most, and which windows go on.

        The planner calls it if the policy `allocates_workers`, before it serves the queue, when jobs, the number of
        workers that they can use, or nodes have changed, or a new period of `allocation_seconds` begins. Windows that
        are not in the draft are closed.
        """
        return Draft(cluster, now)

    def allocation_seconds(self) -> float:
        """Return the length of the periods for which an allocation holds, in seconds; 0: it holds until an event.

        Periods begin at multiples of it. While windows are open on nodes, the planner allocates again in each period.
        """
        return 0.0

    def note(self, state: JobState, now: float) -> str:
        """Return what the explanation of an active job adds about its last allocation; "" for nothing."""
        return ""

    def uploads_on_arrival(self) -> bool:
        """Return whether a job's data are uploaded to every site from its arrival on, while it holds no GPU.

        This concerns policies that neither need local data nor assume free data movement. If it is False, a worker
        fetches its data after its start.
        """
        return False

    @property
    def fetches_after_start(self) -> bool:
        """Whether a worker fetches its data after its start and holds its GPU meanwhile."""
        traits = self.traits
        return not (traits.needs_local_data or traits.free_data_movement or self.uploads_on_arrival())

    def cloud_price(self) -> float:
        """Return the hours of JCT that one GPU-hour at an unlimited site may cost; 0: only time counts."""
        return 0.0

    def groups_by_bandwidth(self) -> bool:
        """Return whether a gang starts inside the best-connected sites with room for it.

        See `tranche.planner.scheduling.bandwidth_group`.
        """
        return False

    def split_factor(self) -> float:
        """Return how many times as long as on an idle slot the rest of a window takes that is moved there; 0: never.

        See `tranche.planner.scheduling.chunk_split`.
        """
        return 0.0

    def faster_factor(self) -> float:
        """Return how many times as long as on an idle faster GPU the rest of a window takes that moves there; 0: never.

        See `tranche.planner.scheduling.faster_gpu`.
        """
        return 0.0

    def expects_contention(self) -> bool:
        """Return whether expected uploads share the uplinks of both of their sites, if uploads share uplinks at all.

        If so, the choice of the sites to which data are copied counts the uploads in progress.
        """
        return False

    def prefetch_site_count(self) -> int:
        """Return the number of sites to which an arriving job's data are copied, if the policy `needs_local_data`."""
        return 0

    def usage_halflife_seconds(self) -> float:
        """Return the time after which a tenant's GPU time counts half in its recent share; 0: it is not counted.

        The planner calls it once, at its start.
        """
        return 0.0

    def rank_group(self, state: JobState) -> str:
        """Return the group with which the job shares its rank while it waits, if the policy `ranks_by_group`."""
        return ""

    def level(self, state: JobState, cluster: ClusterState, now: float) -> int:
        """Return the number of the priority queue that the job is in, for policies with several queues.

        The planner calls it whenever it ranks the job, and stores the result in `JobState.level` with the time of the
        change in `JobState.level_since`. A change also makes waiting jobs try again to preempt this one.
        """
        return 0

    def next_rank_change(self, state: JobState, cluster: ClusterState, now: float) -> float | None:
        """Return the time at which level, promotion or rank changes if nothing else happens; None if never.

        The planner calls it after it has ranked the job, and ranks the job again at that time.
        """
        return None

    def should_promote(self, state: JobState, now: float) -> bool:
        """Return whether the service that the job has attained no longer counts, because the job has waited too long.

        The planner calls it before `level`. If it is True, the service attained so far is stored in
        `JobState.gpu_seconds_at_promotion`, and `level` subtracts it.
        """
        return False

    def seconds_to_accept(self, state: JobState, cluster: ClusterState, level: int, waited: float) -> float:
        """Return for how many more seconds a gang declines places of a topology level, if the policy places by level.

        Args:
            state: The waiting gang.
            cluster: State of the cluster.
            level: Narrowest topology level at which the gang fits now.
            waited: Time for which it has declined places since it began to wait, in seconds.

        Returns:
            Seconds; 0 or less if it accepts the place, infinity if it never does.
        """
        return 0.0

    def rank_epoch(self, cluster: ClusterState) -> int:
        """Return a number that rises when the ranks of all jobs have changed.

        The planner calls it before each decision, and ranks all jobs again if the number is not that of the last one.
        """
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
        """Return whether the option `uploads` is `ahead`."""
        return self.uploads == "ahead"


class BindingPolicy(Policy):
    """A policy that binds chunks to slots at arrival; every slot has its own queue."""

    @abstractmethod
    def queue_key(self, state: JobState, chunk: int, seconds_per_batch: float) -> QueueKey:
        """Return the chunk's place in the queues of its slots; the smaller key runs first.

        The planner calls it for chunks that `dispatch` did not place: those of windows that it restores, or of pods
        that were bound elsewhere.

        Args:
            state: The chunk's job.
            chunk: Its number.
            seconds_per_batch: Expected time of a mini-batch in these slots, in seconds.
        """

    @abstractmethod
    def dispatch(
        self,
        cluster: ClusterState,
        state: JobState,
        chunks: Sequence[int],
        now: float,
        sites: Collection[str] | None = None,
    ) -> tuple[list[Placement], bool]:
        """Return slots for the chunks, in the order of dispatch, and ζ.

        The planner calls it when the job arrives, and again for chunks that have lost their slots or found none.

        Args:
            cluster: Everything else that runs and waits.
            state: The arriving job.
            chunks: Its chunks to place; one that fits no node is left out of the result.
            now: Clock, in seconds.
            sites: Use only these, if given (after a restart, chunks stay at the sites that hold their data).

        Returns:
            Placements, and ζ: whether the workers and the parameter servers are together in the cloud.
        """
