"""Shape of a pod: its requests and its node constraints, as the planner and the operator count them."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial, reduce
from typing import Any, TypeVar, get_args

import msgspec
from msgspec.structs import replace

from tranche.kube.api.core_types import (
    Container,
    ContainerStatus,
    Expression,
    Pod,
    PodToleration,
    Quantities,
    ResourceRequirements,
    Term,
)
from tranche.kube.api.names import GPU_RESOURCES, GpuResources
from tranche.model import Constraints, PodShape, Requirement, Resources, Toleration
from tranche.model.node_constraints import Operator
from tranche.model.quantity import parse_bytes, parse_millicores, parse_quantity

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
    return PodShape(pod_requests(pod, gpu_resources), pod_constraints(pod), has_deadline, _overhead(pod))


def is_best_effort(pod: Pod, requests: Resources) -> bool:
    """Return whether a pod with these requests has the QoS class BestEffort, for which its overhead does not count."""
    return PodShape(requests, overhead=_overhead(pod)).is_best_effort(requests)


def _overhead(pod: Pod) -> Resources:
    return _amount(ResourceRequirements(pod.spec.overhead), "")


def pod_requests(pod: Pod, gpu_resources: GpuResources = GPU_RESOURCES) -> Resources:
    """Return the requests of a pod by the rule of Kubernetes: the larger of init and run phase, plus overhead.

    While a container is resized in place, the largest of what is specified, allocated and set counts; if the kubelet
    says that the resize is infeasible, what is specified does not count. The same holds for requests of the whole pod.

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
            return dataclasses.replace(found, gpu_resource=name)
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
    nothing = Resources()
    needed = reduce(
        _larger, (container_requests(one, amount, nothing, Resources.__add__, _larger) for one in _in_resize(pod))
    )
    if pod.spec.resources is not None:
        needed = _pod_level(_whole_requests(pod, pod.spec.resources), needed)
    if pod.spec.overhead:
        needed += _amount(ResourceRequirements(pod.spec.overhead), gpu_resource)
    gpus = needed.cpu // 1000 if gpu_resource == "cpu" else needed.gpus
    return Resources(needed.cpu, needed.memory, gpus, pods=1)


def is_resized(pod: Pod) -> bool:
    """Return whether the kubelet has allocated or set other requests of a container or the pod than are specified."""
    if pod.spec.resources is not None and _whole_requests(pod, pod.spec.resources) != pod.spec.resources:
        return True
    asked = {one.name: one.resources.requests for one in (*(pod.spec.containers or ()), *pod.spec.init_containers)}
    return any(
        requests != asked.get(status.name)
        for status in _statuses(pod)
        for requests in (status.allocated_resources, status.resources and status.resources.requests)
        if requests
    )


def _statuses(pod: Pod) -> tuple[ContainerStatus, ...]:
    return (*pod.status.container_statuses, *pod.status.init_container_statuses)


def _in_resize(pod: Pod) -> tuple[Pod, ...]:
    """Return the pod as it is specified, as it is allocated and as it is set; without a resize only the first.

    As in `AggregateContainerRequests` of Kubernetes, an infeasible resize leaves out the first.
    """
    allocated = {one.name: one.allocated_resources for one in _statuses(pod) if one.allocated_resources}
    current = {one.name: one.resources.requests for one in _statuses(pod) if one.resources and one.resources.requests}
    if not (allocated or current):
        return (pod,)
    kept = _with_requests(pod, allocated), _with_requests(pod, allocated | current)
    return kept if _is_infeasible(pod) else (pod, *kept)


def _is_infeasible(pod: Pod) -> bool:
    return any(one.type == "PodResizePending" and one.reason == "Infeasible" for one in pod.status.conditions)


def _whole_requests(pod: Pod, asked: ResourceRequirements) -> ResourceRequirements:
    """Return the requests of the whole pod, while they are resized as `_in_resize`; its limits are those specified."""
    status = pod.status
    if status.resources is None:
        return asked
    known = (asked.requests, status.resources.requests, status.allocated_resources or {})[_is_infeasible(pod) :]
    largest = {
        name: max((one[name] for one in known if name in one), key=parse_quantity, default=amount)
        for name, amount in asked.requests.items()
    }
    return ResourceRequirements(largest, asked.limits)


def _with_requests(pod: Pod, requests: Mapping[str, Quantities]) -> Pod:
    """Return the pod with other requests of the containers that are named."""

    def changed(container: Container) -> Container:
        known = requests.get(container.name)
        return container if known is None else replace(container, resources=ResourceRequirements(known))

    spec = pod.spec
    containers = tuple(map(changed, spec.containers or ()))
    spec = replace(spec, containers=containers, init_containers=tuple(map(changed, spec.init_containers)))
    return replace(pod, spec=spec)


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
    """Return the requests, where a negative one counts as 0.

    The API server refuses it in a pod, and not in a template: until the dry run, a window of the job would free what
    others hold.
    """
    if not asked.requests and not asked.limits:
        return Resources()
    return Resources(
        max(0, parse_millicores(asked.request("cpu"))),
        max(0, parse_bytes(asked.request("memory"))),
        0 if gpu_resource == "cpu" else max(0, parse_bytes(asked.request(gpu_resource))),
    )


def _larger(one: Resources, other: Resources) -> Resources:
    return Resources(max(one.cpu, other.cpu), max(one.memory, other.memory), max(one.gpus, other.gpus))


def _pod_level(asked: ResourceRequirements, containers: Resources) -> Resources:
    """Return the requests of the whole pod, which replace those of its containers.

    Its limits apply only if no container has requests.
    """
    cpu, memory = containers.cpu, containers.memory
    if "cpu" in asked.requests or not cpu:
        cpu = max(0, parse_millicores(asked.request("cpu")))
    if "memory" in asked.requests or not memory:
        memory = max(0, parse_bytes(asked.request("memory")))
    return Resources(cpu, memory, containers.gpus)


def pod_constraints(pod: Pod) -> Constraints:
    """Return node selector, required node affinity and lasting tolerations of a pod."""
    spec = pod.spec
    required = spec.affinity and spec.affinity.node_affinity and spec.affinity.node_affinity.required
    return Constraints(
        selector=tuple(sorted(spec.node_selector.items())),
        affinity=tuple(_expressions(term) for term in required.node_selector_terms or ()) if required else None,
        tolerations=tuple(
            Toleration(t.key, t.operator or "Equal", t.value, t.effect) for t in lasting_tolerations(pod)
        ),
    )


def lasting_tolerations(pod: Pod) -> list[PodToleration]:
    """Return the tolerations of a pod without a time limit.

    With one, kube-scheduler binds the pod to a node with the taint, and Kubernetes deletes it when the time is over:
    further pods would follow it for as long as the node has the taint, such as during its maintenance.
    """
    return [one for one in pod.spec.tolerations if one.toleration_seconds is None]


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
