"""Context shared by the planner's parts: the state, the time of the present event, and the effects of the event.

A handler changes the state of its job and records here what follows: jobs to look at again, plans to publish, times to
wake at, and instructions. `Planner` makes one decision from these records when all events are handled. So handlers need
neither each other nor the planner.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tranche.estimate import NodeEvidence
from tranche.planner.events import Event, Tick, WorkerEnded
from tranche.planner.instructions import Instruction
from tranche.planner.job_queue import JobQueue
from tranche.planner.review_times import ReviewTimes
from tranche.planner.settings import PlannerSettings
from tranche.planner.timers import Timers
from tranche.policies import BindingPolicy, Policy, QueuePolicy
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState
from tranche.state.node_health import RunningWorker
from tranche.state.phases import JobPhase


@dataclass(slots=True)
class PendingGangCompletion:
    """Held ends of a gang's finished members; they count together with the ends of the other members."""

    until: float
    """Time at which these ends count even if other members have not ended, in seconds on the planner's clock."""
    ends: dict[int, WorkerEnded] = field(default_factory=dict)
    """By attempt, in the order in which they arrived."""


@dataclass(slots=True, eq=False)
class WorkSet:
    """Jobs and nodes to reconsider, at the next decision or after the next change."""

    jobs: set[str] = field(default_factory=set)
    """Keys of jobs with chunks to dispatch or (at unlimited sites) to start; empty after each decision."""
    nodes: set[str] = field(default_factory=set)
    """Names of nodes for whose slots a binding policy chooses chunks again; empty after each decision."""
    unbound: set[str] = field(default_factory=set)
    """Keys of jobs with chunks that no node can take; they are retried when nodes or sites change."""
    unhosted: set[str] = field(default_factory=set)
    """Keys of jobs whose parameter servers did not fit; they are retried when capacity is freed."""
    unserved: dict[str, str] = field(default_factory=dict)
    """Parameter servers that have ended and are to be replaced, in words, by job; empty after each decision."""
    unstaged: dict[str, None] = field(default_factory=dict)
    """Keys of jobs with data to copy to a site for which a pod may be missing, in order."""
    staging_pods: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    """Job and site of staging pods by namespace; those that have ended may still be in it."""
    unstaged_at_limit: dict[str, dict[str, None]] = field(default_factory=dict)
    """Keys of jobs that wait until fewer staging pods of their namespace run, by namespace, in order."""


