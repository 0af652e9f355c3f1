"""Cluster model: sites, the links between them, nodes and their resources."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Self

from tranche.model.gpu_kind import GPU_KIND_LABELS
from tranche.model.node_constraints import Taint


@dataclass(frozen=True, slots=True)
class Resources:
    """Amount of resources that a node offers or a pod requests."""

    cpu: int = 0
    """Millicores."""
    memory: int = 0
    """Bytes."""
    gpus: int = 0
    """Whole devices of one GPU resource."""
    pods: int = 0
    """Number of pods; a pod requests one."""
    gpu_resource: str = ""
    """Name of the GPUs' resource, such as ``amd.com/gpu``, if the installation has several; otherwise empty."""

    def __add__(self, other: Self) -> "Resources":
        return Resources(
            self.cpu + other.cpu,
            self.memory + other.memory,
            self.gpus + other.gpus,
            self.pods + other.pods,
            self.gpu_resource or other.gpu_resource,
        )

    def __sub__(self, other: Self) -> "Resources":
        return Resources(
            self.cpu - other.cpu,
            self.memory - other.memory,
            self.gpus - other.gpus,
            self.pods - other.pods,
            self.gpu_resource or other.gpu_resource,
        )

    def larger(self, other: Self) -> "Resources":
        """Return the larger amount of each resource."""
        return Resources(
            max(self.cpu, other.cpu),
            max(self.memory, other.memory),
            max(self.gpus, other.gpus),
            max(self.pods, other.pods),
            self.gpu_resource or other.gpu_resource,
        )

    def parts_of(self, whole: Self) -> list[float]:
        """Return the parts of the whole's GPUs, CPU and memory, without resources of which the whole has none."""
        pairs = ((self.gpus, whole.gpus), (self.cpu, whole.cpu), (self.memory, whole.memory))
        return [part / total for part, total in pairs if total]

    def fits(self, room: Self) -> bool:
        """Return whether this request fits into the given free resources.

        A resource that is not requested does not count, as in kube-scheduler: other pods may use more of it than the
        node offers, for example after a device has failed.
        """
        return (
            (self.cpu <= room.cpu or not self.cpu)
            and (self.memory <= room.memory or not self.memory)
            and (self.gpus <= room.gpus or not self.gpus)
            and (self.pods <= room.pods or not self.pods)
            and (self.gpu_resource == room.gpu_resource or not self.gpus)
        )


class Tier(StrEnum):
    """Kind of location of a site."""

    EDGE = "Edge"
    CLOUD = "Cloud"


@dataclass(frozen=True, slots=True)
class Link:
    """A network path from one site to another."""

    bits_per_second: float
    latency_seconds: float = 0.0
    dedicated: bool = False
    """Whether every upload has the whole bandwidth, as in the model of JSAC'22; otherwise uploads share it."""

    def transfer_seconds(self, size_bytes: float) -> float:
        """Return the time to send `size_bytes` over this link without other traffic, in seconds."""
        return self.latency_seconds + 8 * size_bytes / self.bits_per_second


@dataclass(frozen=True, slots=True)
class Site:
    """A group of nodes with fast links among themselves."""

    name: str
    tier: Tier = Tier.EDGE
    unlimited: bool = False
    """Whether an autoscaler makes capacity on demand, so that jobs never queue here."""
    links: Mapping[str, Link] = field(default_factory=lambda: MappingProxyType({}))
    """Links by the name of the other site; an entry for the site's own name is its internal network."""
    start_seconds: float = 0.0
    """Time that an unlimited site takes to create a node for a pod."""
    gpu_resource: str = ""
    """Resource of the GPUs of an unlimited site, as in `Resources.gpu_resource`."""
    gpu_kind: str = ""
    """Kind of the GPUs of an unlimited site; empty: not declared."""
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Labels that every node of an unlimited site will have."""
    speed: float = 1.0
    """Speed of the GPU kind of an unlimited site, as in `Node.speed`."""


@dataclass(frozen=True, slots=True)
class Node:
    """Node as the planner sees it."""

    name: str
    site: str
    allocatable: Resources
    foreign: Resources = Resources()
    """Resources in use by pods that tranche does not manage."""
    extended: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Other allocatable resources by name, such as ``rdma/hca`` and ``ephemeral-storage``."""
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    speed: float = 1.0
    """Mini-batches per second of the node's GPU kind, relative to the kind that `Job.step_seconds` was measured on."""
    kind: str | None = None
    """GPU kind as the installation defines it (`GpuKinds`); None: that of the vendor's device labels."""
    uid: str = ""
    """UID of the Node object; a node that is registered again under its name has another one. Empty: unknown."""

    @property
    def gpu_kind(self) -> str:
        """GPU kind of the node; "" if it has none."""
        if self.kind is not None:
            return self.kind
        for label in GPU_KIND_LABELS:
            if label in self.labels:
                return self.labels[label]
        return ""
