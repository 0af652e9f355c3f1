"""Configuration of a planner in a cluster, from which the leader, shadow mode and a what-if create equal planners."""

from collections.abc import Callable
from dataclasses import replace

import msgspec
from msgspec import structs

from tranche.estimate import LevelNetwork
from tranche.kube.api.names import GPU_RESOURCES, GpuResources
from tranche.model.gpu_kind import GPU_KIND_LABELS, GpuKinds
from tranche.model.tenancy import ClaimLimits, Tenancy
from tranche.model.topology import Topology
from tranche.planner import Planner, PlannerSettings
from tranche.planner.journal import Fact, JournaledPlanner
from tranche.policies import get_live_policy
from tranche.state.node_health import HealthSettings

MAX_LIMITED_NAMESPACES = 500
"""Maximum number of namespaces with limits in the annotation, 50 kB; a what-if does not know the others."""
JOBS_PER_NODE_FACTOR = 3
"""In a cluster, a declared speed may be wrong or hostile, so that no single job decides how fast a node is."""


class PlannerConfig(msgspec.Struct, frozen=True, rename="camel"):
    """Configuration of a planner: everything besides the objects of the cluster that affects its decisions.

    The defaults are those of the command line. The leader writes it to an annotation of the Lease.
    """

    policy: str = "chunk"
    seed: int = 0
    gpu_resources: GpuResources = GPU_RESOURCES
    server_idle_seconds: float = 300.0
    share_weights: dict[str, float] = {}
    health: HealthSettings = HealthSettings()
    gpu_kind_labels: tuple[str, ...] = GPU_KIND_LABELS
    """Node labels that name the kind of the node's GPUs."""
    gpu_speeds: dict[str, float] = {}
    """Declared speeds by GPU kind."""
    topology_levels: tuple[str, ...] = Topology().labels
    """Label keys of the topology levels below the WAN, narrowest first."""
    level_bandwidths: tuple[float, ...] = ()
    """Capacity of a link of each topology level and, at the end, of the WAN, in bit/s; empty: communication between
    the members of a gang takes no time."""
    limits: dict[str, ClaimLimits] = {}
    """Limits of namespaces; "" has those of all others."""

    def planner(
        self, note: Callable[[Fact], None] | None = None, *, validate: bool = False, requires_admission: bool = False
    ) -> Planner:
        """Create a planner without state.

        Args:
            note: Called with every event of every window, for the journal.
            validate: Check the invariants after every event.
            requires_admission: Whether an operator reports dry runs, which preemption then requires.

        Raises:
            ValueError: the policy is not known to this version.
        """
        policy = get_live_policy(self.policy)
        settings = replace(self.settings(validate=validate), requires_admission=requires_admission)
        return JournaledPlanner(policy, settings, note) if note else Planner(policy, settings)

    def settings(self, *, validate: bool = False) -> PlannerSettings:
        """Return the settings of the planner."""
        return PlannerSettings(
            seed=self.seed,
            validate=validate,
            server_idle_seconds=self.server_idle_seconds,
            share_weights=self.share_weights,
            health=self.health,
            tenancy=Tenancy(
                self.limits.get("", ClaimLimits()), {name: limits for name, limits in self.limits.items() if name}
            ),
            topology=Topology(self.topology_levels),
            level_network=LevelNetwork(self.level_bandwidths) if self.level_bandwidths else None,
            gpu_kinds=GpuKinds(self.gpu_kind_labels, self.gpu_speeds),
            jobs_per_node_factor=JOBS_PER_NODE_FACTOR,
        )

    def limited(self, tenancy: Tenancy) -> "PlannerConfig":
        """Return the configuration with limits of namespaces, as far as they fit into an annotation."""
        named = dict(list(tenancy.namespaces.items())[:MAX_LIMITED_NAMESPACES])
        return structs.replace(self, limits={"": tenancy.defaults, **named} if tenancy != Tenancy() else {})
