"""Resync: list all jobs and pods at the start, every minute and on request, and enqueue jobs that need a reconcile.

It catches events lost between two watches, timers lost in a restart, and orphaned pods. Jobs and pods are listed once;
only keys whose listed state requires an action are enqueued.
"""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime
from typing import Any

from tranche.kube.client.client import ApiError
from tranche_operator.execute.reader import Reader, decode_job
from tranche_operator.execute.reconciler_cache import ReconcilerCache
from tranche_operator.queue.work_queue import LONGEST_RETRY_AFTER_SECONDS
from tranche_operator.reconcile.actions import Action, EmitPendingEvent, RequeueAfter
from tranche_operator.reconcile.observed import Observed, PodView
from tranche_operator.reconcile.reconcile import reconcile
from tranche_operator.settings import Settings
from tranche_operator.watch.pod_decoder import job_key, view

logger = logging.getLogger(__name__)

REQUEST_DELAY_SECONDS = 1.0
"""Delay between a request and the resync, so that the restarts of both watches cause one resync."""
RETRY_SECONDS = 5.0
"""Delay after a failed resync, unless the API server asks for a longer one."""
_YIELD_EVERY = 50
"""Number of jobs after which other tasks of the event loop may run."""


class Resync:
    """Periodic comparison of all listed jobs with the desired state."""

    def __init__(
        self,
        reader: Reader,
        cache: ReconcilerCache,
        add: Callable[[str, float], None],
        settings: Settings,
        clock: Callable[[], datetime],
    ) -> None:
        self._reader = reader
        self._cache = cache
        self._add = add
        self._settings = settings
        self._clock = clock
        self._wanted = asyncio.Event()
        self.last: datetime | None = None
        """Time of the last successful resync; None before the first."""

    def request(self) -> None:
        """Request a resync soon. Call it in the thread of the event loop."""
        self._wanted.set()

    async def serve(self) -> None:
        """Resync periodically until cancelled."""
        while True:
            try:
                await self.list_and_enqueue()
            except (ApiError, ValueError) as error:
                asked = min(getattr(error, "retry_after", None) or 0.0, LONGEST_RETRY_AFTER_SECONDS)
                pause = max(RETRY_SECONDS, asked)
                logger.warning("cannot list jobs and pods, retrying in %.0f s: %s", pause, error)
                await asyncio.sleep(pause)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.resync_interval_seconds):
                    await self._wanted.wait()
                    await asyncio.sleep(REQUEST_DELAY_SECONDS)
            self._wanted.clear()

    async def list_and_enqueue(self) -> int:
        """List all jobs and pods and enqueue the keys that need a reconcile.

        Returns:
            Number of enqueued keys.

        Raises:
            ApiError: if a list request fails.
            ValueError: if a response cannot be decoded.
        """
        known = self._cache.pods
        began = known.clock()
        listed = [(job_key(pod.metadata), view(pod)) async for pod in self._reader.all_pods()]
        known.sync(listed, began)
        pods: defaultdict[str, list[PodView]] = defaultdict(list)
        for key, pod in listed:
            pods[key].append(pod)
        seen: set[str] = set()
        added = 0
        async for item in self._reader.all_jobs():
            key = f"{item['metadata']['namespace']}/{item['metadata']['name']}"
            seen.add(key)
            self._cache.jobs.note(key, item)
            added += self._check_listed(key, item, pods)
            if len(seen) % _YIELD_EVERY == 0:
                await asyncio.sleep(0)
        self._cache.jobs.keep(seen)
        for key, orphans in pods.items():
            added += self._check(Observed(key, None, tuple(orphans)))
        self.last = self._clock()
        logger.debug("resync: %d jobs, %d keys without a job, %d enqueued", len(seen), len(pods), added)
        return added

    def _check_listed(self, key: str, item: dict[str, Any], pods: dict[str, list[PodView]]) -> bool:
        own = tuple(pods.pop(key, ()))
        try:
            return self._check(self._reader.combine(key, decode_job(item), own))
        except ValueError as error:
            logger.warning("%s: invalid TrainingJob: %s", key, " ".join(str(error).split()))
            return False

    def _check(self, observed: Observed) -> bool:
        """Enqueue the key if the listed state requires an action."""
        actions = reconcile(observed, self._settings, self._clock())
        if not actions:
            return False
        self._add(observed.key, min(self._delay(observed.key, action) for action in actions))
        return True

    def _delay(self, key: str, action: Action) -> float:
        """Return the seconds until the action is due."""
        match action:
            case RequeueAfter():
                return action.seconds
            case EmitPendingEvent():
                return self._cache.event_slot(key, self._settings, self._clock())
        return 0.0
