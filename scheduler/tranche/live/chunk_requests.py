"""Queue of chunk requests from workers to the planner.

A grant is returned only when the watch shows it in status.plan, so that the next planner knows it if this process ends.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tranche.kube.api.resources import TrainingJob
from tranche.model import ChunkGrant, ChunkRequest
from tranche.planner import ChunksRequested, Planner
from tranche.planner.handlers.chunk_request import chunk_grant

ANSWER_SECONDS = 5.0
"""Time limit for writing the plan with a grant; after it, the worker retries."""


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
        self._new: list[ChunkRequest] = []
        self._waiting: dict[str, list[tuple[ChunkRequest, asyncio.Future[ChunkGrant | None]]]] = {}

    async def ask(self, request: ChunkRequest) -> ChunkGrant | None:
        """Return the next chunks for the worker; None if its attempt has ended.

        Raises:
            TimeoutError: the plan with the grant could not be written in time.
        """
        state = self._planner.cluster.jobs.get(request.job)
        if state is None or request.attempt not in state.runs:
            return None
        with self._place(request) as future:
            self._new.append(request)
            self._wake()
            return await asyncio.wait_for(future, ANSWER_SECONDS)

    @contextmanager
    def _place(self, request: ChunkRequest) -> Iterator["asyncio.Future[ChunkGrant | None]"]:
        future: asyncio.Future[ChunkGrant | None] = asyncio.get_running_loop().create_future()
        entry = (request, future)
        self._waiting.setdefault(request.job, []).append(entry)
        try:
            yield future
        finally:
            self._waiting[request.job].remove(entry)
            if not self._waiting[request.job]:
                del self._waiting[request.job]

    def drain(self) -> list[ChunksRequested]:
        """Return the requests since the last call, as events."""
        asked, self._new = self._new, []
        return [ChunksRequested(request, self._clock()) for request in asked]

    def settle(self, key: str) -> None:
        """Answer the requests of a job that can be answered, after the planner handled them or the job changed."""
        for request, future in self._waiting.get(key, ()):
            if future.done() or any(request is one for one in self._new):
                continue
            state = self._planner.cluster.jobs.get(key)
            given = chunk_grant(state, request.attempt, request.fence, request.durable) if state is not None else None
            if given is None or not given.chunks or self._is_written(request, given):
                future.set_result(given)

    def _is_written(self, request: ChunkRequest, given: ChunkGrant) -> bool:
        job = self._jobs.get(request.job)
        windows = job.status.plan.workers if job is not None and job.status.plan is not None else ()
        return any((w.attempt, w.renewed or w.attempt) == (request.attempt, given.fence) for w in windows)
