"""Pods and disruption budgets as lists and watches of our own show them, in the operator's event loop.

Kopf watches the TrainingJobs, of which this is the operator. It builds each object whole, in a thread of its own, and
gangs make ten events of pods for each of a job.
"""

from collections import Counter
from collections.abc import Callable

import msgspec

from tranche.kube.api.core_types import Metadata, Narrow
from tranche.kube.api.names import LABEL_JOB
from tranche.kube.client.client import ApiClient
from tranche.kube.client.reflector import Reflector
from tranche_operator import api_paths
from tranche_operator.reconcile.observed import PodView
from tranche_operator.watch.pod_decoder import OwnedPod, job_key, view

KnownPod = tuple[str, PodView]
"""A pod with the key of its job."""


class Budget(Narrow, frozen=True):
    """A PodDisruptionBudget: that it exists is enough to know."""

    metadata: Metadata = Metadata()


_POD = msgspec.json.Decoder(OwnedPod)
_BUDGET = msgspec.json.Decoder(Budget)


def mirror_pods(
    client: ApiClient, namespace: str | None, on_pod: Callable[[str, PodView, bool], None]
) -> Reflector[KnownPod]:
    """The pods of jobs.

    Args:
        client: Of the API server.
        namespace: The only one to watch; None: all.
        on_pod: Called with the key of a pod's job, what it looks like, and whether it is gone.
    """

    def tell(_: str, before: KnownPod | None, after: KnownPod | None) -> None:
        if after is not None:
            on_pod(*after, False)
        elif before is not None:
            on_pod(*before, True)

    path = api_paths.pods(namespace) if namespace else api_paths.ALL_PODS
    pods = Reflector(client, path, _known, params={"labelSelector": LABEL_JOB})
    pods.subscribe(tell)
    return pods


class Budgets:
    """In which namespaces there are disruption budgets."""

    def __init__(self, client: ApiClient, namespace: str | None) -> None:
        """Nothing is read before `reflector` runs; arguments as for `mirror_pods`."""
        self._by_namespace: Counter[str] = Counter()
        self.reflector = Reflector(client, api_paths.budgets(namespace), _BUDGET.decode)
        self.reflector.subscribe(self._count)

    def may_guard(self, namespace: str) -> bool:
        """Whether some pod of a namespace may have a budget; True as long as nothing is known."""
        return not self.reflector.has_synced or self._by_namespace[namespace] > 0

    def _count(self, _: str, before: Budget | None, after: Budget | None) -> None:
        for budget, change in ((before, -1), (after, 1)):
            if budget is not None:
                self._by_namespace[budget.metadata.namespace] += change


def _known(raw: bytes) -> KnownPod:
    pod = _POD.decode(raw)
    return job_key(pod.metadata), view(pod)
