"""Shape of a pod: its requests and its node constraints, as the planner and the operator count them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, get_args

import msgspec

from tranche.kube.api.core_types import Expression, Pod, ResourceRequirements, Term
from tranche.kube.api.names import GPU_RESOURCES, GpuResources
from tranche.model import Constraints, PodShape, Requirement, Resources, Toleration
from tranche.model.node_constraints import Operator
from tranche.model.quantity import parse_bytes, parse_millicores

T = TypeVar("T")
_MAX_USAGES = 10_000
"""Maximum number of distinct usages that are kept, far more than a cluster has kinds of pods."""
_usages: dict[tuple[Resources, ...], tuple[Resources, ...]] = {}


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

    Equal usages are one object, because indexes keep that of each of tens of thousands of pods.

    Raises:
        ValueError: a quantity cannot be read.
    """
    usage = tuple(_requests(pod, name) for name in gpu_resources)
    if len(_usages) >= _MAX_USAGES:
        _usages.clear()
    return _usages.setdefault(usage, usage)


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


def excludes_labels(pod: Pod, labels: Mapping[str, str]) -> bool:
    """Return whether the pod requires other values of labels, so that no node with these takes it."""
    terms = pod_constraints(pod).affinity or ()
    return bool(terms) and all(
        any(
            one.operator == "In" and not one.field and labels.get(one.key, one.values[0]) not in one.values
            for one in term
            if one.values
        )
        for term in terms
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
