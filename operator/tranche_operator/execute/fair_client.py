"""API client whose writes are shared fairly between namespaces.

A webhook that does not answer holds each write of its namespace for up to 30 s. With one limit for all writes, those of
one namespace would soon hold all connections, and the jobs of the others would wait for them.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from tranche.kube.client.client import ApiClient
from tranche_operator.api_paths import collection_of

PARALLEL_WRITES = 200
"""Number of writes in flight. Half of them for the only busy namespace are more than a healthy API server needs."""


class FairShare:
    """A number of places that groups share: a group may take one while it has fewer than are free.

    A single group has at most half of the places, and a second one at most a quarter, so that a place is free for the
    next one, however long the others keep theirs.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        self._taken: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def place(self, group: str) -> AsyncIterator[None]:
        """Wait for a place of this group, and keep it inside the context."""
        if group in self._waiting or self._taken[group] >= self._free:
            await self._wait(group)
        else:
            self._take(group)
        try:
            yield
        finally:
            self._give_back(group)

    async def _wait(self, group: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(group, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the place was given at the same moment
                self._give_back(group)
            raise

    def _take(self, group: str) -> None:
        self._free -= 1
        self._taken[group] += 1

    def _give_back(self, group: str) -> None:
        self._free += 1
        self._taken[group] -= 1
        if not self._taken[group]:
            del self._taken[group]
        while self._waiting:
            least = min(self._waiting, key=lambda waiting: self._taken[waiting])
            if self._taken[least] >= self._free:
                return
            turns = self._waiting[least]
            turn = turns.popleft()
            if not turns:
                del self._waiting[least]
            if not turn.done():
                self._take(least)
                turn.set_result(None)


class FairClient(ApiClient):
    """Client whose writes take turns by namespace and kind of object. Reads have no limit: no webhook delays them."""

    connections: ClassVar[int] = PARALLEL_WRITES + ApiClient.connections

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._writes = FairShare(PARALLEL_WRITES)

    async def request(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """Send a request as `ApiClient.request` does; the timeout begins when a write has its turn."""
        if method == "GET":
            return await super().request(method, path, **options)
        async with self._writes.place(collection_of(path)):
            return await super().request(method, path, **options)
