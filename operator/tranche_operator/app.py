"""The operator, composed of watches, queue, controller, resync and metrics."""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

from tranche.kube.client.client import ApiClient, ApiError
from tranche.runtime.gc_tuning import freeze_periodically
from tranche.runtime.steady_clock import SteadyClock
from tranche.runtime.supervision import run_until_first_exit
from tranche_operator import api_paths
from tranche_operator.controller import Controller
from tranche_operator.execute.event_recorder import EventRecorder
from tranche_operator.execute.executor import ActionExecutor
from tranche_operator.execute.reader import Reader
from tranche_operator.execute.reconciler_cache import ReconcilerCache
from tranche_operator.metrics import OperatorMetrics
from tranche_operator.queue.deferred_actions import DeferredActionQueue
from tranche_operator.queue.event_queue import EventQueue
from tranche_operator.queue.quiet_time import START_SECONDS
from tranche_operator.queue.resync import Resync
from tranche_operator.queue.status_queue import StatusQueue
from tranche_operator.queue.work_queue import Runner
from tranche_operator.reconcile import stuck_pod
from tranche_operator.reconcile.observed import PodView
from tranche_operator.settings import Settings
from tranche_operator.watch import report_ca
from tranche_operator.watch.informers import Budgets, pod_informer
from tranche_operator.watch.job_cache import JobCache
from tranche_operator.watch.kopf_thread import KopfThread
from tranche_operator.watch.pod_cache import PodCache

logger = logging.getLogger(__name__)

POLL_SECONDS = 2.0
"""Interval of checks whether the API server serves TrainingJobs."""
REMIND_SECONDS = 30.0
"""Interval of log lines about the same obstacle."""
RESTART_SECONDS = 2.0
"""Delay before failed watches restart."""
NO_CRD = "the CRD trainingjobs.tranche.dev is not installed (kubectl apply -f manifests/crds)"


