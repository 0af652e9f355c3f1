"""Proxy between one client and the API server that injects the faults of networks, load and other clients.

It ends TLS, so it sees requests and answers; the address in a client's kubeconfig leads to it
(``Cluster.proxy``). The faults are drawn from a seed, but the order of requests is the client's, so that two
runs of one seed are similar and not equal.
"""

import asyncio
import json
import random
import ssl
import threading
import weakref
from collections import Counter
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType, TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web

from .workspace import HOST

_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "host", "upgrade"})
_HOLD_SECONDS = 0.05
_STOP_SECONDS = 0.1  # aiohttp takes 0 for "as long as it takes"
_REASONS = {
    409: ("Conflict", "Operation cannot be fulfilled: the object has been modified; please apply your changes again"),
    429: ("TooManyRequests", "the server has received too many requests and has asked us to try again later"),
    500: ("InternalError", "Internal error occurred: etcdserver: request timed out"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
}


@dataclass(frozen=True, slots=True)
class Faults:
    """Faults that a proxy injects into its client's requests. Shares are between 0 and 1; default: no faults."""

    refusals: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    """Share of writes that are answered with this status (409, 429, 500 or 503) and not passed on."""
    refuse_reads: bool = False
    """Whether lists, gets and starts of watches are refused as well."""
    broken: float = 0.0
    """Share of requests whose connection breaks before the API server receives them."""
    unanswered: float = 0.0
    """Share of writes that are carried out and whose connection breaks before the answer."""
    delay_seconds: tuple[float, float] = (0.0, 0.0)
    """Minimum and maximum delay of a request; the request continues if its client dies meanwhile."""
    silent: bool = False
    """Whether no data pass through and no connection breaks, until this is over."""
    held: str = ""
    """Suffix of paths whose watches show nothing new until this is over, as with a watch cache that lags behind."""


class FaultProxy:
    """HTTP server in a thread of its own, in front of another one. A context manager; its methods are thread-safe."""

    def __init__(
        self,
        upstream: str,
        *,
        seed: int = 0,
        serving: ssl.SSLContext | None = None,
        trusting: ssl.SSLContext | None = None,
    ) -> None:
        """Describe a proxy.

        Args:
            upstream: URL of the server behind it, without a path.
            seed: Seed of the draws.
            serving: TLS context with the certificate to present (default: plain HTTP).
            trusting: TLS context with the authority to verify ``upstream``.
        """
        self.url = ""
        """URL of the proxy itself, once it runs."""
        self.counts: Counter[str] = Counter()
        """Number of faults so far: ``refused 429``, ``broken``, ``unanswered``, ``late``, ``cut``."""
        self._upstream, self._serving, self._trusting = upstream, serving, trusting
        self._chance = random.Random(seed)  # noqa: S311
        self._faults = Faults()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._clients: weakref.WeakSet[asyncio.Transport] = weakref.WeakSet()
        self._watches: set[asyncio.Transport] = set()
        self._requests: set[asyncio.Task[web.StreamResponse]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def faults(self) -> Faults:
        """Faults of requests from now on; setting it ends the earlier faults."""
        return self._faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        self._faults = faults
        change = self._speaking.clear if faults.silent else self._speaking.set
        self._loop.call_soon_threadsafe(change)

    def cut(self) -> int:
        """Break the connections of all watches; return how many."""

        async def abort() -> int:
            for transport in (cut := list(self._watches)):
                _abort(transport)
            self.counts["cut"] += len(cut)
            return len(cut)

        count: int = self._call(abort())
        return count

    # ---- internal: in the thread

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self) -> None:
        self._speaking = asyncio.Event()
        self._speaking.set()
        timeout = aiohttp.ClientTimeout(total=None)
        connector = aiohttp.TCPConnector(limit=0, ssl=self._trusting or True)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{path:.*}", self._enter)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_STOP_SECONDS, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, 0, ssl_context=self._serving).start()
        self.url = f"http{'s' if self._serving else ''}://{HOST}:{self._runner.addresses[0][1]}"

    async def _close(self) -> None:
        for transport in self._clients:
            _abort(transport)  # in order, TLS connections would wait for the client's good-bye
        await self._runner.cleanup()
        for task in (unfinished := list(self._requests)):
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        await self._session.close()
        await asyncio.sleep(_STOP_SECONDS)  # TLS connections are closed in the background

    async def _enter(self, request: web.Request) -> web.StreamResponse:
        """Handle a request: a watch ends with its client; any other request continues without it."""
        if isinstance(request.transport, asyncio.Transport):
            self._clients.add(request.transport)
        body = await request.read()
        if "watch" in request.query:
            return await self._handle(request, body)
        task = self._loop.create_task(self._handle(request, body))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        return await asyncio.shield(task)

    async def _handle(self, request: web.Request, body: bytes) -> web.StreamResponse:
        faults, writes = self._faults, request.method in _WRITES
        await self._speaking.wait()
        min_delay, max_delay = faults.delay_seconds
        if max_delay > 0:
            self.counts["late"] += 1
            await asyncio.sleep(self._chance.uniform(min_delay, max_delay))
        if self._chance.random() < faults.broken:
            return self._break(request, "broken")
        if refusal := self._refusal(faults, writes):
            return refusal
        unanswered = writes and self._chance.random() < faults.unanswered
        try:
            async with self._session.request(
                request.method,
                self._upstream + request.raw_path,
                headers={name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP},
                data=body or None,
                allow_redirects=False,
            ) as answer:
                if unanswered:
                    await answer.read()
                    return self._break(request, "unanswered")
                return await self._pass_back(request, answer)
        except (aiohttp.ClientError, OSError):  # of either side: the other learns it the same way
            return self._break(request, "passed on")

    def _refusal(self, faults: Faults, writes: bool) -> web.Response | None:
        drawn = self._chance.random()
        for status, share in faults.refusals.items() if writes or faults.refuse_reads else ():
            drawn -= share
            if drawn < 0:
                self.counts[f"refused {status}"] += 1
                reason, message = _REASONS[status]
                fields = {"reason": reason, "message": message, "code": status}
                text = json.dumps({"kind": "Status", "apiVersion": "v1", "status": "Failure", **fields})
                return web.Response(status=status, text=text, content_type="application/json")
        return None

    def _break(self, request: web.Request, why: str) -> web.Response:
        self.counts[why] += 1
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=502)  # no client reads it

    async def _pass_back(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        headers = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP}
        if "watch" not in request.query:
            content = await answer.read()
            await self._speaking.wait()
            return web.Response(status=answer.status, headers=headers, body=content)
        response = web.StreamResponse(status=answer.status, headers=headers)
        transport = request.transport
        if not isinstance(transport, asyncio.Transport):
            return response  # the client is gone
        self._watches.add(transport)
        try:
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await self._speaking.wait()
                while (held := self._faults.held) and request.path.endswith(held):
                    await asyncio.sleep(_HOLD_SECONDS)
                await response.write(piece)
        finally:
            self._watches.discard(transport)
        return response


def _abort(transport: asyncio.Transport) -> None:
    """Break a connection; one that is closed already has lost its TLS protocol, which asyncio does not expect."""
    with suppress(AttributeError):
        transport.abort()
