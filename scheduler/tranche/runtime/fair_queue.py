"""Queue that serves groups of items in turn, and its workers, so that a long or slow group delays no other one.

A group is a namespace: a webhook that does not answer for one namespace must not delay the others. A group whose last
item was slow has few workers of its own, until one of its items is faster.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine
from itertools import chain, repeat

SLOW_SECONDS = 5.0
"""Duration of an item above which its group is slow."""


class FairQueue:
    """Queue of paths in groups: one path of each group in turn, first in, first out within a group."""

    def __init__(self, per_group: int) -> None:
        """Create an empty queue.

        Args:
            per_group: Maximum number of items of one group that are in work at a time.
        """
        self._per_group = per_group
        self._groups: dict[str, deque[str]] = {}
        self._turns: deque[str] = deque()
        self._active: Counter[str] = Counter()
        self._waiters: deque[asyncio.Future[None]] = deque()

    def put(self, group: str, item: str) -> None:
        """Append an item to its group."""
        if group not in self._groups:
            self._groups[group] = deque()
            self._turns.append(group)
        self._groups[group].append(item)
        self._wake()

    async def get(self) -> tuple[str, str]:
        """Wait for an item and return it with its group; call `done` when the work on it has ended."""
        while True:
            for _ in range(len(self._turns)):
                group = self._turns.popleft()
                if self._active[group] >= self._per_group:
                    self._turns.append(group)
                    continue
                return group, self._take(group)
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def done(self, group: str) -> None:
        """Record that the work on one item of the group has ended."""
        self._active[group] -= 1
        if not self._active[group]:
            del self._active[group]
        if group in self._groups:
            self._wake()

    def _take(self, group: str) -> str:
        items = self._groups[group]
        item = items.popleft()
        self._active[group] += 1
        if items:
            self._turns.append(group)
        else:
            del self._groups[group]
        return item

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return


class FairWorkers:
    """Workers of a `FairQueue`, and further ones for slow groups and for doubtful items."""

    def __init__(
        self,
        serve: Callable[[str, str], Awaitable[float | None]],
        *,
        parallel: int,
        per_group: int,
        slow_parallel: int,
        slow_per_group: int,
    ) -> None:
        """Create empty queues; nothing is served before the coroutines of `run` run.

        Args:
            serve: Called with a group and an item; returns how many seconds the item took, or None if that says nothing
                about its group.
            parallel: Number of workers for groups that are not slow.
            per_group: Number of items of one such group in work at a time.
            slow_parallel: Number of workers for slow groups and doubtful items.
            slow_per_group: Number of items of one group that these have in work at a time.
        """
        self._serve = serve
        self._ready, self._slow = FairQueue(per_group), FairQueue(slow_per_group)
        self._counts = parallel, slow_parallel
        self._slow_groups: set[str] = set()

    def put(self, group: str, item: str, *, is_doubtful: bool = False) -> None:
        """Queue an item; one that is doubtful, because it failed before, for the workers of slow groups."""
        queue = self._slow if is_doubtful or group in self._slow_groups else self._ready
        queue.put(group, item)

    def run(self) -> dict[str, Coroutine[None, None, None]]:
        """Return the endless coroutine of each worker, by its name."""
        queues = chain(repeat(self._ready, self._counts[0]), repeat(self._slow, self._counts[1]))
        return {f"worker {number}": self._work(queue) for number, queue in enumerate(queues)}

    async def _work(self, queue: FairQueue) -> None:
        while True:
            group, item = await queue.get()
            try:
                if queue is self._ready and group in self._slow_groups:  # it was not when the item was queued
                    self._slow.put(group, item)
                    continue
                seconds = await self._serve(group, item)
            finally:
                queue.done(group)
            if seconds is not None:
                (self._slow_groups.add if seconds > SLOW_SECONDS else self._slow_groups.discard)(group)
