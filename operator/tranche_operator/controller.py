"""Controller: read a job, decide, execute."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from tranche_operator.execute.executor import ActionExecutor
from tranche_operator.execute.reader import Reader
from tranche_operator.execute.reconciler_cache import ReconcilerCache
from tranche_operator.queue.deferred_actions import DeferredActionQueue, split_deferrable
from tranche_operator.queue.status_queue import StatusQueue
from tranche_operator.reconcile import pod_teardown
from tranche_operator.reconcile.actions import CREATIONS, SAFE_WITH_CACHED_JOB, Action, WriteStatus
from tranche_operator.reconcile.observed import Observed, entries_of
from tranche_operator.reconcile.reconcile import reconcile
from tranche_operator.settings import Settings


class Controller:
    """Reconciler of single jobs."""

    def __init__(
        self,
        reader: Reader,
        executor: ActionExecutor,
        deferred: DeferredActionQueue,
        statuses: StatusQueue,
        cache: ReconcilerCache,
        settings: Settings,
        clock: Callable[[], datetime],
        waiting: Callable[[], int] = int,
    ) -> None:
        self._reader = reader
        self._executor = executor
        self._deferred = deferred
        self._statuses = statuses
        self._cache = cache
        self._settings = settings
        self._clock = clock
        self._waiting = waiting

    async def run(self, key: str) -> float | None:
        """Reconcile a job once.

        Args:
            key: ``namespace/name``; the job need not exist.

        Returns:
            Seconds after which the job is to be reconciled again, or None.

        Raises:
            ApiError: if a request fails that should succeed, or the API server is unreachable.
            ValueError: if an object cannot be decoded.
        """
        observed, actions = await self._observe_and_decide(key, fresh=False)
        safe = (*SAFE_WITH_CACHED_JOB, *CREATIONS) if observed.may_create else SAFE_WITH_CACHED_JOB
        if not observed.is_fresh and not all(isinstance(action, safe) for action in actions):
            observed, actions = await self._observe_and_decide(key, fresh=True)
        if observed.job is None and not observed.pods:
            self._cache.forget(key)
            self._statuses.forget(key)
            return None
        if observed.job is not None:
            unwanted = pod_teardown.unwanted_pods(observed.job, observed.pods, entries_of(observed.job))
            self._cache.keep_refusals(key, {pod.name for pod in unwanted})
            self._cache.keep_reported(key, {pod.uid for pod in observed.pods})
        if not any(isinstance(action, WriteStatus) for action in actions):
            self._cache.times.pop(key, None)
            self._statuses.forget(key)
        now, later = split_deferrable(observed, actions)
        self._deferred.put(observed, later)
        return await self._executor.execute(observed, now)

    async def _observe_and_decide(self, key: str, *, fresh: bool) -> tuple[Observed, list[Action]]:
        """Observe a job and decide what to do."""
        observed = await self._reader.observe(key, fresh=fresh)
        observed = replace(observed, is_busy=self._waiting() >= self._settings.busy_jobs)
        if observed.job is None and not observed.pods:
            return observed, []
        return observed, reconcile(observed, self._settings, self._clock())
