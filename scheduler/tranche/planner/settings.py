"""What can be set about the planner."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tranche.estimate import NetworkPrior


@dataclass(frozen=True, slots=True)
class PlannerSettings:
    """What can be set."""

    seed: int = 0
    """Of random choices (parameter server hosts of the faithful policy)."""
    validate: bool = False
    """Re-check all invariants after every event; costs time in proportion to the cluster."""
    fallbacks: int = 2
    """Other nodes of the site on a window's short list."""
    network: NetworkPrior = NetworkPrior()
    """What is assumed where no Site describes the network."""
    uploads_reported: bool = False
    """Copies of data count when `ChunkStaged` says so; else they are believed to be there after Δ."""
    avoid_seconds: float = 300.0
    """How long a node that could not take a job's pod is not tried again for this job."""
    spare_seconds: float = 300.0
    """How long a job whose pods could not be evicted is not asked again to make way."""
    server_idle_seconds: float = 300.0
    """So long without windows, servers of a chunked job save and stop, if later ones find what was saved."""
    failure_backoff_seconds: float = 10.0
    """Pause after a job's first failed pod; doubles with each, as Kubernetes Jobs do."""
    rejection_backoff_seconds: float = 30.0
    """Pause after the API server refused a job's pod; doubles with each refusal."""
    longest_backoff_seconds: float = 360.0
    gang_completion_timeout_seconds: float = 5.0
    """Longest time that the GPUs of finished gang members stay reserved until the other members end, in seconds."""
    share_weights: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """What tenants (namespaces) are entitled to where recent shares count, relative to others; 1 if not given."""

    def backoff_seconds(self, first_seconds: float, before: int) -> float:
        """Pause after a failure that so many others came before: it doubles with each, up to the longest."""
        return min(first_seconds * 2.0 ** min(before, 30), self.longest_backoff_seconds)
