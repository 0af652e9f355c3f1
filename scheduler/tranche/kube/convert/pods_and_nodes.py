"""Requests, capacities and states of pods and nodes, as planner and operator use them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, TypeVar, get_args

import msgspec

from tranche.kube.api.core_types import ContainerState, Expression, NodeObject, Pod, ResourceRequirements, Term
from tranche.kube.api.fields import MAX_CHUNKS
from tranche.kube.api.names import GPU_RESOURCES, GpuResources
from tranche.kube.convert import training_container
from tranche.model import Constraints, Node, PodShape, Requirement, Resources, Taint, Toleration
from tranche.model.node_constraints import Operator
from tranche.model.quantity import parse_bytes, parse_millicores

__all__ = [
    "NodeObject",
    "Pod",
    "container_requests",
    "exit_code",
    "has_ended",
    "is_over",
    "node_allocatable",
    "node_of",
    "pod_constraints",
    "pod_of_template",
    "pod_requests",
    "pod_usage",
    "run_seconds",
    "started_at",
    "template_shape",
    "termination_progress",
    "trainer",
    "usage_index",
]

T = TypeVar("T")
_RANGE = "[0-9]{1,4}(-[0-9]{1,4})?"
_Chunks = Annotated[str, msgspec.Meta(pattern=rf"\A{_RANGE}(,{_RANGE})*\Z")]
_PROGRESS = msgspec.json.Decoder(dict[_Chunks, Annotated[float, msgspec.Meta(ge=0, le=2**53)]])
MOST_MESSAGE_BYTES = 4096
"""The kubelet keeps this many bytes of a termination message."""
MOST_GPUS = 16_384
"""Maximum number of GPUs per node, far above real nodes: the planner keeps a queue per GPU, and a node may claim any
integer."""


def pod_of_template(template: Mapping[str, Any]) -> Pod:
    """Read a PodTemplateSpec as a pod without name and status.

    Raises:
        ValueError: it is not a PodTemplateSpec.
    """
    return msgspec.convert(template, Pod)


def template_shape(template: Mapping[str, Any], gpu_resources: GpuResources = GPU_RESOURCES) -> PodShape:
    """Return the requests and node constraints of a pod created from a PodTemplateSpec.

    Raises:
        ValueError: it is not a PodTemplateSpec, or a quantity cannot be read.
    """
    return pod_shape(pod_of_template(template), gpu_resources)


def pod_shape(pod: Pod, gpu_resources: GpuResources = GPU_RESOURCES) -> PodShape:
    """Return the requests and node constraints of a pod.

    Raises:
        ValueError: a quantity cannot be read.
    """
    has_deadline = pod.spec.active_deadline_seconds is not None
    return PodShape(pod_requests(pod, gpu_resources), pod_constraints(pod), has_deadline)


def pod_requests(pod: Pod, gpu_resources: GpuResources = GPU_RESOURCES) -> Resources:
    """Return the requests of a pod by the rule of Kubernetes: the larger of init and run phase, plus overhead.

    An unfinished in-place resize is ignored.

    Args:
        pod: The pod.
        gpu_resources: Resource names of the GPUs, of which the first that the pod requests is counted; ``cpu`` counts
            whole cores, rounded down.

    Raises:
        ValueError: a quantity cannot be read.
    """
    if len(gpu_resources) == 1:
        return _requests(pod, gpu_resources[0])
    found = Resources()
    for name in gpu_resources:
        found = _requests(pod, name)
        if found.gpus:
            return replace(found, gpu_resource=name)
    return found


def pod_usage(pod: Pod, gpu_resources: GpuResources) -> tuple[Resources, ...]:
    """Return the requests of a pod once for each of the GPU resources, each time with the GPUs of that resource.

    Raises:
        ValueError: a quantity cannot be read.
    """
    return tuple(_requests(pod, name) for name in gpu_resources)


def usage_index(gpu_resource: str, gpu_resources: GpuResources) -> int:
    """Return the position in `pod_usage` of the usage of a node where that GPU resource is planned ("": none)."""
    return gpu_resources.index(gpu_resource) if gpu_resource else 0


def _requests(pod: Pod, gpu_resource: str) -> Resources:
    amount = partial(_amount, gpu_resource=gpu_resource)
    needed = container_requests(pod, amount, Resources(), Resources.__add__, _larger)
    if pod.spec.resources is not None:
        needed = _pod_level(pod.spec.resources, needed)
    if pod.spec.overhead:
        needed += _amount(ResourceRequirements(pod.spec.overhead), gpu_resource)
    gpus = needed.cpu // 1000 if gpu_resource == "cpu" else needed.gpus
    return Resources(needed.cpu, needed.memory, gpus, pods=1)


def container_requests(
    pod: Pod,
    amount: Callable[[ResourceRequirements], T],
    nothing: T,
    add: Callable[[T, T], T],
    larger: Callable[[T, T], T],
) -> T:
    """Return the larger of what the containers of a pod need in the init phase and in the run phase.

    Args:
        pod: The pod.
        amount: Returns the requests of one container.
        nothing: The amount of no container.
        add: Adds two amounts.
        larger: Returns the larger of two amounts, resource by resource.
    """
    sidecars = start = nothing
    for container in pod.spec.init_containers:
        needed = add(sidecars, amount(container.resources))
        start = larger(start, needed)
        if container.restart_policy == "Always":
            sidecars = needed
    run = sidecars
    for container in pod.spec.containers or ():
        run = add(run, amount(container.resources))
    return larger(run, start)


def _amount(asked: ResourceRequirements, gpu_resource: str) -> Resources:
    if not asked.requests and not asked.limits:
        return Resources()
    return Resources(
        parse_millicores(asked.request("cpu")),
        parse_bytes(asked.request("memory")),
        0 if gpu_resource == "cpu" else parse_bytes(asked.request(gpu_resource)),
    )


def _larger(one: Resources, other: Resources) -> Resources:
    return Resources(max(one.cpu, other.cpu), max(one.memory, other.memory), max(one.gpus, other.gpus))


def _pod_level(asked: ResourceRequirements, containers: Resources) -> Resources:
    """Pod-level requests replace those of the containers; pod-level limits apply only if no container has requests."""
    cpu, memory = containers.cpu, containers.memory
    if "cpu" in asked.requests or not cpu:
        cpu = parse_millicores(asked.request("cpu"))
    if "memory" in asked.requests or not memory:
        memory = parse_bytes(asked.request("memory"))
    return Resources(cpu, memory, containers.gpus)


def pod_constraints(pod: Pod) -> Constraints:
    """Return node selector, required node affinity and tolerations of a pod."""
    spec = pod.spec
    required = spec.affinity and spec.affinity.node_affinity and spec.affinity.node_affinity.required
    return Constraints(
        selector=tuple(sorted(spec.node_selector.items())),
        affinity=tuple(_expressions(term) for term in required.node_selector_terms or ()) if required else None,
        tolerations=tuple(Toleration(t.key, t.operator or "Equal", t.value, t.effect) for t in spec.tolerations),
    )


def _expressions(term: Term) -> tuple[Requirement, ...]:
    return tuple(
        _requirement(expression, is_field)
        for expressions, is_field in ((term.match_expressions, False), (term.match_fields, True))
        for expression in expressions
    )


def _requirement(expression: Expression, is_field: bool) -> Requirement:
    """Convert a match expression. An unknown operator matches no node, because no plan is better than a wrong one."""
    for operator in get_args(Operator):
        if operator == expression.operator:
            return Requirement(expression.key, operator, expression.values, is_field)
    return Requirement(expression.key, "In", (), is_field)


def is_over(pod: Pod) -> bool:
    """Whether the pod's containers have terminated permanently, or will never start."""
    if pod.status.phase in ("Succeeded", "Failed"):
        return True
    metadata = pod.metadata
    return metadata.deletion_timestamp is not None and (
        not pod.spec.node_name or metadata.deletion_grace_period_seconds == 0
    )


