"""Work queue of keys: coalescing, one run at a time per key, bounded parallelism, exponential backoff with jitter.

`KeyedQueue` is a state machine that takes the time as an argument; `Runner` runs it on an event loop. The queue is
needed because Kopf never retries failed event handlers and handles events of one job concurrently.

Namespaces are served in turn, and slow ones have few places of their own (`tranche.runtime.fair_queue`).
"""

import asyncio
import contextlib
import heapq
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tranche.runtime.fair_queue import FairWorkers

logger = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS = 0.5
"""Delay after the first failure; doubles with each further failure."""
LONGEST_BACKOFF_SECONDS = 60.0
LONGEST_RETRY_AFTER_SECONDS = 300.0
"""Bound of a delay that the API server requests."""
EVENT_DELAY_AFTER_FAILURE_SECONDS = 1.0
"""Delay to which an event shortens the backoff of a failed key. It is not zero, so that a failure that causes events
does not become a hot loop."""
SPARE_ENTRIES = 64
"""Number of outdated entries, beside one for each key, at which they are removed."""
SLOW_PARALLEL = 8
"""Number of places for namespaces whose last run was slow, in addition to those of `Runner`."""
SLOW_PER_NAMESPACE = 4


@dataclass(slots=True)
class _Entry:
    due: float | None = None
    """Time of the next run; None if none is requested."""
    running: bool = False
    failures: int = 0
    not_before: float = 0.0
    """End of the delay that the API server has requested for the key; events do not shorten it."""


@dataclass(slots=True)
class KeyedQueue:
    """State machine that decides which key runs when. All times are seconds of one monotonic clock."""

    random: Random = field(default_factory=Random)
    settle_seconds: float = 0.0
    """Delay of every run, so that a burst of events becomes one run."""
    _entries: dict[str, _Entry] = field(default_factory=dict)
    _heap: list[tuple[float, str]] = field(default_factory=list)

    def add(self, key: str, now: float, delay: float = 0.0) -> None:
        """Schedule a run of a key after a delay in seconds, and another one if it is running."""
        entry = self._entries.setdefault(key, _Entry())
        delay = max(delay, EVENT_DELAY_AFTER_FAILURE_SECONDS if entry.failures else self.settle_seconds)
        self._schedule(key, entry, max(now + delay, entry.not_before))

    def take(self, now: float) -> str | None:
        """Return the key that has been due longest and is not running; it is running until `done` or `failed`."""
        while self._heap and self._heap[0][0] <= now:
            due, key = heapq.heappop(self._heap)
            entry = self._entries.get(key)
            if entry is None or entry.running or entry.due != due:
                continue
            entry.due, entry.running = None, True
            return key
        return None

    def begin(self, key: str, now: float) -> None:
        """Record that the run of a taken key begins only now, and so serves what was requested until now."""
        entry = self._entries[key]
        if entry.due is not None and entry.due <= now:
            entry.due = None

    def done(self, key: str, now: float, again_in: float | None = None) -> None:
        """Record a successful run, and schedule the next one after `again_in` seconds unless it is None."""
        entry = self._entries[key]
        entry.failures, entry.not_before = 0, 0.0
        self._finish(key, entry, None if again_in is None else now + max(again_in, self.settle_seconds))

    def failed(self, key: str, now: float, retry_after: float = 0.0) -> float:
        """Record a failed run, and return the seconds until the retry, at least `retry_after` (bounded)."""
        entry = self._entries[key]
        longest = min(FIRST_BACKOFF_SECONDS * 2.0**entry.failures, LONGEST_BACKOFF_SECONDS)
        entry.failures = min(entry.failures + 1, 32)
        delay = longest * self.random.uniform(0.5, 1.0)
        if entry.due is not None:
            delay = min(delay, EVENT_DELAY_AFTER_FAILURE_SECONDS)
            entry.due = None
        delay = max(delay, min(retry_after, LONGEST_RETRY_AFTER_SECONDS))
        entry.not_before = now + delay if retry_after else 0.0
        self._finish(key, entry, now + delay)
        return delay

    def next_due(self) -> float | None:
        """Return the time of the next scheduled run; None if there is none."""
        while self._heap:
            due, key = self._heap[0]
            entry = self._entries.get(key)
            if entry is not None and not entry.running and entry.due == due:
                return due
            heapq.heappop(self._heap)
        return None

    def __len__(self) -> int:
        return len(self._entries)

    def _schedule(self, key: str, entry: _Entry, due: float) -> None:
        if entry.due is not None and entry.due <= due:
            return
        entry.due = due
        if not entry.running:
            self._push(due, key)

    def _finish(self, key: str, entry: _Entry, due: float | None) -> None:
        entry.running = False
        if due is not None and (entry.due is None or due < entry.due):
            entry.due = due
        if entry.due is None:
            del self._entries[key]
        else:
            self._push(entry.due, key)

    def _push(self, due: float, key: str) -> None:
        """Add a time to the heap, where those that it replaces stay until they come to the front or are too many."""
        heapq.heappush(self._heap, (due, key))
        if len(self._heap) > 2 * len(self._entries) + SPARE_ENTRIES:
            entries = self._entries.items()
            self._heap = [(entry.due, key) for key, entry in entries if entry.due is not None and not entry.running]
            heapq.heapify(self._heap)


