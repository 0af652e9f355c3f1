"""API client over one aiohttp session: reads, writes, server-side apply, and streams for watches."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar, Self

import aiohttp
import msgspec
from yarl import URL

from tranche import __version__
from tranche.kube.client.credentials import Credentials
from tranche.kube.client.errors import ApiError, Unreachable

APPLY = "application/apply-patch+yaml"
CONNECT_SECONDS = 10.0
MIN_DIFFERENCE_SECONDS = 1.0
"""Smaller differences between two clocks are not corrected."""

__all__ = ["APPLY", "ApiClient", "ApiError", "Unreachable"]


class _Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(msgspec.Struct, rename="camel"):
    kind: str = ""
    retry_after_seconds: float | None = None
    causes: list[_Cause] = []


class _Status(msgspec.Struct):
    reason: str = ""
    message: str = ""
    details: _Details | None = None


class ApiClient:
    """Client of one cluster's API server. Any number of tasks of one event loop can share it."""

    connections: ClassVar[int] = 100
    """Number of connections at a time."""

    def __init__(self, session: aiohttp.ClientSession, credentials: Credentials) -> None:
        self._session = session
        self._credentials = credentials
        self.observe: Callable[[str, int, float], None] = _ignore
        """Callback for every request: method, HTTP status (0: no response) and duration in seconds."""
        self._ahead = 0.0
        """Seconds by which the API server's clock is ahead of this machine's, if that is a second or more."""

    @classmethod
    @asynccontextmanager
    async def connect(cls, kubeconfig: str | None = None, context: str | None = None) -> AsyncIterator[Self]:
        """Open a session with the credentials from `Credentials.load`, without sending a request.

        Raises:
            Unreachable: there are no usable credentials.
        """
        credentials = await Credentials.load(kubeconfig, context)
        # Within a cluster, compression costs more CPU time than the saved bytes are worth.
        headers = {"User-Agent": f"tranche/{__version__}", "Accept": "application/json", "Accept-Encoding": "identity"}
        connector = aiohttp.TCPConnector(limit=cls.connections)
        async with aiohttp.ClientSession(headers=headers, connector=connector) as session:
            yield cls(session, credentials)

    def server_time(self) -> float:
        """Return the seconds since the epoch by the clock of the API server, which stamps all objects.

        The clock of this machine may be wrong by hours. Responses have the server's time in whole seconds.
        """
        return time.time() + self._ahead

    async def get(self, path: str, **params: str | int) -> bytes:
        """Send a GET request and return the raw body.

        Raises:
            ApiError: the status is not 2xx; `Unreachable` if no response arrived within 30 s.
        """
        return await self._send("GET", path, params)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: object | bytes | None = None,
        content_type: str = "application/json",
        params: Mapping[str, str | int] | None = None,
        timeout: float = 30.0,
    ) -> dict[str, Any]:
        """Send `body` (bytes unchanged, other values as JSON) and return the decoded object of the response.

        Args:
            method: HTTP method.
            path: Path from the root, such as ``/api/v1/nodes``, with escaped names.
            body: Request body, if any.
            content_type: Content type of the body; one of the patch types for PATCH.
            params: Query parameters.
            timeout: Timeout for the whole request, in seconds.

        Raises:
            ApiError: the status is not 2xx; `Unreachable` if no response arrived in time.
        """
        data = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        headers = {} if data is None else {"Content-Type": content_type}
        raw = await self._send(method, path, params or {}, data, headers, timeout)
        try:
            return msgspec.json.decode(raw, type=dict[str, Any]) if raw else {}
        except msgspec.DecodeError as error:
            raise Unreachable("NotJson", f"{method} {path}: {error}") from error

    async def apply(self, path: str, obj: object, manager: str) -> dict[str, Any]:
        """Apply an object (server-side apply, forced: it takes fields over from other managers)."""
        # The API server refuses an applied field that the schema does not have. The default, to warn of it, parses the
        # body a second time: an eighth of the CPU time of a status.
        params = {"fieldManager": manager, "force": "true", "fieldValidation": "Ignore"}
        return await self.request("PATCH", path, body=obj, content_type=APPLY, params=params)

    @asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str | int], *, inactivity: float = 70.0
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a stream of lines; each line is one JSON value without its line end.

        Args:
            path: As in `request`.
            params: Query parameters.
            inactivity: Time without a byte after which the stream counts as broken, in seconds.

        Raises:
            ApiError: the server rejects the request; the iterator raises `Unreachable` if the connection breaks.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=inactivity)
        with _faults("GET", path):
            response = await self._open("GET", path, params, None, {}, timeout)
        async with response:
            try:
                yield _lines(response, path)
            finally:
                _abort(response)

    async def _send(
        self,
        method: str,
        path: str,
        params: Mapping[str, str | int],
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = 30.0,
    ) -> bytes:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        with _faults(method, path):
            async with (
                asyncio.timeout(seconds),
                await self._open(method, path, params, body, headers or {}, timeout) as response,
            ):
                return await response.read()

    async def _open(
        self,
        method: str,
        path: str,
        params: Mapping[str, str | int],
        body: bytes | None,
        headers: Mapping[str, str],
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        """Send a request and return the response with its body unread.

        After a 401, and after a certificate that the known CA has not signed, reload the credentials once: the token or
        the CA may have been replaced since the process started.
        """
        renewed = False
        while True:
            began, status, asked_at = time.monotonic(), 0, time.time()
            response: aiohttp.ClientResponse | None = None
            try:
                response = await self._session.request(
                    method,
                    URL(self._credentials.host + path, encoded=True),
                    params=params,
                    data=body,
                    headers={**headers, **await self._credentials.headers()},
                    timeout=timeout,
                    allow_redirects=False,
                    **self._credentials.connection,
                )
                status = response.status
                self._note_date(response.headers.get("Date", ""), asked_at, time.time())
            except aiohttp.ClientSSLError:
                if renewed:
                    raise
            finally:
                self.observe(method, status, time.monotonic() - began)
            if response is not None:
                if 200 <= status < 300:
                    return response
                async with response:
                    if status != 401 or renewed:
                        raise _refusal(response, await response.read())
            await self._credentials.renew()
            renewed = True

    def _note_date(self, date: str, asked_at: float, answered_at: float) -> None:
        """Note the time of a response; it lies in the second that the header names, and between the two local times."""
        try:
            second = parsedate_to_datetime(date).timestamp()
        except ValueError:
            return
        least, most = second - answered_at, second + 1.0 - asked_at
        ahead = max(least, 0.0) + min(most, 0.0)
        self._ahead = ahead if abs(ahead) >= MIN_DIFFERENCE_SECONDS else 0.0


def _ignore(method: str, status: int, seconds: float) -> None:
    """Do not record requests."""


@contextmanager
def _faults(method: str, path: str) -> Iterator[None]:
    """Raise `Unreachable` for any error below HTTP, and for a cancellation that no caller requested."""
    try:
        yield
    except (aiohttp.ClientError, OSError) as error:
        raise Unreachable(type(error).__name__, f"{method} {path}: {error}") from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise Unreachable("Cancelled", f"{method} {path}: the connection was cancelled") from error


async def _lines(response: aiohttp.ClientResponse, path: str) -> AsyncIterator[bytes]:
    rest = b""
    with _faults("GET", path):
        async for piece in response.content.iter_any():
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                if line:
                    yield line


def _abort(response: aiohttp.ClientResponse) -> None:
    """Break the connection of a response that is not read to its end.

    An orderly close of TLS waits for the server, and the event loop of a short command may end before.
    """
    transport = response.connection.transport if response.connection is not None else None
    if transport is not None and not transport.is_closing():
        transport.abort()


def _refusal(response: aiohttp.ClientResponse, body: bytes) -> ApiError:
    try:
        status = msgspec.json.decode(body, type=_Status)
    except msgspec.DecodeError:
        status = _Status(message=body[:500].decode(errors="replace").strip())
    seconds = status.details.retry_after_seconds if status.details else None
    header = response.headers.get("Retry-After", "")
    if seconds is None and header.isdecimal():
        seconds = float(header)
    details = status.details or _Details()
    causes = {cause.reason: cause.message for cause in details.causes}
    fields = tuple(cause.field for cause in details.causes if cause.field)
    reason = status.reason or response.reason or ""
    return ApiError(response.status, reason, status.message, seconds, causes, details.kind, fields)
