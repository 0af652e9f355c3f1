"""What the cluster offers: sites, the links between them, nodes and their resources."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Self

from tranche.model.node_constraints import Taint

GPU_KIND_LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "gpu.intel.com/product")
"""Node labels that name the kind of its GPUs, written by the vendors' feature discovery."""


@dataclass(frozen=True, slots=True)
class Resources:
    """An amount of what a node offers or a pod asks for."""

    cpu: int = 0
    """Millicores."""
    memory: int = 0
    """Bytes."""
    gpus: int = 0
    """Whole devices of the configured GPU resource (``nvidia.com/gpu`` by default)."""
    pods: int = 0
    """Pods; a pod asks for one."""

    def __add__(self, other: Self) -> "Resources":
        return Resources(
            self.cpu + other.cpu, self.memory + other.memory, self.gpus + other.gpus, self.pods + other.pods
        )

    def __sub__(self, other: Self) -> "Resources":
        return Resources(
            self.cpu - other.cpu, self.memory - other.memory, self.gpus - other.gpus, self.pods - other.pods
        )

    def fits(self, room: Self) -> bool:
        """Whether this request finds a place in the given room."""
        return self.cpu <= room.cpu and self.memory <= room.memory and self.gpus <= room.gpus and self.pods <= room.pods


class Tier(StrEnum):
    """Where a site stands."""

    EDGE = "Edge"
    CLOUD = "Cloud"


@dataclass(frozen=True, slots=True)
class Link:
    """A network path from one site to another."""

    bits_per_second: float
    latency_seconds: float = 0.0
    dedicated: bool = False
    """Every upload has the whole bandwidth, as in the model of JSAC'22; else uploads share it."""

    def transfer_seconds(self, size_bytes: float) -> float:
        """Time to bring so many bytes over this link alone, in seconds."""
        return self.latency_seconds + 8 * size_bytes / self.bits_per_second


@dataclass(frozen=True, slots=True)
class Site:
    """A group of nodes with fast links among themselves."""

    name: str
    tier: Tier = Tier.EDGE
    unlimited: bool = False
    """Behind an autoscaler: capacity is made on demand, nothing queues here."""
    links: Mapping[str, Link] = field(default_factory=lambda: MappingProxyType({}))
    """Links by the name of the other site; an entry for the site's own name is its internal network."""
    start_seconds: float = 0.0
    """Time that an unlimited site takes to make a node for a pod."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node as the planner sees it."""

    name: str
    site: str
    allocatable: Resources
    foreign: Resources = Resources()
    """What pods that are not ours use here."""
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    speed: float = 1.0
    """Mini-batches per second of its GPU kind, relative to the kind that a job's `step_seconds` was measured on."""

    @property
    def gpu_kind(self) -> str:
        """As the vendor's device labels say; "" if they do not."""
        return next((self.labels[label] for label in GPU_KIND_LABELS if label in self.labels), "")
