"""Conversion of ResourceQuotas: limits on requests and on the number of pods, and the priority tiers that they cover.

Other limits (``limits.cpu``, storage, services) are enforced by the API server alone; the planner receives its
rejection as `WorkerRejected`. A quota with an unknown scope does not cover pods of TrainingJobs.
"""

from collections.abc import Mapping

from tranche.kube.api.core_types import Quantities, QuotaObject, ScopeExpression
from tranche.kube.api.names import GPU_RESOURCES, PRIORITIES, GpuResources
from tranche.model import Measure, Quota, QuotaLimit
from tranche.model.quantity import parse_bytes, parse_millicores

_MEASURES: Mapping[str, Measure] = {
    "cpu": "cpu",
    "requests.cpu": "cpu",
    "memory": "memory",
    "requests.memory": "memory",
    "pods": "pods",
    "count/pods": "pods",
}
_REQUESTS = "requests."
"""Prefix of a quota's extended resources; Kubernetes has no other quota of them."""


def quota_of(observed: QuotaObject, gpu_resources: GpuResources = GPU_RESOURCES) -> Quota | None:
    """Convert a quota; None if it does not limit pods of TrainingJobs.

    Args:
        observed: The ResourceQuota.
        gpu_resources: Resource names of the GPUs.

    Raises:
        ValueError: a quantity cannot be read.
    """
    selector = observed.spec.scope_selector
    scopes = [ScopeExpression(name, "Exists") for name in observed.spec.scopes]
    priorities, best_effort, terminating = frozenset(PRIORITIES.values()), {True, False}, {True, False}
    for scope in [*scopes, *(selector.match_expressions if selector else ())]:
        match scope.scope_name:
            case "PriorityClass":
                priorities &= _priorities(scope)
            case "BestEffort":
                best_effort &= {True}
            case "NotBestEffort":
                best_effort &= {False}
            case "Terminating":
                terminating &= {True}
            case "NotTerminating":
                terminating &= {False}
            case _:
                return None
    limits = tuple(
        QuotaLimit(name, measure, amount(measure, value), gpu_resource=_resource(name, measure, gpu_resources))
        for name, value in sorted((observed.status.hard or observed.spec.hard).items())
        if (measure := _measure(name, gpu_resources)) is not None
    )
    if not (limits and priorities and best_effort and terminating):
        return None
    return Quota(
        observed.metadata.namespace,
        observed.metadata.name,
        limits,
        None if priorities == frozenset(PRIORITIES.values()) else priorities,
        None if len(best_effort) > 1 else best_effort.pop(),
        None if len(terminating) > 1 else terminating.pop(),
    )


def used_of(observed: QuotaObject, quota: Quota) -> dict[str, int]:
    """Return the used amount of each limit by resource, in planner units.

    Raises:
        ValueError: a quantity cannot be read.
    """
    used: Quantities = observed.status.used
    return {limit.resource: amount(limit.measure, used.get(limit.resource, 0)) for limit in quota.limits}


def amount(measure: Measure, value: str | float) -> int:
    """Convert a quantity to the planner unit of the measure."""
    return parse_millicores(value) if measure == "cpu" else parse_bytes(value)


def _measure(resource: str, gpu_resources: GpuResources) -> Measure | None:
    if resource in _MEASURES or not resource.startswith(_REQUESTS):
        return _MEASURES.get(resource)
    return "gpus" if resource.removeprefix(_REQUESTS) in gpu_resources else None


def _resource(name: str, measure: Measure, gpu_resources: GpuResources) -> str:
    """Return the resource that a limit of GPUs counts, if there are several; otherwise ""."""
    return name.removeprefix(_REQUESTS) if measure == "gpus" and len(gpu_resources) > 1 else ""


def _priorities(scope: ScopeExpression) -> frozenset[int]:
    """Return the priority tiers that a scope selects."""
    named = frozenset(value for name, value in PRIORITIES.items() if name in scope.values)
    match scope.operator:
        case "Exists":
            return frozenset(PRIORITIES.values())
        case "In":
            return named
        case "NotIn":
            return frozenset(PRIORITIES.values()) - named
        case _:
            return frozenset()
