"""Usage of nodes and quotas by pods that the planner does not count, and conversion of nodes to planner nodes.

The foreign usage of a ResourceQuota is its used amount minus the pods that the planner counts. Admission uses
``status.used``, which is ahead of the pod watch when a pod is created and behind it when a pod ends. So the foreign
usage may be too high until the next change arrives. If the watch of quotas is behind that of pods, it may also be too
low: then a pod may be refused, and its window is retried.
"""

from collections.abc import Callable, Iterator, Mapping

from tranche.kube.api.core_types import NodeObject, Pod, QuotaObject
from tranche.kube.api.names import GpuResources
from tranche.kube.api.resources import SiteObject
from tranche.kube.convert.node import node_allocatable, node_of
from tranche.kube.convert.pod_identity import Identity, identity
from tranche.kube.convert.pod_shape import is_best_effort, pod_requests, pod_usage, usage_index
from tranche.kube.convert.pod_state import is_over
from tranche.kube.convert.resource_quota import quota_of, used_of
from tranche.kube.convert.site_membership import site_of
from tranche.model import Node, Quota, Resources
from tranche.planner import QuotaChanged, QuotaRemoved
from tranche.state.quota_usage import Quotas

NOTHING = Resources()
Usage = tuple[Resources, ...]
"""Requests of pods, once for each of the GPU resources (`pod_usage`)."""

Holds = Callable[[Pod], bool]
"""Function that returns whether the planner has a window, parameter server or chief for the pod, and so counts it."""


class ForeignNodeUsage:
    """Sums of the requests of foreign pods per node, updated from watch changes.

    Every pod is foreign that the planner does not hold, whatever its labels: pods of other schedulers, of jobs that
    have ended or cannot be read, copies for debugging, and pods whose training is counted while other containers run.
    """

    def __init__(self, gpu_resources: GpuResources, holds: Holds) -> None:
        self.gpu_resources = gpu_resources
        self._holds = holds
        self._foreign: dict[str, Usage] = {}
        self._pods: dict[str, tuple[str, Usage]] = {}
        """Node and requests of the foreign pods, by key."""
        self._claimed: dict[str, dict[int, dict[str, Pod]]] = {}
        """Pods on nodes that claim to belong to an attempt of a job, by job, attempt and key."""
        self._claims: dict[str, Identity] = {}
        """Claims of these pods, by key."""

    def note_pod(self, key: str, pod: Pod | None) -> set[str]:
        """Record the state of a pod (None: gone) and return the nodes whose foreign usage changed."""
        on_node = pod is not None and pod.spec.node_name and not is_over(pod)
        self._note_claim(key, pod if on_node else None)
        return self._count(key, pod if on_node else None)

    def recount(self, job: str, attempt: int | None = None) -> set[str]:
        """Look again at the pods of a job (or one attempt), because the planner's windows changed; as `note_pod`."""
        attempts = self._claimed.get(job, {})
        chosen = attempts.values() if attempt is None else (attempts.get(attempt, {}),)
        return {node for pods in chosen for key, pod in pods.items() for node in self._count(key, pod)}

    def recount_all(self) -> set[str]:
        """Look again at the pods of all jobs."""
        return {node for job in list(self._claimed) for node in self.recount(job)}

    def _note_claim(self, key: str, pod: Pod | None) -> None:
        before, who = self._claims.pop(key, None), identity(pod) if pod is not None else None
        if before is not None:
            attempts = self._claimed[before.job]
            del attempts[before.attempt][key]
            if not attempts[before.attempt]:
                del attempts[before.attempt]
            if not attempts:
                del self._claimed[before.job]
        if pod is not None and who is not None:
            self._claims[key] = who
            self._claimed.setdefault(who.job, {}).setdefault(who.attempt, {})[key] = pod

    def _count(self, key: str, pod: Pod | None) -> set[str]:
        before, after = self._pods.pop(key, None), None
        if pod is not None and not self._holds(pod):
            after = self._pods[key] = (pod.spec.node_name, pod_usage(pod, self.gpu_resources))
        if before == after:
            return set()
        for entry, add in ((before, False), (after, True)):
            if entry is not None:
                self._add(*entry, add=add)
        return {entry[0] for entry in (before, after) if entry is not None}

    def _add(self, node: str, requests: Usage, *, add: bool) -> None:
        known = self._foreign.get(node, (NOTHING,) * len(requests))
        used = tuple(one + more if add else one - more for one, more in zip(known, requests, strict=True))
        self._foreign[node] = used
        if all(one == NOTHING for one in used):
            del self._foreign[node]

    def node(self, observed: NodeObject, sites: Mapping[str, SiteObject]) -> Node | None:
        """Convert a node; None if no declared Site selects it, or an unlimited one does.

        The autoscaler creates and removes the nodes of an unlimited site on demand. If they were planned as nodes,
        their capacity would count twice, and windows would refer to nodes that no longer exist.
        """
        site = site_of(observed.metadata.labels, sites)
        if site is None or (site in sites and sites[site].spec.unlimited):
            return None
        resource = node_allocatable(observed, self.gpu_resources).gpu_resource
        foreign = self.foreign(observed.metadata.name, resource)
        return node_of(observed, site, foreign, self.gpu_resources)

    def foreign(self, name: str, gpu_resource: str = "") -> Resources:
        """Return the requests of foreign pods on a node.

        Args:
            name: Name of the node.
            gpu_resource: Resource of the GPUs that are planned there, as in `Resources.gpu_resource`.
        """
        used = self._foreign.get(name, ())
        return used[usage_index(gpu_resource, self.gpu_resources)] if used else NOTHING