class PlannerContext:
    """State, queue, timers and outbox of one planner, and the event that is being handled."""

    __slots__ = (
        "binding",
        "cause",
        "cluster",
        "jobs_excluded_by_node",
        "now",
        "outbox",
        "pending_completions",
        "phases",
        "policy",
        "published",
        "queue",
        "reviews",
        "settings",
        "tenancy",
        "timers",
        "work",
    )

    def __init__(self, policy: Policy, settings: PlannerSettings) -> None:
        self.policy = policy
        self.settings = settings
        self.cluster = ClusterState(network=settings.network, seed=settings.seed, validate=settings.validate)
        self.cluster.places.topology = settings.topology
        self.cluster.level_network = settings.level_network
        self.cluster.uploads.shares_uplinks = settings.shared_uplinks
        self.cluster.requires_admission = settings.requires_admission
        self.cluster.weighs_gpu_kinds = settings.gpu_kinds is not None
        if settings.jobs_per_node_factor:
            self.cluster.speed_model.evidence = NodeEvidence(settings.jobs_per_node_factor)
            if settings.gpu_kinds is not None:
                self.cluster.speed_model.kind_evidence = NodeEvidence(settings.jobs_per_node_factor)
        self.cluster.health.settings = settings.health
        self.cluster.health.running = self._training
        self.binding = policy if isinstance(policy, BindingPolicy) else None
        self.queue = JobQueue(policy, self.cluster) if isinstance(policy, QueuePolicy) else None
        if self.queue is not None:
            self.cluster.uploads.shares_targets = self.queue.policy.expects_contention()
            shares = self.cluster.shares
            shares.halflife_seconds = self.queue.policy.usage_halflife_seconds()
            shares.weights = settings.share_weights
            shares.counted = self.queue.policy.traits.tracks_tenant_usage or shares.halflife_seconds > 0
        self.tenancy = settings.tenancy
        """Limits of namespaces that are in force now."""
        self.work = WorkSet()
        self.timers = Timers()
        self.reviews = ReviewTimes()
        self.jobs_excluded_by_node: dict[str, set[str]] = {}
        """Keys of jobs that exclude a node because it rejected one of their pods, by node."""
        self.pending_completions: dict[str, PendingGangCompletion] = {}
        """Held ends of gang members, by job."""
        self.phases: dict[str, JobPhase] = {}
        """Phases of the jobs after the last decision, kept to check their transitions (`PlannerSettings.validate`)."""
        self.published: dict[str, None] = {}
        """Jobs whose plans are written after the decision, in order."""
        self.outbox: list[Instruction] = []
        self.cause: Event = Tick()
        """Event that is being handled; every instruction carries it."""
        self.now = 0.0
        """Planner's clock at that event, in seconds."""

    def _training(self) -> Iterator[RunningWorker]:
        """Yield all workers that train."""
        for key, state in self.cluster.jobs.items():
            for run in state.runs.values():
                if run.started is not None and not run.closing and run.home.node:
                    yield RunningWorker(key.partition("/")[0], run.home.node, run.started, self.now - run.started)

    def begin(self, now: float) -> None:
        """Start handling the events of one time."""
        self.outbox, self.published, self.now = [], {}, now

    # ---- what follows from an event

    def instruct(self, instruction: Instruction) -> None:
        """Add an instruction to the outbox."""
        self.outbox.append(instruction)

    def publish(self, key: str) -> None:
        """Schedule a write of the job's status after the decision."""
        self.published[key] = None

    def wake(self, at: float, key: str) -> None:
        """Set a timer to reconsider the job at that time."""
        self.timers.wake(at, key)

    def retry(self, at: float, key: str) -> None:
        """Reconsider the job at that time at the latest; a job has one such timer, that of the earliest time."""
        self.timers.retry(at, key)

    def touch(self, state: JobState) -> None:
        """Reconsider the job, and the nodes that its chunks are bound to, in the next decision."""
        self.work.jobs.add(state.job.key)
        if self.queue is not None:
            self.queue.stale[state.job.key] = None
        else:
            self.work.nodes.update(e.home.node for e in state.entries.values() if e.home.node is not None)

    def rank_again(self, state: JobState) -> None:
        """Rank the job again in the next decision, under a queue policy."""
        if self.queue is not None:
            self.queue.stale[state.job.key] = None

    def capacity_freed(self, node: str | None) -> None:
        """Reconsider jobs that may fit now, because capacity was freed on the node or (None) anywhere."""
        if node is not None:
            self.work.nodes.add(node)
        if self.queue is None:
            for key in self.work.unhosted & self.cluster.jobs.keys():
                self.touch(self.cluster.jobs[key])
        else:
            known = self.cluster.nodes.get(node or "")
            self.queue.freed_sites.add(known.node.site if known is not None else "")

    def rank_fell(self, state: JobState) -> None:
        """Reconsider jobs that may preempt the job's windows now, because its rank fell."""
        self.capacity_freed(None)
        self.reconsider_preemption(state)

    def reconsider_preemption(self, state: JobState) -> None:
        """Let jobs try to preempt this one again: its restart cost fell, or its remaining time rose."""
        if self.queue is not None:
            self.queue.invalidate_preemption({run.home.site for run in state.runs.values()})

    def quota_freed(self, state: JobState) -> None:
        """Reconsider jobs that the quotas of the job's namespace held back, because it uses less."""
        if self.cluster.quotas.by_namespace:
            self.namespace_freed(state.job.namespace)

    def namespace_freed(self, namespace: str) -> None:
        """Reconsider jobs that the quotas of a namespace held back, at any site, because usage has fallen."""
        if namespace not in self.cluster.quotas.by_namespace:
            return
        if self.queue is not None:
            self.queue.freed_sites.add("")
        for state in self.cluster.jobs.values() if self.queue is None else ():
            if state.job.namespace == namespace:
                self.touch(state)

    def capacity_changed(self) -> None:
        """Reconsider chunks that no node could take, because nodes or sites have changed."""
        self.work.jobs |= self.work.unbound
        if self.queue is not None and (
            self.queue.policy.traits.needs_local_data or self.queue.policy.uploads_on_arrival()
        ):
            self.queue.places_changed = True  # data may be at a site that has lost its nodes
        self.capacity_freed(None)
