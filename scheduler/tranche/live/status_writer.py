"""Queue of status writes: the latest state of each object, one write at a time per object, with retries.

A failed write never occupies a worker while it waits: its object gets a due time and goes back into the queue. Objects
whose writes fail, and namespaces where writes are slow, have few workers of their own, so that they delay no others.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tranche.kube.api.names import REJECTION_MANAGER, SCHEDULER_MANAGER
from tranche.kube.client.client import ApiClient, ApiError
from tranche.kube.client.errors import is_object_rejected
from tranche.kube.client.leader_election import LeadershipLostError
from tranche.runtime.fair_queue import FairWorkers
from tranche.runtime.report_pace import reports_per_gap
from tranche.runtime.supervision import run_until_first_exit

logger = logging.getLogger(__name__)

Build = Callable[[], dict[str, Any] | None]
"""Function that builds the object to apply at the time of the write; it returns None if the write is obsolete."""
GONE_TEXTS = {404: ('" not found',), 409: ("uid mismatch", "UID in precondition")}
"""Fragments of API server messages for an object that does not exist, or that another one has replaced, by status. With
another message, status 404 says that the API server does not serve the kind, as while its CRD is replaced."""
FIRST_PAUSE_SECONDS = 0.2
"""Pause after the first failure that concerns all objects; it doubles with each further one."""
LONGEST_PAUSE_SECONDS = 10.0
"""Longest pause after failures that concern all objects, such as an API server that does not respond."""
FIRST_REJECTION_SECONDS = 30.0
"""Pause after the first rejection of one object; it doubles with each further one."""
LONGEST_REJECTION_SECONDS = 300.0
"""Longest pause after rejections of one object. A change of the object ends the pause."""
LONGEST_RETRY_AFTER_SECONDS = 30.0
"""Cap of the server's Retry-After, which a proxy or a webhook may set to any value."""
LAZY_SECONDS = 0.1
"""Delay of a low-priority write while at most `FEW_LAZY` of them wait."""
FEW_LAZY = 10
LAZY_SECONDS_EACH = 0.01
"""Further delay for each waiting low-priority write above `FEW_LAZY`: if many jobs start at once, the changes of each,
such as bound, started and estimated, become one write."""
LONGEST_LAZY_SECONDS = 2.0
"""Longest such delay."""
QUIET_SECONDS = 2.0
"""Time without high-priority writes and without starts of pods after which statuses that only report are written: if
hundreds of jobs start at once, the plans that open windows and their pods come first."""
REPORT_GAP_SECONDS = 0.5
"""Time between two writes of statuses that only report, before that time without starts. Late ones are written several
at a time."""
LAZY_GAP_SECONDS = 0.03
"""Minimum gap between low-priority writes in seconds, so that a burst after a forecast does not delay pod starts."""
LAZY_PER_GAP = 50
"""For each multiple of this number of waiting low-priority writes, one more is written per gap."""
REQUEST_SECONDS = 60.0
"""Time after which the API server gives up a request (its default for ``--request-timeout``)."""
MAX_LAPSE_SECONDS = 30.0
"""Maximum time a write waits for leadership to return, in seconds. After that the process exits and another replica
takes over."""
PARALLEL = 12
"""Maximum number of concurrent writes, besides those of doubtful objects."""
PER_NAMESPACE = 9
DOUBTFUL_PARALLEL = 4
"""Number of workers for objects whose last write failed, and for namespaces whose last write was slow."""
DOUBTFUL_PER_NAMESPACE = 2


class Priority(Enum):
    """Priority of a write."""

    HIGH = "high"
    """At once: something acts on the status."""
    LOW = "low"
    """After `LAZY_SECONDS`, or longer if many wait. Later changes become part of the write."""
    REPORT = "report"
    """As `LOW`, and after all writes of high priority: the status only reports."""


def _always() -> bool:
    return True


def _ignore(path: str, error: ApiError) -> None:
    """Do nothing about a rejection."""


@dataclass(slots=True)
class _Failure:
    """Failed writes of one object since its last success."""

    rejections: int = 0
    retries: int = 0
    in_doubt_until: float = float("-inf")
    """Time until which one of these writes may still be applied."""
    due: float = 0.0
    """Time before which the object is not written again."""
    timer: asyncio.TimerHandle | None = None
    """Set while a build waits for that time."""


