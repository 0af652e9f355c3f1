"""Confirmation by the API server of what a watch shows, before a window ends for that reason.

A watch may lag by seconds after an outage of etcd or the API server. One whose connection is dead is noticed after a
minute, while other requests, such as those about the Lease, succeed. Meanwhile a pod that looks absent may have
trained, and one that looks as if it waited for a node may train.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from tranche.kube.api.core_types import Metadata, Narrow, Pod
from tranche.kube.client.client import ApiClient, ApiError
from tranche.kube.convert.pod_identity import owner_uid

logger = logging.getLogger(__name__)


class _Found(Narrow, frozen=True):
    """A pod. The rest of it may be unreadable, since a kubelet writes its status."""

    metadata: Metadata


_FOUND = msgspec.json.Decoder(_Found)
CONFIRMED_SECONDS = 10.0
"""Time for which a confirmation counts. It may not be needed at once, as while kube-scheduler is silent, and the pod
may have changed until it is."""


class Question(NamedTuple):
    """Question about a pod."""

    namespace: str
    name: str
    job_uid: str
    version: str = ""
    """Resource version that the watch shows; empty: the watch shows no such pod of the job."""


class PodChecker:
    """Queue of pods to check, and those that the API server has confirmed."""

    def __init__(
        self, client: ApiClient, answered: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Send no request before `run`.

        Args:
            client: Client of the API server.
            answered: Called when the API server has confirmed what the watch shows of a pod.
            clock: Monotonic seconds.
        """
        self._client = client
        self._answered = answered
        self._clock = clock
        self._questions: asyncio.Queue[Question] = asyncio.Queue()
        self._asked: set[Question] = set()
        self._confirmed: dict[Question, float] = {}
        """Times of the requests that have confirmed questions, in that order."""

    def confirmed_absent(self, namespace: str, name: str, job_uid: str) -> bool:
        """Return whether the API server has confirmed that the job has no pod of that name; if not, queue a check.

        A confirmation is returned once.
        """
        return self._is_confirmed(Question(namespace, name, job_uid))

    def confirmed_unchanged(self, pod: Pod) -> bool:
        """Return whether the API server has confirmed the state of a pod in the watch; if not, queue a check.

        A confirmation is returned once.
        """
        metadata = pod.metadata
        uid = owner_uid(metadata) or ""
        return self._is_confirmed(Question(metadata.namespace, metadata.name, uid, metadata.resource_version))

    def _is_confirmed(self, question: Question) -> bool:
        if self._clock() - self._confirmed.pop(question, float("-inf")) < CONFIRMED_SECONDS:
            return True
        if question not in self._asked:
            self._asked.add(question)
            self._questions.put_nowait(question)
        return False

    async def run(self) -> None:
        """Run the checks forever; one that fails or confirms nothing is queued again when it is needed again."""
        while True:
            question, began = await self._questions.get(), self._clock()
            try:
                is_confirmed = await self._ask(question)
            except (ApiError, msgspec.DecodeError) as error:  # an answer may be that of a proxy
                logger.warning("pod %s/%s: cannot check its state: %s", *question[:2], error)
                is_confirmed = False
            self._asked.remove(question)
            if is_confirmed:
                self._confirmed = {one: at for one, at in self._confirmed.items() if began - at < CONFIRMED_SECONDS}
                self._confirmed[question] = began
                self._answered()

    async def _ask(self, question: Question) -> bool:
        try:
            path = f"/api/v1/namespaces/{question.namespace}/pods/{question.name}"
            found = _FOUND.decode(await self._client.get(path)).metadata
        except ApiError as error:
            if error.status != 404:
                raise
            return not question.version
        version = found.resource_version if owner_uid(found) == question.job_uid else ""
        return version == question.version