def has_ended(pod: Pod) -> bool:
    """Whether the pod has ended: `is_over`, or its training container has terminated and only other containers run.

    A kubelet reports the end of the last container up to a second before that of the pod, which frees its resources.
    In between the pod has not ended, so that its window keeps them.
    """
    return is_over(pod) or (training_container.has_terminated(pod) and training_container.others_remain(pod))


def is_evicted_by_scheduler(pod: Pod) -> bool:
    """Whether kube-scheduler evicted the pod to make room for one of a higher priority."""
    return any(
        c.type == "DisruptionTarget" and c.status == "True" and c.reason == "PreemptionByScheduler"
        for c in pod.status.conditions
    )


def exit_code(pod: Pod) -> int | None:
    """Return the exit code of the training container; None while it has not ended."""
    terminated = trainer(pod).terminated
    return terminated.exit_code if terminated else None


def started_at(pod: Pod) -> float | None:
    """Return the start time of the training container in whole seconds since the epoch; None before it."""
    state = trainer(pod)
    at = state.running.started_at if state.running else state.terminated.started_at if state.terminated else None
    return at.timestamp() if at else None


def run_seconds(pod: Pod) -> float:
    """Return the run time of the training container of an ended pod in whole seconds; 0 if it never ran."""
    terminated = trainer(pod).terminated
    if terminated is None or terminated.started_at is None or terminated.finished_at is None:
        return 0.0
    return (terminated.finished_at - terminated.started_at).total_seconds()


