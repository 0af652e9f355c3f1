"""Status writes: the latest state of each object, one write at a time per object, retried until it stands."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from tranche.kube.clients import ApiClient, ApiError
from tranche.kube.names import SCHEDULER_MANAGER

logger = logging.getLogger(__name__)

Build = Callable[[], dict[str, Any] | None]
"""Makes the object to apply at the moment of writing; None: nothing to write any more."""
FENCE_TEXT = "a newer planner has written this plan"
"""Message of the CRD's rule on status.plan."""
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 10.0


class DeposedError(Exception):
    """Another planner with a newer term has taken over; this one must stop."""


class StatusWriter:
    """Applies statuses, coalescing what changes while a write is under way.

    A write is lost only if its object is gone; a crash of this process before a write leaves the API server at an older
    and still consistent plan.
    """

    def __init__(self, client: ApiClient, count: Callable[[str], None], parallel: int = 8) -> None:
        self._client = client
        self._count = count
        self._parallel = parallel
        self._builds: dict[str, Build] = {}
        self._ready: asyncio.Queue[str] = asyncio.Queue()
        self._busy: set[str] = set()

    def put(self, path: str, build: Build) -> None:
        """Have the object at this path written soon; a later call for the same path replaces an earlier one."""
        waiting = path in self._builds
        self._builds[path] = build
        if not waiting and path not in self._busy:
            self._ready.put_nowait(path)

    async def run(self) -> None:
        """Write for ever.

        Raises:
            DeposedError: when the API server refuses a plan because a newer planner has written one.
        """
        async with asyncio.TaskGroup() as group:
            for _ in range(self._parallel):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            path = await self._ready.get()
            build = self._builds.pop(path)
            self._busy.add(path)
            try:
                await self._write(path, build)
            finally:
                self._busy.discard(path)
            if path in self._builds:
                self._ready.put_nowait(path)

    async def _write(self, path: str, build: Build) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            build = self._builds.pop(path, build)
            body = build()
            if body is None:
                return
            try:
                await self._client.apply(path, body, SCHEDULER_MANAGER)
            except ApiError as error:
                if not self._again(path, error):
                    return
                await asyncio.sleep(error.retry_after or pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            else:
                self._count("written")
                return

    def _again(self, path: str, error: ApiError) -> bool:
        """Whether to try the write again."""
        if error.status == 422 and FENCE_TEXT in str(error):
            raise DeposedError(str(error))
        if error.status == 404 or (error.status == 409 and "uid" in str(error).lower()):
            self._count("gone")
            return False
        if error.status in (400, 422):
            self._count("refused")
            logger.error("%s: the API server refuses the status: %s", path, error)
            return False
        self._count("retried")
        logger.warning("%s: status not written, trying again: %s", path, error)
        return True
