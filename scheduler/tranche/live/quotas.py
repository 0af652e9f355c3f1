"""Foreign usage of each ResourceQuota: the used amount, minus the pods that the planner counts itself.

Admission uses ``status.used``. It leads the pod watch at creation and lags behind it at the end, so the foreign usage
may be too high for a moment, but not for long, because every change of either is processed.
"""

from collections.abc import Callable, Iterator

from tranche.kube.identities import Identity, identity
from tranche.kube.objects import Pod, is_over, pod_requests
from tranche.kube.quotas import quota_of, used_of
from tranche.kube.structs import QuotaObject
from tranche.model import Quota, Resources
from tranche.planner import QuotaChanged, QuotaRemoved
from tranche.policies import Quotas

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
