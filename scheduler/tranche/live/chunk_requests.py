"""Workers that ask for chunks: their questions on the way to the planner, and its answers on the way back.

An answer that gives chunks is sent when status.plan says it, as the watch shows: whatever becomes of this process, the
next planner knows of it.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tranche.kube.api.resources import TrainingJob
from tranche.model import ChunkGrant, ChunkRequest
from tranche.planner import ChunksRequested, Planner
from tranche.planner.handlers.chunk_request import chunk_grant

ANSWER_SECONDS = 5.0
"""A plan that takes longer to be written is not waited for: the worker asks again."""


class RenewalDesk:
    """Between the workers that ask and the planner."""

    def __init__(
        self, planner: Planner, jobs: Mapping[str, TrainingJob], clock: Callable[[], float], wake: Callable[[], None]
    ) -> None:
        """Nothing is asked of the planner itself before `drain`.

        Args:
            planner: Who decides.
            jobs: As the watch shows them.
            clock: Of events, in seconds.
            wake: Called when there is something to drain.
        """
        self._planner = planner
        self._jobs = jobs
        self._clock = clock
        self._wake = wake
        self._new: list[ChunkRequest] = []
        self._waiting: dict[str, list[tuple[ChunkRequest, asyncio.Future[ChunkGrant | None]]]] = {}

    async def ask(self, request: ChunkRequest) -> ChunkGrant | None:
        """What the worker is to train next; None if its attempt is over.

        Raises:
            TimeoutError: if the plan that says it could not be written in time.
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
        """What has been asked since the last time."""
        asked, self._new = self._new, []
        return [ChunksRequested(request, self._clock()) for request in asked]

    def settle(self, key: str) -> None:
        """The planner has heard of all that was asked, or the job's object has changed: answer what can be answered."""
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