class StatusWriter:
    """Applies statuses; changes during a write of the same object are merged into the next write.

    A write is dropped if its object is gone. If the API server rejects the object, the write is repeated after a pause
    that grows, with what has changed until then: the last status of a job that has ended must not be lost. A crash
    before a write leaves an older, still consistent plan in the API server.
    """

    def __init__(
        self,
        client: ApiClient,
        count: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        rejected: Callable[[str, ApiError], None] = _ignore,
    ) -> None:
        """Create a queue; nothing is written before `run`.

        Args:
            client: Client of the API server.
            count: Called with the result of each write.
            clock: Monotonic seconds.
            rejected: Called with the path and the error when the API server rejects an object for a reason of its own.
        """
        self._client = client
        self._count = count
        self._clock = clock
        self._rejected = rejected
        self._leads: Callable[[], bool] = _always
        self._builds: dict[str, Build] = {}
        self._workers = FairWorkers(
            self._serve,
            parallel=PARALLEL,
            per_group=PER_NAMESPACE,
            slow_parallel=DOUBTFUL_PARALLEL,
            slow_per_group=DOUBTFUL_PER_NAMESPACE,
        )
        self._failures: dict[str, _Failure] = {}
        self._queued: set[str] = set()
        """Paths in the queues of the workers."""
        self._busy: set[str] = set()
        self._urgent: set[str] = set()
        """Paths in progress that have a new high-priority change."""
        self._lazy: dict[str, tuple[float, Priority]] = {}
        """Low-priority paths with the time of their first change, in that order."""
        self._pressing: set[str] = set()
        """High-priority paths in the queues or in progress."""
        self._pressed_at = float("-inf")
        """Time at which the last of them was written, or at which `hold_reports` was called."""
        self._reported_at = float("-inf")
        """Time of the last write of a status that only reports."""
        self._has_lazy = asyncio.Event()
        self._conditions: dict[str, Build] = {}
        """Conditions to apply alone, by path."""

    def put(self, path: str, build: Build, priority: Priority = Priority.HIGH) -> None:
        """Queue a write of the object at this path; a later call for the same path replaces an earlier one.

        Args:
            path: API path of the object's status.
            build: Builds the object at the time of the write.
            priority: Priority of the write.
        """
        self._builds[path] = build
        if path in self._busy:
            if priority is Priority.HIGH:
                self._urgent.add(path)
        elif priority is Priority.HIGH:
            self._lazy.pop(path, None)
            if path not in self._failures:
                self._pressing.add(path)
            self._enqueue(path)
        elif path not in self._queued:
            self._postpone(path, priority)

    def hold_reports(self) -> None:
        """Delay statuses that only report: pods are starting."""
        self._pressed_at = self._clock()

    @property
    def is_holding_reports(self) -> bool:
        """Whether more than `FEW_LAZY` writes wait for starts of pods."""
        return len(self._lazy) > FEW_LAZY and self._are_pods_starting(self._clock())

    def _are_pods_starting(self, now: float) -> bool:
        return bool(self._pressing) or now - self._pressed_at < QUIET_SECONDS

    def put_condition(self, path: str, build: Build) -> None:
        """Queue a condition, which is applied alone under a field manager of its own, at most one per path.

        It is sent once and not repeated: an object that takes no condition is only in the log and in the metrics.
        """
        self._conditions[path] = build
        if path not in self._busy:
            self._enqueue(path, waits=False)

    def is_unsettled(self, path: str) -> bool:
        """Return whether a write of the object is in progress, or has failed and may be applied all the same."""
        failure = self._failures.get(path)
        return path in self._busy or (failure is not None and self._clock() < failure.in_doubt_until)

    def retry_now(self, path: str) -> None:
        """End the pause after rejections of an object that has changed."""
        failure = self._failures.pop(path, None)
        if failure is not None and failure.timer is not None:
            failure.timer.cancel()
            self._enqueue(path)

    def _postpone(self, path: str, priority: Priority = Priority.REPORT) -> None:
        since, known = self._lazy.get(path, (self._clock(), priority))
        self._lazy[path] = (since, Priority.LOW if Priority.LOW in (known, priority) else priority)
        self._has_lazy.set()

    def _enqueue(self, path: str, *, waits: bool = True) -> None:
        """Queue a path now, or set a timer if it has to wait after a failure."""
        failure = self._failures.get(path)
        if waits and failure is not None and (wait := failure.due - self._clock()) > 0:
            if failure.timer is None:
                failure.timer = asyncio.get_running_loop().call_later(wait, self._wake, path)
            return
        if path in self._queued:
            return
        self._queued.add(path)
        self._workers.put(_namespace(path), path, is_doubtful=failure is not None)

    def _wake(self, path: str) -> None:
        failure = self._failures.get(path)
        if failure is not None:
            failure.timer, failure.due = None, 0.0
        if path in self._builds and path not in self._busy:
            self._lazy.pop(path, None)
            self._enqueue(path)

    async def run(self, leads: Callable[[], bool] = _always) -> None:
        """Write queued statuses forever.

        Args:
            leads: Whether this process holds the Lease; nothing is sent while it is False.

        Raises:
            LeadershipLostError: leadership is lost.
        """
        self._leads = leads
        try:
            await run_until_first_exit(**self._workers.run(), lazy_writes=self._write_lazily())
        finally:
            for failure in self._failures.values():
                if failure.timer is not None:
                    failure.timer.cancel()

    async def _write_lazily(self) -> None:
        while True:
            while not self._lazy:
                self._has_lazy.clear()
                await self._has_lazy.wait()
            delay = min(LAZY_SECONDS + LAZY_SECONDS_EACH * max(0, len(self._lazy) - FEW_LAZY), LONGEST_LAZY_SECONDS)
            due = self._due_lazily(delay)
            for path in due:
                del self._lazy[path]
                self._enqueue(path)
            if due:
                await asyncio.sleep(LAZY_GAP_SECONDS)
                continue
            first = next(iter(self._lazy.values()), (0.0,))[0] + delay - self._clock()
            await asyncio.sleep(first if 0.0 < first < LAZY_SECONDS else LAZY_SECONDS)

    def _due_lazily(self, delay: float) -> list[str]:
        """Return the low-priority paths that are due after this delay, as many as are written per gap."""
        now = self._clock()
        due = [path for path, (since, _) in self._lazy.items() if since <= now - delay]
        if not self._are_pods_starting(now):
            return due[: 1 + len(due) // LAZY_PER_GAP]
        low = [path for path in due if self._lazy[path][1] is Priority.LOW]
        chosen = low[: 1 + len(low) // LAZY_PER_GAP]
        if now - self._reported_at < REPORT_GAP_SECONDS:
            return chosen
        if reports := [path for path in due if self._lazy[path][1] is Priority.REPORT]:
            self._reported_at = now
            chosen += reports[: reports_per_gap(now - self._lazy[reports[0]][0])]
        return chosen

    async def _serve(self, namespace: str, path: str) -> float | None:
        """Write an object, and queue it again if it has changed meanwhile; returns the seconds that the write took."""
        self._queued.discard(path)
        self._busy.add(path)
        try:
            seconds = await self._write_all(path)
        finally:
            self._busy.discard(path)
        urgent = path in self._urgent
        self._urgent.discard(path)
        if path in self._pressing:
            self._pressed_at = self._clock()
        if not urgent or path in self._failures:
            self._pressing.discard(path)
        else:
            self._pressing.add(path)
        if path in self._conditions:
            self._enqueue(path, waits=False)
        elif path in self._builds and (urgent or path in self._failures):
            self._enqueue(path)
        elif path in self._builds:
            self._postpone(path)
        return seconds

    async def _write_all(self, path: str) -> float | None:
        await self._await_lease()
        condition = self._conditions.pop(path, None)
        if condition is not None and (body := condition()) is not None:
            await self._write_condition(path, body)
        failure = self._failures.get(path)
        return await self._write(path) if failure is None or failure.due <= self._clock() else None

    async def _write(self, path: str) -> float | None:
        build = self._builds.pop(path, None)
        body = build() if build is not None else None
        if build is None or body is None:
            self._failures.pop(path, None)
            return None
        began = self._clock()
        try:
            await self._client.apply(path, body, SCHEDULER_MANAGER)
        except ApiError as error:
            self._failed(path, build, error)
        else:
            self._failures.pop(path, None)
            self._count("written")
        return self._clock() - began

    async def _write_condition(self, path: str, body: dict[str, Any]) -> None:
        try:
            await self._client.apply(path, body, REJECTION_MANAGER)
        except ApiError as error:
            logger.warning("%s: the API server rejected a condition: %s", path, error)

    async def _await_lease(self) -> None:
        """Wait until this process holds the Lease.

        Raises:
            LeadershipLostError: this takes longer than `MAX_LAPSE_SECONDS`.
        """
        since = time.monotonic()
        while not self._leads():
            if time.monotonic() - since > MAX_LAPSE_SECONDS:
                raise LeadershipLostError(f"Lease was not renewed for {MAX_LAPSE_SECONDS:g} s")
            await asyncio.sleep(FIRST_PAUSE_SECONDS)

    def _failed(self, path: str, build: Build, error: ApiError) -> None:
        """Drop the write of an object that is gone; set the time from which another object is written again."""
        if any(text in error.message for text in GONE_TEXTS.get(error.status, ())):
            self._failures.pop(path, None)
            self._count("gone")
            return
        failure = self._failures.setdefault(path, _Failure())
        self._builds.setdefault(path, build)
        if is_object_rejected(error):
            self._count("refused")
            logger.error("%s: the API server rejected the status: %s", path, error)
            pause = min(FIRST_REJECTION_SECONDS * 2**failure.rejections, LONGEST_REJECTION_SECONDS)
            failure.rejections += 1
            failure.due = self._clock() + pause
            self._rejected(path, error)
            return
        if error.status == 0 or error.status >= 500:  # no answer about this request; any other says that it failed
            failure.in_doubt_until = self._clock() + REQUEST_SECONDS
        self._count("retried")
        logger.warning("%s: status write failed, retrying: %s", path, error)
        pause = min(FIRST_PAUSE_SECONDS * 2**failure.retries, LONGEST_PAUSE_SECONDS)
        failure.retries = min(failure.retries + 1, 16)
        failure.due = self._clock() + max(pause, min(error.retry_after or 0.0, LONGEST_RETRY_AFTER_SECONDS))


def _namespace(path: str) -> str:
    """Return the namespace in an API path; "" for a cluster-scoped object."""
    _, found, rest = path.partition("/namespaces/")
    return rest.partition("/")[0] if found else ""
