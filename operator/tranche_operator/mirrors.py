"""Pods and disruption budgets as lists and watches of our own show them, in the operator's event loop.

Kopf watches the TrainingJobs, of which this is the operator. It builds each object whole, in a thread of its own, and
gangs make ten events of pods for each of a job.
"""

from collections import Counter
from collections.abc import Callable

import msgspec

from tranche.kube.clients import ApiClient
from tranche.kube.names import LABEL_JOB
from tranche.kube.reflectors import Reflector
from tranche.kube.structs import Metadata, Narrow
from tranche_operator import paths
from tranche_operator.observations import PodView
from tranche_operator.views import OwnedPod, job_key, view

KeyedPod = tuple[str, PodView]
"""A pod with the key of its job."""


class Budget(Narrow, frozen=True):
    """A PodDisruptionBudget: that it exists is enough to know."""

    metadata: Metadata = Metadata()


_POD = msgspec.json.Decoder(OwnedPod)
_BUDGET = msgspec.json.Decoder(Budget)


def pod_informer(
    client: ApiClient, namespace: str | None, on_pod: Callable[[str, PodView, bool], None]
) -> Reflector[KeyedPod]:
    """The pods of jobs.

    Args:
        client: Of the API server.
        namespace: The only one to watch; None: all.
        on_pod: Called with the key of a pod's job, what it looks like, and whether it is gone.
    """

    def tell(_: str, before: KeyedPod | None, after: KeyedPod | None) -> None:
        if after is not None:
            on_pod(*after, False)
        elif before is not None:
            on_pod(*before, True)

    path = paths.pods(namespace) if namespace else paths.ALL_PODS
    pods = Reflector(client, path, _known, params={"labelSelector": LABEL_JOB})
    pods.subscribe(tell)
    return pods


class Budgets:
    """In which namespaces there are disruption budgets."""

    def __init__(self, client: ApiClient, namespace: str | None) -> None:
        """Nothing is read before `reflector` runs; arguments as for `pod_informer`."""
        self._by_namespace: Counter[str] = Counter()
        self.reflector = Reflector(client, paths.budgets(namespace), _BUDGET.decode)
        self.reflector.subscribe(self._count)

    def may_have_budget(self, namespace: str) -> bool:
        """Whether some pod of a namespace may have a budget; True as long as nothing is known."""
        return not self.reflector.has_synced or self._by_namespace[namespace] > 0

    def _count(self, _: str, before: Budget | None, after: Budget | None) -> None:
        for budget, change in ((before, -1), (after, 1)):
            if budget is not None:
                self._by_namespace[budget.metadata.namespace] += change


def _known(raw: bytes) -> KeyedPod:
    pod = _POD.decode(raw)
    return job_key(pod.metadata), view(pod)
