"""Conversion of nodes to nodes of the planner."""

from tranche.kube.api.core_types import NodeObject
from tranche.kube.api.names import GPU_RESOURCES, GpuResources
from tranche.model import Node, Resources, Taint
from tranche.model.quantity import parse_bytes, parse_millicores

MAX_GPUS = 16_384
"""Maximum number of GPUs per node, far above real nodes: the planner keeps a queue per GPU, and a node may claim any
integer."""


def node_of(observed: NodeObject, site: str, foreign: Resources, gpu_resources: GpuResources = GPU_RESOURCES) -> Node:
    """Convert a node to a planner node.

    Args:
        observed: The node.
        site: Site of the node.
        foreign: Resources that foreign pods use on the node.
        gpu_resources: As in `pod_requests`.

    Raises:
        ValueError: a quantity cannot be read, or the node claims more than `MAX_GPUS` GPUs.
    """
    allocatable = node_allocatable(observed, gpu_resources)
    if allocatable.gpus > MAX_GPUS:
        raise ValueError(
            f"status.allocatable: {allocatable.gpus} of {allocatable.gpu_resource or gpu_resources[0]}, "
            f"at most {MAX_GPUS} can be planned"
        )
    return Node(
        name=observed.metadata.name,
        site=site,
        allocatable=allocatable,
        foreign=foreign,
        extended={
            name: parse_bytes(amount)
            for name, amount in observed.status.allocatable.items()
            if name not in ("cpu", "memory", "pods", *gpu_resources)
        },
        labels=observed.metadata.labels,
        # The others keep no pod away, and Cluster Autoscaler adds and removes them every few minutes at idle nodes.
        taints=tuple(Taint(t.key, t.value, t.effect) for t in observed.spec.taints if t.effect != "PreferNoSchedule"),
        unschedulable=observed.spec.unschedulable,
        ready=observed.ready,
        uid=observed.metadata.uid,
    )


def node_allocatable(observed: NodeObject, gpu_resources: GpuResources = GPU_RESOURCES) -> Resources:
    """Return the allocatable resources of a node, with the GPUs of the first of the GPU resources that it offers.

    Raises:
        ValueError: a quantity cannot be read.
    """
    offered = observed.status.allocatable
    cpu = parse_millicores(offered.get("cpu", 0))
    amounts = {name: cpu // 1000 if name == "cpu" else parse_bytes(offered.get(name, 0)) for name in gpu_resources}
    resource = next((name for name, amount in amounts.items() if amount), "")
    return Resources(
        cpu=cpu,
        memory=parse_bytes(offered.get("memory", 0)),
        gpus=amounts.get(resource, 0),
        pods=parse_bytes(offered.get("pods", 0)),
        gpu_resource=resource if len(gpu_resources) > 1 else "",
    )
