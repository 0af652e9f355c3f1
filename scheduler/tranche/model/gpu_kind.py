"""GPU kinds of nodes: node labels that name them, and speeds that an administrator declares."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

GPU_KIND_LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "gpu.intel.com/product")
"""Node labels that name the kind of the node's GPUs, set by the vendors' feature discovery."""


@dataclass(frozen=True, slots=True)
class GpuKinds:
    """Labels that name GPU kinds, and the declared speeds of the kinds."""

    labels: tuple[str, ...] = GPU_KIND_LABELS
    speeds: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Mini-batches per second, relative to the kind to which ``model.stepTime`` refers; 1 for kinds not listed."""

    def kind_of(self, labels: Mapping[str, str]) -> str:
        """Return the GPU kind of a node with these labels; "" without such a label."""
        return next((labels[label] for label in self.labels if labels.get(label)), "")

    def speed_of(self, kind: str) -> float:
        """Return the declared speed of a kind."""
        return self.speeds.get(kind, 1.0)
