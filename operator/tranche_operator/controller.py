"""One reconcile of one job: read, decide, execute."""

from collections.abc import Callable
from datetime import datetime

from tranche_operator.execute.executor import Applier
from tranche_operator.execute.reader import Reader
from tranche_operator.execute.reconciler_cache import Memory
from tranche_operator.queue.deferred_actions import Leisure, split
from tranche_operator.reconcile import pod_teardown
from tranche_operator.reconcile.actions import WriteStatus
from tranche_operator.reconcile.observed import entries_of
from tranche_operator.reconcile.reconcile import reconcile
from tranche_operator.settings import Settings


class Controller:
    """Brings jobs to what their plans say."""

    def __init__(
        self,
        reader: Reader,
        applier: Applier,
        leisure: Leisure,
        memory: Memory,
        settings: Settings,
        clock: Callable[[], datetime],
    ) -> None:
        self._reader = reader
        self._applier = applier
        self._leisure = leisure
        self._memory = memory
        self._settings = settings
        self._clock = clock

    async def run(self, key: str) -> float | None:
        """Reconcile a job once.

        Args:
            key: ``namespace/name``; there need not be such a job.

        Returns:
            Seconds after which it wants to be reconciled again, or None.

        Raises:
            ApiError: if the API server refuses a request that should succeed, or cannot be reached.
            ValueError: if an object cannot be read.
        """
        observed = await self._reader.observe(key)
        if observed.job is None and not observed.pods:
            self._memory.forget(key)
            return None
        if observed.job is not None:
            unwanted = pod_teardown.unwanted_pods(observed.job, observed.pods, entries_of(observed.job))
            self._memory.keep_refusals(key, {pod.name for pod in unwanted})
        actions = reconcile(observed, self._settings, self._clock())
        if not any(isinstance(action, WriteStatus) for action in actions):
            self._memory.unwritten.pop(key, None)
        now, later = split(observed, actions)
        self._leisure.put(observed, later)
        return await self._applier.apply(observed, now)
