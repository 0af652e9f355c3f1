"""Queue of status writes: the latest state of each object, one write at a time per object, with retries."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from tranche.kube.api.names import SCHEDULER_MANAGER
from tranche.kube.client.client import ApiClient, ApiError
from tranche.kube.client.leader_election import DeposedError
from tranche.runtime.supervision import run_until_first_exit

logger = logging.getLogger(__name__)

Build = Callable[[], dict[str, Any] | None]
"""Function that builds the object to apply at the time of the write; it returns None if the write is obsolete."""
FENCE_TEXT = "a newer planner has written this plan"
"""Message of the CEL rule on status.plan."""
REPLACED_TEXTS = ("uid mismatch", "UID in precondition")
"""Fragments of API server messages for a UID mismatch; other texts might occur in job names."""
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 10.0
LAZY_SECONDS = 0.1
SPACE_SECONDS = 0.03
"""Minimum gap between low-priority writes in seconds, so that a burst after a forecast does not delay pod starts."""
BACKLOG = 50
"""For each multiple of this number of waiting low-priority writes, one more is written per gap."""
LAPSE_SECONDS = 30.0
"""Maximum time a write waits for leadership to return, in seconds. After that the process exits and another replica
takes over."""


def _always() -> bool:
    return True


class StatusWriter:
    """Applies statuses; changes during a write of the same object are merged into the next write.

    A write is dropped only if its object is gone. A crash before a write leaves an older, still consistent plan in the
    API server.
    """

    def __init__(
        self,
        client: ApiClient,
        count: Callable[[str], None],
        parallel: int = 8,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a queue; nothing is written before `run`.

        Args:
            client: Client of the API server.
            count: Called with the result of each write.
            parallel: Maximum number of concurrent writes.
            clock: Monotonic seconds.
        """
        self._client = client
        self._count = count
        self._parallel = parallel
        self._clock = clock
        self._leads: Callable[[], bool] = _always
        self._builds: dict[str, Build] = {}
        self._ready: asyncio.Queue[str] = asyncio.Queue()
        self._busy: set[str] = set()
        self._urgent: set[str] = set()
        """Paths in progress that have a new high-priority change."""
        self._lazy: dict[str, float] = {}
        """Low-priority paths with the time of their write, in that order."""
        self._put_off = asyncio.Event()

    def put(self, path: str, build: Build, *, lazy: bool = False) -> None:
        """Queue a write of the object at this path; a later call for the same path replaces an earlier one.

        Args:
            path: API path of the object's status.
            build: Builds the object at the time of the write.
            lazy: Low priority: wait `LAZY_SECONDS` and merge later changes into the write.
        """
        waiting = path in self._builds
        self._builds[path] = build
        if path in self._busy:
            if not lazy:
                self._urgent.add(path)
        elif lazy and not waiting:
            self._postpone(path)
        elif not lazy and (self._lazy.pop(path, None) is not None or not waiting):
            self._ready.put_nowait(path)

    def _postpone(self, path: str) -> None:
        self._lazy[path] = self._clock() + LAZY_SECONDS
        self._put_off.set()

    async def run(self, leads: Callable[[], bool] = _always) -> None:
        """Write queued statuses forever.

        Args:
            leads: Whether this process holds the Lease; nothing is sent while it is False.

        Raises:
            DeposedError: the API server rejects a plan because a newer planner has written one, or leadership is lost.
        """
        self._leads = leads
        works = {f"writer {number}": self._work() for number in range(self._parallel)}
        await run_until_first_exit(**works, lazy_writes=self._defer())

    async def _defer(self) -> None:
        while True:
            while not self._lazy:
                self._put_off.clear()
                await self._put_off.wait()
            due = next(iter(self._lazy.values()))
            await asyncio.sleep(max(0.0, due - self._clock()))
            ripe = [path for path, due in self._lazy.items() if due <= self._clock()]
            for path in ripe[: 1 + len(ripe) // BACKLOG]:
                del self._lazy[path]
                self._ready.put_nowait(path)
            await asyncio.sleep(SPACE_SECONDS)

    async def _work(self) -> None:
        while True:
            path = await self._ready.get()
            build = self._builds.pop(path)
            self._busy.add(path)
            try:
                await self._write(path, build)
            finally:
                self._busy.discard(path)
            urgent = path in self._urgent
            self._urgent.discard(path)
            if path in self._builds and urgent:
                self._ready.put_nowait(path)
            elif path in self._builds:
                self._postpone(path)

    async def _write(self, path: str, build: Build) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            await self._lead()
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

    async def _lead(self) -> None:
        """Wait until this process holds the Lease.

        Raises:
            DeposedError: this takes longer than `LAPSE_SECONDS`.
        """
        since = time.monotonic()
        while not self._leads():
            if time.monotonic() - since > LAPSE_SECONDS:
                raise DeposedError(f"Lease was not renewed for {LAPSE_SECONDS:g} s")
            await asyncio.sleep(FIRST_PAUSE_SECONDS)

    def _again(self, path: str, error: ApiError) -> bool:
        """Whether to retry the write."""
        if error.status == 422 and FENCE_TEXT in str(error):
            raise DeposedError(str(error))
        if error.status == 404 or (error.status == 409 and any(text in str(error) for text in REPLACED_TEXTS)):
            self._count("gone")
            return False
        if error.status in (400, 422):
            self._count("refused")
            logger.error("%s: the API server rejected the status: %s", path, error)
            return False
        self._count("retried")
        logger.warning("%s: status write failed, retrying: %s", path, error)
        return True