class Operator:
    """Operator for the TrainingJobs of all namespaces."""

    def __init__(self, client: ApiClient, settings: Settings, kubeconfig: str | None = None) -> None:
        """Create the components; nothing runs before `serve`.

        Args:
            client: Client for everything except Kopf's watch.
            settings: The operator's settings.
            kubeconfig: Credentials of Kopf's watch; as for `Credentials.load`.
        """
        self._client = client
        self._settings = settings
        self._clock = SteadyClock(client.server_time)
        now = self._clock.utc
        self._reader = reader = Reader(client, cache := ReconcilerCache(), now)
        self._cache = cache
        self.metrics = OperatorMetrics(
            lambda: self._runner.waiting,
            lambda: not self.obstacle,
            lambda: stuck_pod.count(cache.pods, now()),
        )
        client.observe = self.metrics.observe_api_request
        self._budgets = Budgets(client)
        self._started_at = float("-inf")
        """Time of the last relevant event of a pod on a node."""
        self._restored = asyncio.Event()
        self._pods = pod_informer(client, self._note_pod, self._restored.set)
        self._events = EventQueue(EventRecorder(client, now).emit, now, time.monotonic, self._is_busy)
        self._statuses = StatusQueue(
            lambda key: self._runner.add(key), settings.status_settle_seconds, time.monotonic, self._is_busy
        )
        executor = ActionExecutor(
            client,
            cache,
            self._events,
            settings,
            now,
            self.metrics.count_pod,
            self._budgets.may_have_budget,
            lambda key, passing: self._statuses.postpone(key, passing=passing),
            self._statuses.forget,
        )
        self._deferred = DeferredActionQueue(
            executor.execute,
            lambda key, delay: self._runner.add(key, delay),
            settings.deferral_seconds,
            time.monotonic,
            lambda: self._runner.busy,
        )
        controller = Controller(
            reader, executor, self._deferred, self._statuses, cache, settings, now, lambda: self._runner.waiting
        )
        self._runner = Runner(
            lambda key: self.metrics.measure(controller.run(key)),
            clock=time.monotonic,
            parallel=settings.parallel_jobs,
            settle_seconds=settings.settle_seconds,
            expected=(ApiError, ValueError),
        )
        self._resync = Resync(reader, cache, self._runner.add, settings, now)
        self._watches = KopfThread(kubeconfig, self._note_job, self._note_listing)
        self._obstacle = "starting"

    @property
    def obstacle(self) -> str:
        """Reason why the operator is not ready; empty if it is."""
        return self._obstacle or ("" if self._resync.last else "the first resync has not completed")

    async def serve(self) -> None:
        """Run until cancelled; wait without limit for the API server and the CRD."""
        await run_until_first_exit(
            queue=self._runner.serve(),
            deferred_actions=self._deferred.serve(),
            statuses=self._statuses.serve(),
            events=self._events.serve(),
            watches=self._follow(),
            report_ca=self._follow_report_ca(),
            garbage=freeze_periodically(asyncio.sleep(0)),
        )

    async def _follow_report_ca(self) -> None:
        authority, source = self._settings.report_ca, self._settings.report_ca_source
        if authority is None or source is None:
            await asyncio.Event().wait()
            return
        await report_ca.follow(self._client, authority, *source, self._reader.all_pods)

    def _note_job(self, key: str, job: Mapping[str, Any], gone: bool, relevant: bool) -> None:
        self._cache.jobs.note_watch_event(time.monotonic())
        if gone:
            self._cache.jobs.note_deletion(key, job["metadata"]["uid"])
        else:
            self._cache.jobs.note(key, job)
        if relevant:
            self._runner.add(key)

    def _note_listing(self) -> None:
        self._cache.jobs.clear()
        self._resync.request()

    def _is_busy(self) -> bool:
        """Return whether reconciles run or pods start."""
        return self._runner.busy or time.monotonic() - self._started_at < START_SECONDS

    def _note_pod(self, key: str, pod: PodView, gone: bool) -> None:
        known = self._cache.pods
        if known.drop(pod.uid) if gone else known.note(key, pod, watched=True):
            self._runner.add(key)
            if pod.node and pod.phase in ("Pending", "Running"):
                self._started_at = time.monotonic()

    async def _follow(self) -> None:
        while True:
            await self._wait_until_served()
            if self._resync.last is None:
                self._clock.synchronize()
            try:
                await run_until_first_exit(
                    resync=self._resync.serve(),
                    kopf=self._watches.serve(),
                    pods=self._pods.run(),
                    restored_etcd=self._fail_when_restored(),
                    budgets=self._budgets.reflector.run(),
                )
            except* Exception as group:
                reasons = "; ".join(f"{type(error).__name__}: {error}" for error in group.exceptions)
                logger.warning("the watches failed and are restarting: %s", reasons)
            self._obstacle = "the watches are restarting"
            await asyncio.sleep(RESTART_SECONDS)

    async def _fail_when_restored(self) -> None:
        """Wait until the resource versions go back, forget what is newer, and let all watches restart with a list.

        Kopf would wait for versions that are far in the future, and cached objects would count as newer than all reads.

        Raises:
            RuntimeError: the resource versions have gone back.
        """
        self._restored.clear()
        await self._restored.wait()
        self._cache.jobs = JobCache()
        self._cache.pods = PodCache()
        raise RuntimeError("the resource versions have gone back, as when etcd is restored from a backup")

    async def _wait_until_served(self) -> None:
        logged_at = float("-inf")
        while True:
            obstacle = await self._find_obstacle()
            if obstacle != self._obstacle or (obstacle and time.monotonic() - logged_at >= REMIND_SECONDS):
                logged_at = time.monotonic()
                logger.info("%s", f"waiting: {obstacle}" if obstacle else "following the plans of all namespaces")
            self._obstacle = obstacle
            if not obstacle:
                return
            await asyncio.sleep(POLL_SECONDS)

    async def _find_obstacle(self) -> str:
        try:
            answer = await self._client.request("GET", api_paths.RESOURCES, timeout=10.0)
        except ApiError as error:
            return NO_CRD if error.status == 404 else f"the API server returned an error: {error}"
        if self._settings.report_ca is not None and not self._settings.report_ca.pem:
            return "the CA of the report API is not published yet (ConfigMap tranche-reports-ca)"
        served = any(resource.get("name") == "trainingjobs" for resource in answer.get("resources", ()))
        return "" if served else NO_CRD
