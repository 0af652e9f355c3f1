"""A queue of keys: coalescing, one run at a time per key, bounded parallelism, exponential back-off with jitter.

`KeyedQueue` is a plain state machine with the time as an argument; `serve` runs it on an event loop. Failed Kopf event
handlers are never retried and events of one job run concurrently, so this is what stands between Kopf and reconcile.
"""

import asyncio
import contextlib
import heapq
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any

logger = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS = 0.5
"""Seconds after the first failure; doubles with each further one."""
LONGEST_BACKOFF_SECONDS = 60.0
EVENT_DELAY_AFTER_FAILURE_SECONDS = 1.0
"""News of a key that failed shorten its back-off to this many seconds, not to nothing: a failure that causes events
must not become a hot loop."""


@dataclass(slots=True)
class _Entry:
    due: float | None = None
    """When to run next; None while nothing is asked for."""
    running: bool = False
    failures: int = 0


@dataclass(slots=True)
class KeyedQueue:
    """Which key is to run when. All times are seconds of one monotonic clock."""

    random: Random = field(default_factory=Random)
    settle_seconds: float = 0.0
    """Delay of every wish: a burst becomes one run."""
    _entries: dict[str, _Entry] = field(default_factory=dict)
    _heap: list[tuple[float, str]] = field(default_factory=list)

    def add(self, key: str, now: float, delay: float = 0.0) -> None:
        """News of a key: run it soon, or after so many seconds, and once more if it is running."""
        entry = self._entries.setdefault(key, _Entry())
        self._schedule(
            key, entry, now + max(delay, EVENT_DELAY_AFTER_FAILURE_SECONDS if entry.failures else self.settle_seconds)
        )

    def take(self, now: float) -> str | None:
        """A key that is due and not running, the longest due first; it counts as running until `done` or `failed`."""
        while self._heap and self._heap[0][0] <= now:
            due, key = heapq.heappop(self._heap)
            entry = self._entries.get(key)
            if entry is None or entry.running or entry.due != due:
                continue
            entry.due, entry.running = None, True
            return key
        return None

    def done(self, key: str, now: float, again_in: float | None = None) -> None:
        """A run has succeeded; it asks to be run again after so many seconds, if at all."""
        entry = self._entries[key]
        entry.failures = 0
        self._finish(key, entry, None if again_in is None else now + max(again_in, self.settle_seconds))

    def failed(self, key: str, now: float) -> float:
        """A run has failed; returns the seconds until it is tried again."""
        entry = self._entries[key]
        longest = min(FIRST_BACKOFF_SECONDS * 2.0**entry.failures, LONGEST_BACKOFF_SECONDS)
        entry.failures = min(entry.failures + 1, 32)
        delay = longest * self.random.uniform(0.5, 1.0)
        if entry.due is not None:
            delay = min(delay, EVENT_DELAY_AFTER_FAILURE_SECONDS)
            entry.due = None
        self._finish(key, entry, now + delay)
        return delay

    def next_due(self) -> float | None:
        """When `take` may give something next; None if nothing is asked for."""
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
            heapq.heappush(self._heap, (due, key))

    def _finish(self, key: str, entry: _Entry, due: float | None) -> None:
        entry.running = False
        if due is not None and (entry.due is None or due < entry.due):
            entry.due = due
        if entry.due is None:
            del self._entries[key]
        else:
            heapq.heappush(self._heap, (entry.due, key))


class Runner:
    """Runs a coroutine function for the keys of a queue, several keys at a time."""

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
        """Set up; nothing runs before `serve`.

        Args:
            run: Called with a key; returns the seconds after which it wants to run again, or None.
            clock: Monotonic seconds, the same that the event loop sleeps by.
            parallel: Most keys at a time.
            settle_seconds: Seconds between news and run.
            expected: Errors that need no traceback in the log.
            random: Source of the jitter.
        """
        self._run = run
        self._clock = clock
        self._parallel = parallel
        self._expected = expected
        self._queue = KeyedQueue(random or Random(), settle_seconds)  # noqa: S311 (jitter, not a secret)
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, key: str, delay: float = 0.0) -> None:
        """News of a key: run it soon, or after so many seconds; to be called in the event loop's own thread."""
        self._queue.add(key, self._clock(), delay)
        self._changed.set()

    @property
    def busy(self) -> bool:
        """Whether a key is run just now."""
        return bool(self._tasks)

    @property
    def waiting(self) -> int:
        """Keys that run or are to run."""
        return len(self._queue)

    async def serve(self) -> None:
        """Run keys as they fall due until cancelled; runs under way are cancelled too and have ended on return."""
        try:
            while True:
                self._changed.clear()
                self._start_due()
                await self._wait()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start_due(self) -> None:
        while len(self._tasks) < self._parallel and (key := self._queue.take(self._clock())) is not None:
            task = asyncio.create_task(self._run_one(key), name=key)
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._changed.set()

    async def _wait(self) -> None:
        due = self._queue.next_due() if len(self._tasks) < self._parallel else None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if due is None else max(due - self._clock(), 0.0)):
                await self._changed.wait()

    async def _run_one(self, key: str) -> None:
        try:
            again_in = await self._run(key)
        except Exception as error:
            delay = self._queue.failed(key, self._clock())
            unforeseen = not isinstance(error, self._expected)
            text = " ".join(str(error).split()) or type(error).__name__
            logger.warning("%s: reconcile failed, retrying in %.1f s: %s", key, delay, text, exc_info=unforeseen)
        else:
            self._queue.done(key, self._clock(), again_in)