class Runner:
    """Runner of a coroutine function for the keys of a queue, several keys at a time."""

    def __init__(
        self,
        run: Callable[[str], Coroutine[Any, Any, float | None]],
        *,
        clock: Callable[[], float],
        parallel: int,
        settle_seconds: float = 0.0,
        expected: tuple[type[Exception], ...] = (),
        random: Random | None = None,
    ) -> None:
        """Store the arguments; nothing runs before `serve`.

        Args:
            run: Called with a key; returns the seconds until the key's next run, or None.
            clock: Monotonic clock of the event loop, in seconds.
            parallel: Highest number of keys that run at the same time, besides `SLOW_PARALLEL` keys of namespaces
                whose last run was slow. One namespace has at most four fifths of them.
            settle_seconds: Delay between an event and the run.
            expected: Errors that are logged without a traceback.
            random: Source of the jitter.
        """
        self._run = run
        self._clock = clock
        self._expected = expected
        self._queue = KeyedQueue(random or Random(), settle_seconds)  # noqa: S311 (jitter, not a secret)
        self._changed = asyncio.Event()
        self._workers = FairWorkers(
            self._serve_key,
            parallel=parallel,
            per_group=max(1, parallel * 4 // 5),
            slow_parallel=SLOW_PARALLEL,
            slow_per_group=SLOW_PER_NAMESPACE,
        )
        self._running = 0

    def add(self, key: str, delay: float = 0.0) -> None:
        """Schedule a run of a key after a delay in seconds. Call it in the thread of the event loop."""
        self._queue.add(key, self._clock(), delay)
        self._changed.set()

    @property
    def busy(self) -> bool:
        """Whether a run is in progress."""
        return bool(self._running)

    @property
    def waiting(self) -> int:
        """Number of keys that run or are scheduled."""
        return len(self._queue)

    async def serve(self) -> None:
        """Run keys when they are due, until cancelled; on return, all runs have been cancelled and have ended."""
        async with asyncio.TaskGroup() as workers:
            for worker in self._workers.run().values():
                workers.create_task(worker)
            while True:
                self._changed.clear()
                while (key := self._queue.take(self._clock())) is not None:
                    self._workers.put(key.partition("/")[0], key)
                await self._wait()

    async def _serve_key(self, namespace: str, key: str) -> float:
        """Run a key, and return the seconds that this took."""
        began = self._clock()
        self._running += 1
        try:
            await self._run_one(key)
        finally:
            self._running -= 1
            self._changed.set()
        return self._clock() - began

    async def _wait(self) -> None:
        due = self._queue.next_due()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if due is None else max(due - self._clock(), 0.0)):
                await self._changed.wait()

    async def _run_one(self, key: str) -> None:
        self._queue.begin(key, self._clock())
        try:
            again_in = await self._run(key)
        except Exception as error:
            delay = self._queue.failed(key, self._clock(), getattr(error, "retry_after", None) or 0.0)
            unforeseen = not isinstance(error, self._expected)
            text = " ".join(str(error).split()) or type(error).__name__
            line = "%s: reconcile failed, retrying in %.1f s: %s"
            logger.warning(line, key, delay, text, exc_info=unforeseen, extra={"job": key})
        else:
            self._queue.done(key, self._clock(), again_in)