def _usage(entry: tuple[Pod, int, Resources] | None) -> tuple[str, int, Resources] | None:
    return None if entry is None else (entry[0].metadata.uid, *entry[1:])


class NamespaceQuotas:
    """Quotas and pods of TrainingJobs by namespace, updated from watch changes."""

    def __init__(self, gpu_resources: GpuResources) -> None:
        self.gpu_resources = gpu_resources
        self._quotas: dict[str, dict[str, QuotaObject]] = {}
        self._pods: dict[str, dict[str, tuple[Pod, int, Resources]]] = {}

    def note_quota(self, key: str, observed: QuotaObject | None) -> None:
        """Record the state of a quota (None: gone)."""
        namespace, _, name = key.partition("/")
        quotas = self._quotas.setdefault(namespace, {})
        quotas.pop(name, None)
        if observed is not None:
            quotas[name] = observed
        elif not quotas:
            del self._quotas[namespace]

    def note_pod(self, key: str, pod: Pod | None) -> bool:
        """Record the state of a pod (None: gone). Returns whether the usage of TrainingJobs changed."""
        namespace = key.partition("/")[0]
        pods = self._pods.setdefault(namespace, {})
        before, after = pods.pop(key, None), None
        if pod is not None and not is_over(pod) and identity(pod) is not None:
            after = pods[key] = (pod, pod.spec.priority or 0, pod_requests(pod, self.gpu_resources))
        if not pods:
            del self._pods[namespace]
        return _usage(before) != _usage(after)

    def requests(self, key: str) -> Resources:
        """Return the requests of a pod of a TrainingJob; nothing for another one."""
        found = self._pods.get(key.partition("/")[0], {}).get(key)
        return found[2] if found is not None else NOTHING

    def quotas(self, namespace: str, holds: Holds) -> Iterator[Quota]:
        """Yield the planner quotas of a namespace.

        Raises:
            ValueError: a quantity of a quota cannot be read.
        """
        for observed in self._quotas.get(namespace, {}).values():
            quota = quota_of(observed, self.gpu_resources)
            if quota is not None:
                yield quota.with_foreign(self._foreign(observed, quota, holds))

    def changes(self, namespace: str, known: Quotas, holds: Holds) -> list[QuotaChanged | QuotaRemoved]:
        """Return the events for quotas of a namespace that differ from the known ones.

        Raises:
            ValueError: a quantity of a quota cannot be read.
        """
        present = {quota.name: quota for quota in self.quotas(namespace, holds)}
        before = known.by_namespace.get(namespace, {})
        removed = [QuotaRemoved(namespace, name) for name in sorted(set(before).difference(present))]
        return [*removed, *(QuotaChanged(quota) for name, quota in present.items() if before.get(name) != quota)]

    def _foreign(self, observed: QuotaObject, quota: Quota, holds: Holds) -> dict[str, int]:
        foreign = used_of(observed, quota)
        for pod, priority, requests in self._pods.get(quota.namespace, {}).values():
            has_deadline, best_effort = pod.spec.active_deadline_seconds is not None, is_best_effort(pod, requests)
            if quota.covers(priority, best_effort=best_effort, has_deadline=has_deadline) and holds(pod):
                for limit in quota.limits:
                    foreign[limit.resource] -= limit.amount(requests)
        return {resource: max(0, number) for resource, number in foreign.items()}