def termination_progress(pod: Pod) -> dict[int, float] | None:
    """Return the durable batches by chunk from the termination message of the training container.

    The run of a gang member counts as one batch, so it writes a fraction.

    Returns None without a valid message, because the container may write any text.
    """
    terminated = trainer(pod).terminated
    if terminated is None:
        return None
    text = terminated.message.encode(errors="replace")
    try:
        progress = _PROGRESS.decode(text) if len(text) <= MOST_MESSAGE_BYTES else None
    except msgspec.DecodeError:
        return None
    return _by_chunk(progress) if progress is not None else None


def _by_chunk(progress: Mapping[str, float]) -> dict[int, float] | None:
    """Expand the ranges of a message; None if they name more chunks than a job can have, or one of them twice."""
    batches: dict[int, float] = {}
    named = 0
    for text, count in progress.items():
        for part in text.split(","):
            first, _, last = part.partition("-")
            chunks = range(int(first), int(last or first) + 1)
            named += len(chunks)
            if named > MAX_CHUNKS:
                return None
            batches.update(dict.fromkeys(chunks, count))
    return batches if len(batches) == named else None


def trainer(pod: Pod) -> ContainerState:
    """Return the state of the training container."""
    return training_container.state_of(pod)


def node_of(observed: NodeObject, site: str, foreign: Resources, gpu_resources: GpuResources = GPU_RESOURCES) -> Node:
    """Convert a node to a planner node.

    Args:
        observed: The node.
        site: Site of the node.
        foreign: Resources that foreign pods use on the node.
        gpu_resources: As in `pod_requests`.

    Raises:
        ValueError: a quantity cannot be read, or the node claims more than `MOST_GPUS` GPUs.
    """
    allocatable = node_allocatable(observed, gpu_resources)
    if allocatable.gpus > MOST_GPUS:
        raise ValueError(
            f"status.allocatable: {allocatable.gpus} of {allocatable.gpu_resource or gpu_resources[0]}, "
            f"at most {MOST_GPUS} can be planned"
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
        taints=tuple(Taint(t.key, t.value, t.effect) for t in observed.spec.taints),
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
