"""Informers for pods and disruption budgets, with lists and watches of our own in the operator's event loop.

Kopf watches only the TrainingJobs. It decodes every object completely, in a thread of its own, and a gang causes ten
pod events for each event of its job.
"""

from collections import Counter
from collections.abc import Callable

import msgspec

from tranche.kube.api.core_types import Metadata, Narrow, Pod
from tranche.kube.api.names import LABEL_JOB
from tranche.kube.client.client import ApiClient
from tranche.kube.client.reflector import Reflector
from tranche_operator import api_paths
from tranche_operator.reconcile.observed import PodView
from tranche_operator.watch.pod_decoder import job_key, view

KeyedPod = tuple[str, PodView]
"""Key of the job, and the pod."""


class Budget(Narrow, frozen=True):
    """A PodDisruptionBudget; only its existence matters."""

    metadata: Metadata = Metadata()


_POD = msgspec.json.Decoder(Pod)
_BUDGET = msgspec.json.Decoder(Budget)


def pod_informer(
    client: ApiClient,
    on_pod: Callable[[str, PodView, bool], None],
    on_restored: Callable[[], None] = lambda: None,
) -> Reflector[KeyedPod]:
    """Create the reflector of the pods of jobs.

    Args:
        client: Client of the API server.
        on_pod: Called with the key of the pod's job, the pod, and whether it is gone.
        on_restored: Called when the resource versions have gone back, as when etcd was restored from a backup.
    """

    def notify(_: str, before: KeyedPod | None, after: KeyedPod | None) -> None:
        if after is not None:
            on_pod(*after, False)
        elif before is not None:
            on_pod(*before, True)

    pods = Reflector(client, api_paths.ALL_PODS, _known, params={"labelSelector": LABEL_JOB}, restored=on_restored)
    pods.subscribe(notify)
    return pods


class Budgets:
    """Counts of disruption budgets by namespace."""

    def __init__(self, client: ApiClient) -> None:
        """Set up the reflector; nothing is read before `reflector` runs."""
        self._by_namespace: Counter[str] = Counter()
        self.reflector = Reflector(client, api_paths.ALL_BUDGETS, _BUDGET.decode)
        self.reflector.subscribe(self._count)

    def may_have_budget(self, namespace: str) -> bool:
        """Return whether pods of a namespace may have a budget; True until the first list is complete."""
        return not self.reflector.has_synced or self._by_namespace[namespace] > 0

    def _count(self, _: str, before: Budget | None, after: Budget | None) -> None:
        for budget, change in ((before, -1), (after, 1)):
            if budget is not None:
                self._by_namespace[budget.metadata.namespace] += change


def _known(raw: bytes) -> KeyedPod:
    pod = _POD.decode(raw)
    return job_key(pod.metadata), view(pod)
