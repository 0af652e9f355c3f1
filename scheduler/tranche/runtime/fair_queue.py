"""Queue that serves groups of items in turn, so that a long or slow group delays no other one."""

import asyncio
from collections import Counter, deque


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
