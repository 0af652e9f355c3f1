"""Foreign resource usage per node, and conversion of nodes to planner nodes.

Foreign usage of each ResourceQuota: the used amount, minus the pods that the planner counts itself.

Admission uses ``status.used``. It leads the pod watch at creation and lags behind it at the end, so the foreign usage
may be too high for a moment, but not for long, because every change of either is processed.
"""

from collections.abc import Callable, Iterator, Mapping

from tranche.kube.api.core_types import QuotaObject
from tranche.kube.api.names import LABEL_JOB, LABEL_ROLE, ROLE_STAGING
from tranche.kube.api.resources import SiteObject
from tranche.kube.convert.pod_identity import Identity, identity
from tranche.kube.convert.pods_and_nodes import NodeObject, Pod, is_over, node_of, pod_requests
from tranche.kube.convert.resource_quota import quota_of, used_of
from tranche.kube.convert.site_membership import site_of
from tranche.model import Node, Quota, Resources
from tranche.planner import QuotaChanged, QuotaRemoved
from tranche.state.quota_usage import Quotas


class NodeBook:
    """Sums of the requests of foreign pods per node, updated from watch changes."""

    def __init__(self, gpu_resource: str) -> None:
        self.gpu_resource = gpu_resource
        self._foreign: dict[str, Resources] = {}
        self._pods: dict[str, tuple[str, Resources]] = {}

    def note_pod(self, key: str, pod: Pod | None) -> set[str]:
        """Record the state of a pod (None: gone) and return the nodes whose foreign usage changed."""
        before = self._pods.pop(key, None)
        after = None
        if pod is not None and pod.spec.node_name and not _is_planned(pod) and not is_over(pod):
            after = (pod.spec.node_name, pod_requests(pod, self.gpu_resource))
            self._pods[key] = after
        if before == after:
            return set()
        for entry, add in ((before, False), (after, True)):
            if entry is not None:
                node, requests = entry
                used = self._foreign.get(node, Resources())
                self._foreign[node] = used + requests if add else used - requests
        return {entry[0] for entry in (before, after) if entry is not None}

    def node(self, observed: NodeObject, sites: Mapping[str, SiteObject]) -> Node | None:
        """Convert a node; None if no declared Site selects it, or an unlimited one does.

        The autoscaler creates and removes the nodes of an unlimited site on demand. If they were planned as nodes,
        their capacity would count twice, and windows would refer to nodes that no longer exist.
        """
        site = site_of(observed.metadata.labels, sites)
        if site is None or (site in sites and sites[site].spec.unlimited):
            return None
        foreign = self.foreign(observed.metadata.name)
        return node_of(observed, site, foreign, self.gpu_resource)

    def foreign(self, name: str) -> Resources:
        """Return the requests of foreign pods on a node."""
        return self._foreign.get(name, Resources())


def _is_planned(pod: Pod) -> bool:
    """Whether the planner chose the pod's node; for a staging pod it chooses only the site."""
    labels = pod.metadata.labels
    return LABEL_JOB in labels and labels.get(LABEL_ROLE) != ROLE_STAGING


Holds = Callable[[str, int], bool]
"""Function (job key, attempt) that returns whether the planner counts the attempt."""


class QuotaBook:
    """Quotas and pods of TrainingJobs by namespace, updated from watch changes."""

    def __init__(self, gpu_resource: str) -> None:
        self.gpu_resource = gpu_resource
        self._quotas: dict[str, dict[str, QuotaObject]] = {}
        self._pods: dict[str, dict[str, tuple[Identity, int, Resources]]] = {}

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
        who = identity(pod) if pod is not None else None
        if pod is not None and who is not None and not is_over(pod):
            after = pods[key] = (who, pod.spec.priority or 0, pod_requests(pod, self.gpu_resource))
        if not pods:
            del self._pods[namespace]
        return before != after

    def quotas(self, namespace: str, holds: Holds) -> Iterator[Quota]:
        """Yield the planner quotas of a namespace.

        Raises:
            ValueError: a quantity of a quota cannot be read.
        """
        for observed in self._quotas.get(namespace, {}).values():
            quota = quota_of(observed, self.gpu_resource)
            if quota is not None:
                yield quota.with_foreign(self._foreign(observed, quota, holds))

    def changes(self, namespace: str, known: Quotas) -> list[QuotaChanged | QuotaRemoved]:
        """Return the events for quotas of a namespace that differ from the known ones.

        Raises:
            ValueError: a quantity of a quota cannot be read.
        """
        present = {quota.name: quota for quota in self.quotas(namespace, known.holds)}
        before = known.by_namespace.get(namespace, {})
        removed = [QuotaRemoved(namespace, name) for name in sorted(set(before).difference(present))]
        return [*removed, *(QuotaChanged(quota) for name, quota in present.items() if before.get(name) != quota)]

    def _foreign(self, observed: QuotaObject, quota: Quota, holds: Holds) -> dict[str, int]:
        foreign = used_of(observed, quota)
        for who, priority, requests in self._pods.get(quota.namespace, {}).values():
            if quota.covers(priority, requests) and holds(who.job, who.attempt):
                for limit in quota.limits:
                    foreign[limit.resource] -= getattr(requests, limit.measure)
        return {resource: max(0, number) for resource, number in foreign.items()}
