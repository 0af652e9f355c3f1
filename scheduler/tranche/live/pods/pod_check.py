"""Confirmation by the API server that a pod is absent, before a window without a pod is treated as ended.

A watch may lag by seconds after an outage of etcd or the API server, and the pod may have trained meanwhile.
"""

import asyncio
import logging
from collections.abc import Callable

from tranche.kube.client.client import ApiClient, ApiError
from tranche.kube.convert.pod_decoder import decode_pod
from tranche.kube.convert.pod_identity import owner_uid

logger = logging.getLogger(__name__)

Question = tuple[str, str, str]
"""Namespace and name of a pod, and the UID of its job."""


class PodChecker:
    """Queue of pods to check, and the confirmed absences."""

    def __init__(self, client: ApiClient, answered: Callable[[], None]) -> None:
        """Send no request before `run`.

        Args:
            client: Client of the API server.
            answered: Called when the absence of a pod is confirmed.
        """
        self._client = client
        self._answered = answered
        self._questions: asyncio.Queue[Question] = asyncio.Queue()
        self._asked: set[Question] = set()
        self._absent: set[Question] = set()

    def confirmed_absent(self, namespace: str, name: str, job_uid: str) -> bool:
        """Whether the API server has confirmed that the job has no pod of that name; if not, queue a check.

        A confirmation is returned once.
        """
        question = (namespace, name, job_uid)
        if question in self._absent:
            self._absent.remove(question)
            return True
        if question not in self._asked:
            self._asked.add(question)
            self._questions.put_nowait(question)
        return False

    async def run(self) -> None:
        """Run the checks forever; a check that fails is queued again by the next call of `confirmed_absent`."""
        while True:
            question = await self._questions.get()
            try:
                absent = await self._ask(*question)
            except ApiError as error:
                logger.warning("pod %s/%s: cannot check whether it exists: %s", *question[:2], error)
                absent = False
            self._asked.remove(question)
            if absent:
                self._absent.add(question)
                self._answered()

    async def _ask(self, namespace: str, name: str, job_uid: str) -> bool:
        try:
            found = decode_pod(await self._client.get(f"/api/v1/namespaces/{namespace}/pods/{name}"))
        except ApiError as error:
            if error.status != 404:
                raise
            return True
        return owner_uid(found.metadata) != job_uid
