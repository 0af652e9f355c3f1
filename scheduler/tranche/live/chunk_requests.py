"""Queue of chunk requests from workers to the planner.

A grant is returned only when the watch shows it in status.plan, so that the next planner knows it if this process ends.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from tranche.kube.api.resources import TrainingJob
from tranche.live.job_events import is_job_over
from tranche.model import ChunkGrant, ChunkRequest
from tranche.planner import ChunksRequested, Planner
from tranche.planner.handlers.chunk_request import chunk_grant

ANSWER_SECONDS = 5.0
"""Time limit for writing the plan with a grant; after it, the worker retries."""
AT_ONCE = 25
"""Maximum number of requests in one turn of the controller, which the planner handles with one decision. The workers of
a wide job ask in the same second, and the Lease must be renewed meanwhile."""


@dataclass(frozen=True, slots=True, eq=False)
class _Pending:
    """A request and its answer."""

    request: ChunkRequest
    future: "asyncio.Future[ChunkGrant | None]"


class ChunkRequestQueue:
    """Pending chunk requests and their futures."""

    def __init__(
        self, planner: Planner, jobs: Mapping[str, TrainingJob], clock: Callable[[], float], wake: Callable[[], None]
    ) -> None:
        """Create an empty queue; the controller takes requests with `drain`.

        Args:
            planner: Planner that grants chunks.
            jobs: Watched jobs by key.
            clock: Time of events, in seconds since the epoch.
            wake: Called when a request is queued.
        """
        self._planner = planner
        self._jobs = jobs
        self._clock = clock
        self._wake = wake
        self._new: dict[tuple[str, int], ChunkRequest] = {}
        """Latest request that the planner has not handled, by job and attempt."""
        self._waiting: dict[str, dict[int, _Pending]] = {}
        """Requests without an answer, by job and attempt."""

    async def ask(self, request: ChunkRequest) -> ChunkGrant | None:
        """Return the next chunks for the worker; None if its attempt has ended.

        A worker whose attempt has ended exits without saving. The workers of a job that the planner does not know have
        to ask again: it cannot read the job after a rollback, or the watch of a new leader does not show it yet. The
        report API, which has a watch of its own, refuses requests of workers whose job is gone.

        Raises:
            TimeoutError: the plan with the grant could not be written in time, or the planner does not know the job.
        """
        known = self._planner.cluster.jobs.get(request.job)
        state = known if known is not None and request.is_of(known.job) else None
        resource = self._jobs.get(request.job)
        if state is None and (resource is None or not is_job_over(resource)):
            raise TimeoutError(f"the planner does not know job {request.job}")
        if state is None or request.attempt not in state.runs:
            return None
        with self._place(request) as pending:
            self._new[request.job, request.attempt] = request
            self._wake()
            return await asyncio.wait_for(pending.future, ANSWER_SECONDS)

    @contextmanager
    def _place(self, request: ChunkRequest) -> Iterator["_Pending"]:
        """Enter the request; it replaces an earlier one of the same attempt, whose caller has to ask again."""
        pending = _Pending(request, asyncio.get_running_loop().create_future())
        of_job = self._waiting.setdefault(request.job, {})
        earlier = of_job.get(request.attempt)
        if earlier is not None and not earlier.future.done():
            earlier.future.set_exception(TimeoutError("replaced by a later request of the same attempt"))
        of_job[request.attempt] = pending
        try:
            yield pending
        finally:
            if of_job.get(request.attempt) is pending:
                del of_job[request.attempt]
            if not of_job and self._waiting.get(request.job) is of_job:
                del self._waiting[request.job]

    def drain(self) -> list[ChunksRequested]:
        """Remove and return the oldest requests as events, at most `AT_ONCE`."""
        first = list(islice(self._new, AT_ONCE))
        return [ChunksRequested(self._new.pop(one), self._clock()) for one in first]

    @property
    def waiting(self) -> bool:
        """Whether requests are queued."""
        return bool(self._new)

    def settle(self, key: str, attempts: Collection[int] | None = None) -> None:
        """Answer the requests of a job that can be answered, after the planner handled them or the job changed.

        Args:
            key: Key of the job.
            attempts: Attempts whose requests the planner has just handled; None for all, because the job has changed.
        """
        of_job = self._waiting.get(key)
        if not of_job:
            return
        state = self._planner.cluster.jobs.get(key)
        written = self._written_fences(key)
        for attempt in list(of_job) if attempts is None else attempts:
            pending = of_job.get(attempt)
            if pending is None or pending.future.done() or (key, attempt) in self._new:
                continue
            request = pending.request
            given = None
            if state is not None and request.is_of(state.job):
                given = chunk_grant(state, attempt, request.fence, request.durable)
            if given is None or not given.chunks or written.get(attempt) == given.fence:
                pending.future.set_result(given)

    def _written_fences(self, key: str) -> dict[int, int]:
        """Fence of each window in the written plan, by attempt."""
        job = self._jobs.get(key)
        windows = job.status.plan.workers if job is not None and job.status.plan is not None else ()
        return {window.attempt: window.renewed or window.attempt for window in windows}
