"""Summary of an admitted pod: what the API server made of a template, as far as its scheduling depends on it.

Also the requirements of a role's pods for planning: those of the template, with what admission adds.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from tranche.kube.api.core_types import Pod, ResourceRequirements
from tranche.kube.api.names import GpuResources
from tranche.kube.api.resources import AdmittedPod, AdmittedToleration, TrainingJob
from tranche.kube.convert.pod_shape import container_requests, lasting_tolerations, pod_shape
from tranche.model import PodShape, Resources, Toleration
from tranche.model.quantity import parse_bytes, parse_millicores

_PLACED_VOLUMES = frozenset({"persistentVolumeClaim", "ephemeral"})
"""Kinds of volumes that may exclude nodes."""
_MAX_ENTRIES = 64
"""Bound of each list and map in the CRD; more would make the API server reject the whole status."""


def admitted_pod(role: str, sent: Mapping[str, Any], raw: Mapping[str, Any]) -> AdmittedPod:
    """Summarize a pod that the API server returned.

    Args:
        role: Role of the pod in its job.
        sent: The pod as it was sent, as JSON.
        raw: The pod as it was returned, as JSON.

    Raises:
        ValueError: it is not a pod, or a quantity cannot be read.
    """
    pod = msgspec.convert(raw, Pod)
    return AdmittedPod(
        role=role,
        requests=_written(requests_by_name(pod)),
        overhead=_written(_amounts(ResourceRequirements(pod.spec.overhead))),
        node_selector=dict(sorted(pod.spec.node_selector.items())[:_MAX_ENTRIES]),
        tolerations=[
            AdmittedToleration(key=t.key, operator=t.operator or "Equal", value=t.value, effect=t.effect)
            for t in lasting_tolerations(pod)[:_MAX_ENTRIES]
        ],
        unplanned=sorted(set(_unplanned(sent.get("spec") or {}, raw.get("spec") or {}))),
    )


def _written(amounts: Mapping[str, int]) -> dict[str, str]:
    named = sorted(amounts.items())[:_MAX_ENTRIES]
    return {name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in named}


def planned_shape(resource: TrainingJob, role: str, pod: Pod, gpu_resources: GpuResources) -> PodShape:
    """Return the requirements of a role's pods: those of the template and, once a dry run has been made, of admission.

    Args:
        resource: The job.
        role: Role of the pods.
        pod: Their template as a pod.
        gpu_resources: As in `pod_requests`.

    Raises:
        ValueError: a quantity cannot be read.
    """
    shape, status = pod_shape(pod, gpu_resources), resource.status.admitted
    asked = requests_by_name(pod)
    extended = other_requests(asked, gpu_resources)
    shape = replace(shape, constraints=replace(shape.constraints, extended=extended)) if extended else shape
    if status is None or status.generation != resource.metadata.generation:
        return shape
    admitted = next((one for one in status.pods if one.role == role), None)
    if admitted is None:
        return shape
    counted = shape.requests.gpu_resource or gpu_resources[0]
    requests = _planned_requests(admitted.requests, counted)
    overhead = _planned_requests(admitted.overhead, counted)
    selector = {**dict(shape.constraints.selector), **admitted.node_selector}
    constraints = replace(
        shape.constraints,
        selector=tuple(sorted(selector.items())),
        tolerations=tuple(Toleration(t.key, t.operator, t.value, t.effect) for t in admitted.tolerations),
        extended=other_requests(
            asked | {name: parse_bytes(amount) for name, amount in admitted.requests.items()}, gpu_resources
        ),
    )
    return replace(shape, requests=shape.requests.larger(requests), constraints=constraints, overhead=overhead)


def other_requests(requests: Mapping[str, int], gpu_resources: GpuResources) -> tuple[tuple[str, int], ...]:
    """Return the requests for resources of which the planner does not count how much is in use."""
    counted = ("cpu", "memory", *gpu_resources)
    return tuple(sorted((name, n) for name, n in requests.items() if name not in counted and n))


def gpu_problem(requests: Mapping[str, int], gpu_resources: GpuResources) -> tuple[str, str] | None:
    """Return why the GPUs of a worker cannot be planned, as a CamelCase reason and a sentence; None if they can.

    Args:
        requests: Requests of the worker by resource name, as from `requests_by_name`.
        gpu_resources: Resource names of the GPUs of this installation.
    """
    planned = [name for name in gpu_resources if requests.get(name)]
    if len(planned) > 1:
        both = " and ".join(planned)
        return "GpuNotPlanned", f"a worker requests {both}, and only one GPU resource of a worker can be planned"
    if planned:
        return None
    unknown = [name for name, amount in sorted(requests.items()) if amount and _is_gpu(name)]
    if unknown:
        return "GpuNotPlanned", (
            f"requests {unknown[0]}, which is not one of the GPU resources of this installation "
            f"({', '.join(gpu_resources)}): request one of these, or let an administrator add it to the chart's "
            "gpuResources"
        )
    names = " or ".join(gpu_resources)
    return "NoGpuRequested", f"the worker template requests no GPU: add {names} to the limits of a container"


def server_gpu_problem(requests: Mapping[str, int], gpu_resources: GpuResources) -> tuple[str, str] | None:
    """Return why a parameter server cannot have these requests, as `gpu_problem`; None if it can.

    No policy counts a GPU of a parameter server, no job preempts it, and a server that holds the model runs without
    workers too.

    Args:
        requests: Requests of the parameter server by resource name, as from `requests_by_name`.
        gpu_resources: Resource names of the GPUs of this installation; `cpu` stands for GPUs on simulated nodes.
    """
    asked = sorted(n for n, amount in requests.items() if amount and n != "cpu" and (n in gpu_resources or _is_gpu(n)))
    if not asked:
        return None
    return "GpuNotPlanned", f"spec.parameterServers: only workers and the chief train on GPUs: remove {asked[0]}"


def _is_gpu(resource: str) -> bool:
    """Return whether a resource name looks like one of GPUs, as in the rules of the definition of TrainingJob."""
    return resource.endswith("/gpu") or resource.startswith(("nvidia.com/", "amd.com/", "gpu.intel.com/"))


def _planned_requests(requests: Mapping[str, str | int], gpu_resource: str) -> Resources:
    cpu = parse_millicores(requests.get("cpu", 0))
    gpus = cpu // 1000 if gpu_resource == "cpu" else parse_bytes(requests.get(gpu_resource, 0))
    return Resources(cpu, parse_bytes(requests.get("memory", 0)), gpus)


def requests_by_name(pod: Pod) -> dict[str, int]:
    """Return all requests of a pod by resource name, by the rule of Kubernetes (as `pod_requests`).

    CPU is in millicores, everything else in bytes or items.

    Raises:
        ValueError: a quantity cannot be read.
    """
    nothing: dict[str, int] = {}
    needed = container_requests(pod, _amounts, nothing, _sum, _largest)
    if pod.spec.resources is not None:
        needed |= _amounts(pod.spec.resources)
    return _sum(needed, _amounts(ResourceRequirements(pod.spec.overhead)))


def _amounts(asked: ResourceRequirements) -> dict[str, int]:
    names = {**asked.limits, **asked.requests}
    amounts = {
        name: parse_millicores(asked.request(name)) if name == "cpu" else parse_bytes(asked.request(name))
        for name in names
    }
    return {name: amount for name, amount in amounts.items() if amount > 0}


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def _largest(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def _unplanned(sent: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the pod's constraints that kube-scheduler checks and the planner does not plan with.

    The planner reads node affinity from the template, and not what admission makes of it.
    """
    if _required(spec, "nodeAffinity") != _required(sent, "nodeAffinity"):
        yield "nodeAffinity"
    if spec.get("schedulerName") != sent.get("schedulerName"):
        yield "schedulerName"
    for kind in ("podAffinity", "podAntiAffinity"):
        if _required(spec, kind):
            yield kind
    spreads = spec.get("topologySpreadConstraints") or ()
    if any(one.get("whenUnsatisfiable") != "ScheduleAnyway" for one in spreads):
        yield "topologySpreadConstraints"
    if spec.get("resourceClaims"):
        yield "resourceClaims"
    if any(not _PLACED_VOLUMES.isdisjoint(volume) for volume in spec.get("volumes") or ()):
        yield "volumes"
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    if any(port.get("hostPort") for container in containers for port in container.get("ports") or ()):
        yield "hostPorts"


def _required(spec: Mapping[str, Any], kind: str) -> Any:
    """Return the required terms of an affinity of the pod, as JSON."""
    affinity = (spec.get("affinity") or {}).get(kind) or {}
    return affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or None
