"""Settings of the planner."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tranche.estimate import LevelNetwork, NetworkPrior
from tranche.model.gpu_kind import GpuKinds
from tranche.model.tenancy import Tenancy
from tranche.model.topology import Topology
from tranche.state.node_health import HealthSettings


@dataclass(frozen=True, slots=True)
class PlannerSettings:
    """Settings of one planner; all of them have defaults."""

    seed: int = 0
    """Seed of random choices (parameter server hosts of the faithful policy)."""
    validate: bool = False
    """Check all invariants after every event; the time for that is proportional to the size of the cluster."""
    publishes: bool = True
    """Whether `PublishPlan` follows a change of a job's plan or ledger; a simulation writes no status."""
    fallbacks: int = 2
    """Number of fallback nodes of the same site that a window names besides its own node."""
    network: NetworkPrior = NetworkPrior()
    """Network properties that are assumed where no Site object describes the network."""
    topology: Topology = field(default_factory=Topology)
    """Topology levels of the nodes."""
    level_network: LevelNetwork | None = None
    """Links between the members of gangs by topology level; None: their communication takes no time."""
    uploads_reported: bool = False
    """Whether a copy of data counts as complete only after `ChunkStaged`; otherwise it does after the predicted Δ."""
    shared_uplinks: bool = False
    """Whether uploads from one site share its uplink: then every policy instructs its uploads and awaits reports."""
    node_exclusion_seconds: float = 300.0
    """Time for which a node that rejected a job's pod is excluded for this job, in seconds."""
    requires_admission: bool = False
    """Whether a job preempts others only after a dry run has admitted its pods; without an operator there is none."""
    preemption_pause_seconds: float = 3600.0
    """Time for which a job preempts no other after a pod of it was rejected or found no place; it doubles with each
    further one until a pod is placed."""
    longest_preemption_pause_seconds: float = 86_400.0
    """Upper bound of that pause."""
    failed_preemptions_per_hour: int = 5
    """Number of failed preemptions of a namespace within an hour, after which its jobs of which no pod has been placed
    preempt no other."""
    nodes_before_hold: int = 5
    """Number of different nodes in a row on which pods of a job find no place before the job is held."""
    unplaced_hold_seconds: float = 3600.0
    """Time for which such a job is held, unless its specification or a node changes before; also the longest pause of
    a job that has trained and whose pods do not start, and the first time for which staging to a site is given up."""
    eviction_hold_seconds: float = 300.0
    """Time for which a job is not preempted after an eviction of its pods was rejected, in seconds."""
    server_idle_seconds: float = 300.0
    """Time without windows after which parameter servers of a chunked job save and stop, in seconds.

    They stop only if later servers can read what they save, or if no worker has trained yet.
    """
    failure_backoff_seconds: float = 10.0
    """Back-off after a job's first failed pod, in seconds; it doubles with each failure, as for Kubernetes Jobs."""
    rejection_backoff_seconds: float = 30.0
    """Back-off after the API server rejected a job's pod, in seconds; it doubles with each rejection."""
    longest_backoff_seconds: float = 360.0
    """Upper bound of both back-offs."""
    gang_completion_timeout_seconds: float = 5.0
    """Longest time that the GPUs of finished gang members stay reserved until the other members end, in seconds."""
    health: HealthSettings = field(default_factory=HealthSettings)
    """When nodes are excluded because pods of different jobs fail or are refused there."""
    share_weights: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Relative weight of tenants (namespaces) under policies that count recent usage; 1 for tenants not listed."""

    tenancy: Tenancy = field(default_factory=Tenancy)
    """Limits of what the jobs of a namespace may claim; `TenancyChanged` replaces them."""
    gpu_kinds: GpuKinds | None = None
    """GPU kinds of nodes and their declared speeds; workers then start where their chunks complete soonest.

    None: nodes have the speeds that the host gives them, and each free GPU is used.
    """
    jobs_per_node_factor: int = 0
    """Number of jobs, of two namespaces if there are as many, that must agree before a node counts as slow or fast.

    0: every window corrects its node, as in the simulator, where declarations are not hostile.
    """
    learns_from_silent_windows: bool = True
    """Whether the duration of a window without reports says how fast its job is.

    False in rollouts: there, the end of a window that has overrun its prediction is an assumption.
    """

    def backoff_seconds(self, first_seconds: float, before: int) -> float:
        """Return the back-off in seconds after `before` earlier failures: doubled for each, up to the longest."""
        return min(first_seconds * 2.0 ** min(before, 30), self.longest_backoff_seconds)

    def pause_seconds(self, first_seconds: float, before: int) -> float:
        """Return a pause, such as of preemption, after `before` earlier failures: doubled for each, with a limit."""
        return min(first_seconds * 2.0 ** min(before, 30), self.longest_preemption_pause_seconds)
