"""Client of the leader's planner API, in the API process."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import aiohttp
import msgspec

from tranche.auth.review_cache import BusyError
from tranche.model import ChunkGrant, ChunkRequest, ChunkWindow, PlannedWindow, Report, WhatIf
from tranche.planner_api import messages
from tranche.planner_api.leader_address import LeaderAddress
from tranche.planner_api.peer_token import PeerToken
from tranche.planner_api.receiver import NotLeadingError

BATCH = 200
"""Maximum number of reports in one request."""
MAX_PENDING = 20_000
"""Maximum number of reports that wait; a worker whose report does not fit repeats it."""
ANSWER_SECONDS = 8.0
"""Time limit of a request, longer than the planner takes to write the plan with a grant."""
OUTLOOK_SECONDS = 2.0
"""Time for which an outlook is used, equal to the refresh interval of the page."""
WHAT_IF_SECONDS = 30.0
"""Time limit of a what-if: two rollouts with half of the time of the planner's event loop."""
CONNECTIONS = 200
NO_OUTLOOK = messages.Outlook({}, {}, [])


class PlannerClient:
    """Sends reports to the leader, whichever replica that is, and asks it what only its planner knows."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        leader: LeaderAddress,
        token: PeerToken,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a client; reports are sent while `run` runs.

        Args:
            session: HTTP session.
            leader: Address of the leader.
            token: Token of this process.
            clock: Monotonic seconds.
        """
        self._session = session
        self._leader = leader
        self._token = token
        self._clock = clock
        self._line: list[tuple[Report, asyncio.Future[bool]]] = []
        self._wake = asyncio.Event()
        self._outlook = NO_OUTLOOK
        self._windows: dict[str, list[PlannedWindow]] = {}
        """Windows of the outlook by site."""
        self._outlook_due = float("-inf")
        self.responds = True
        """Whether the leader has answered the last `refresh`."""

    async def run(self) -> None:
        """Send queued reports in batches, forever. While one batch is under way, the next one fills."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._line:
                batch, self._line = self._line[:BATCH], self._line[BATCH:]
                await self._send(batch)

    async def take(self, report: Report) -> bool:
        """Pass a report to the leader; False if a newer attempt has superseded this one.

        Raises:
            NotLeadingError: no leader accepts it now.
        """
        if len(self._line) >= MAX_PENDING:
            raise NotLeadingError("too many reports wait for the leader")
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._line.append((report, future))
        self._wake.set()
        return await future

    async def ask(self, request: ChunkRequest) -> ChunkGrant | None:
        """Return the next chunks for a worker; None if its attempt has ended.

        Raises:
            NotLeadingError: no leader answers now.
            TimeoutError: the plan with the grant could not be written in time.
        """
        status, body = await self._request("POST", messages.CHUNK_REQUESTS, messages.encode(request))
        if status == messages.SUPERSEDED:
            return None
        if status == 504:
            raise TimeoutError
        given: ChunkGrant = self._read(messages.decode_grant, status, body)
        return given

    async def progress(self, key: str) -> dict[str, Any] | None:
        """Return the current progress of a job; None if no planner has it."""
        try:
            status, body = await self._request("GET", messages.PROGRESS, job=key)
            return None if status == 404 else self._read(messages.decode_progress, status, body)
        except NotLeadingError:
            return None

    async def chunk_windows(self, key: str) -> tuple[ChunkWindow, ...] | None:
        """Return node and time window of each chunk of a job; None if no planner has it."""
        try:
            status, body = await self._request("GET", messages.CHUNKS, job=key)
            return None if status == 404 else self._read(messages.decode_windows, status, body)
        except NotLeadingError:
            return None

    async def what_if(self, job: bytes) -> WhatIf:
        """Return the plan of a TrainingJob in JSON that is not submitted.

        Raises:
            NotLeadingError: no leader answers now.
            BusyError: another what-if is computed.
            ValueError: the job cannot be planned as it is.
        """
        status, body = await self._request("POST", messages.WHAT_IF, job, WHAT_IF_SECONDS)
        if status == messages.TOO_MANY:
            raise BusyError
        if status == messages.UNREADABLE:
            raise ValueError(body.decode(errors="replace"))
        found: WhatIf = self._read(messages.decode_what_if, status, body)
        return found

    def expected(self, key: str) -> messages.ExpectedPlace | None:
        """Return the expected place of a waiting job, as of the last `refresh`."""
        return self._outlook.places.get(key)

    def trained(self, key: str) -> messages.Trained | None:
        """Return the progress of a job with windows, as of the last `refresh`."""
        return self._outlook.trained.get(key)

    def planned_windows(self, site: str) -> Sequence[PlannedWindow]:
        """Return the windows of the forecast at a site that are not open yet, as of the last `refresh`."""
        return self._windows.get(site, ())

    async def refresh(self) -> None:
        """Read the outlook again if it is older than `OUTLOOK_SECONDS`."""
        if self._clock() < self._outlook_due:
            return
        self._outlook_due = self._clock() + OUTLOOK_SECONDS
        try:
            status, body = await self._request("GET", messages.OUTLOOK)
            self._outlook = self._read(messages.decode_outlook, status, body)
            self.responds = True
        except NotLeadingError:
            self._outlook = NO_OUTLOOK
            self.responds = False
        self._windows = {}
        for one in self._outlook.windows:
            self._windows.setdefault(one.site, []).append(one)

    async def _send(self, batch: list[tuple[Report, "asyncio.Future[bool]"]]) -> None:
        waiting = [(report, future) for report, future in batch if not future.done()]
        try:
            body = messages.encode([report for report, _ in waiting])
            results = self._read(messages.decode_results, *await self._request("POST", messages.REPORTS, body))
            if len(results) != len(waiting):
                raise NotLeadingError("the leader's answer is incomplete")
        except NotLeadingError as error:
            for _, future in waiting:
                if not future.done():
                    future.set_exception(NotLeadingError(str(error)))
            return
        for (_, future), result in zip(waiting, results, strict=True):
            if not future.done():
                future.set_result(result == messages.ACCEPTED)

    async def _request(
        self, method: str, path: str, body: bytes = b"", seconds: float = ANSWER_SECONDS, **query: str
    ) -> tuple[int, bytes]:
        """Send a request to the leader.

        Raises:
            NotLeadingError: there is no leader, or it does not answer, or not as the leader.
        """
        address = await self._leader.find()
        try:  # OSError includes TimeoutError, and that the token cannot be read
            headers = {"Authorization": f"Bearer {self._token.read()}"}
            async with (
                asyncio.timeout(seconds),
                self._session.request(
                    method, address + path, data=body or None, params=query, headers=headers, allow_redirects=False
                ) as response,
            ):
                content = await response.read()
        except (aiohttp.ClientError, OSError) as error:
            self._leader.doubt()
            raise NotLeadingError(f"the leader does not answer: {type(error).__name__}") from error
        if response.status in (401, 503):
            self._leader.doubt()
            raise NotLeadingError(content[:200].decode(errors="replace").strip() or "the replica does not lead")
        return response.status, content

    def _read(self, decode: Callable[[bytes], Any], status: int, body: bytes) -> Any:
        try:
            if status == 200:
                return decode(body)
        except msgspec.DecodeError:
            pass
        self._leader.doubt()
        raise NotLeadingError(f"the leader's answer cannot be used (status {status})")
