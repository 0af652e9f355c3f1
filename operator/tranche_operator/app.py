"""The whole operator, put together: watches, queue, reconcile, resync, probes."""

import asyncio
import logging
import time
from datetime import UTC, datetime

from tranche.kube.client.client import ApiClient, ApiError
from tranche.runtime.supervision import run_until_first_exit
from tranche_operator import api_paths
from tranche_operator.controller import Controller
from tranche_operator.execute.event_recorder import EventRecorder
from tranche_operator.execute.executor import Applier
from tranche_operator.execute.reader import Reader
from tranche_operator.execute.reconciler_cache import Memory
from tranche_operator.metrics import OperatorMetrics
from tranche_operator.queue.deferred_actions import Leisure
from tranche_operator.queue.resync import Resync
from tranche_operator.queue.work_queue import Runner
from tranche_operator.reconcile.observed import PodView
from tranche_operator.settings import Settings
from tranche_operator.watch.informers import Budgets, mirror_pods
from tranche_operator.watch.kopf_thread import Watches

logger = logging.getLogger(__name__)

POLL_SECONDS = 2.0
"""Between two looks whether TrainingJobs are served."""
REMIND_SECONDS = 30.0
"""Between two log lines about the same obstacle."""
RETRY_SECONDS = 1.0
"""Before a job is looked at again of which something failed that had time."""
RESTART_SECONDS = 2.0
"""Pause before the watches start again after they failed."""
NO_CRD = "the CRD trainingjobs.tranche.dev is not installed (kubectl apply -f manifests/crds)"


class Operator:
    """Follows the plans of all TrainingJobs, or of one namespace's."""

    def __init__(
        self, client: ApiClient, settings: Settings, kubeconfig: str | None = None, namespace: str | None = None
    ) -> None:
        """Put together; nothing runs before `serve`.

        Args:
            client: For everything but the watches.
            settings: The operator's settings.
            kubeconfig: For the watches; as for `Credentials.load`.
            namespace: The only one to serve; None: all.
        """
        self._client = client
        self._namespace = namespace
        self._memory = memory = Memory()
        reader = Reader(client, memory)
        self.metrics = OperatorMetrics(lambda: self._runner.waiting, lambda: not self.obstacle)
        client.observe = self.metrics.observe_api_request
        self._budgets = Budgets(client, namespace)
        self._pods = mirror_pods(client, namespace, self._note_pod)
        applier = Applier(
            client,
            memory,
            EventRecorder(client, _now),
            settings,
            _now,
            self.metrics.count_pod,
            self._budgets.may_guard,
        )
        self._leisure = Leisure(
            applier.apply, self._look_again, settings.leisure, time.monotonic, lambda: self._runner.busy
        )
        controller = Controller(reader, applier, self._leisure, memory, settings, _now)
        self._runner = Runner(
            lambda key: self.metrics.measure(controller.run(key)),
            clock=time.monotonic,
            parallel=settings.workers,
            settle=settings.settle,
            expected=(ApiError, ValueError),
        )
        self._resync = Resync(reader, memory, self._runner.add, settings, _now, namespace)
        self._watches = Watches(kubeconfig, namespace, self._runner.add, self._resync.request)
        self._obstacle = "starting"

    @property
    def obstacle(self) -> str:
        """What is waited for before plans can be followed; empty if nothing."""
        return self._obstacle or ("" if self._resync.last else "the first look at all jobs is not done")

    async def serve(self) -> None:
        """Run until cancelled; waits, as long as it takes, for the API server and for the CRD."""
        await run_until_first_exit(queue=self._runner.serve(), leisure=self._leisure.serve(), watches=self._follow())

    def _look_again(self, key: str) -> None:
        self._runner.add(key, RETRY_SECONDS)

    def _note_pod(self, key: str, pod: PodView, gone: bool) -> None:
        known = self._memory.pods
        if known.drop(pod.uid) if gone else known.note(key, pod, watched=True):
            self._runner.add(key)

    async def _follow(self) -> None:
        while True:
            await self._wait_until_served()
            try:
                await run_until_first_exit(
                    resync=self._resync.serve(),
                    kopf=self._watches.serve(),
                    pods=self._pods.run(),
                    budgets=self._budgets.reflector.run(),
                )
            except* Exception as group:
                reasons = "; ".join(f"{type(error).__name__}: {error}" for error in group.exceptions)
                logger.warning("the watches have failed and start again: %s", reasons)
            self._obstacle = "the watches start again"
            await asyncio.sleep(RESTART_SECONDS)

    async def _wait_until_served(self) -> None:
        told_at = float("-inf")
        while True:
            obstacle = await self._find_obstacle()
            if obstacle != self._obstacle or (obstacle and time.monotonic() - told_at >= REMIND_SECONDS):
                told_at = time.monotonic()
                logger.info("waiting: %s" if obstacle else "following the plans of %s", obstacle or self._scope)
            self._obstacle = obstacle
            if not obstacle:
                return
            await asyncio.sleep(POLL_SECONDS)

    async def _find_obstacle(self) -> str:
        try:
            answer = await self._client.request("GET", api_paths.RESOURCES, timeout=10.0)
        except ApiError as error:
            return NO_CRD if error.status == 404 else f"the API server does not answer as it should: {error}"
        served = any(resource.get("name") == "trainingjobs" for resource in answer.get("resources", ()))
        return "" if served else NO_CRD

    @property
    def _scope(self) -> str:
        return f"namespace {self._namespace}" if self._namespace else "all namespaces"


def _now() -> datetime:
    return datetime.now(UTC)
