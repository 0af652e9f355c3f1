"""Planner API: what the API process asks of the leader. Only the API process may use it.

Every replica serves it. A replica that does not lead answers 503.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tranche.auth.review_cache import BusyError, TooManyRefusalsError
from tranche.kube.client.errors import ApiError
from tranche.model import ChunkWindow, WhatIf
from tranche.planner_api import messages
from tranche.planner_api.peer_token import PeerGate
from tranche.planner_api.receiver import NotLeadingError, PlannerReceiver
from tranche.runtime.http_server import readiness
from tranche.runtime.request_body import read_body

LARGEST_BODY = 64 * 2**20
"""Maximum size of a body in bytes, for a batch of the largest reports."""
T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class PlannerViews:
    """State of jobs that only the planner has."""

    progress: Callable[[str], Any]
    """Progress of a job; None if it is unknown."""
    outlook: Callable[[], Generator[None, None, messages.Outlook]]
    """Computes the outlook in steps."""
    chunk_windows: Callable[[str], Generator[None, None, tuple[ChunkWindow, ...]] | None]
    """Computes the chunk windows of a job in steps; None if it is unknown."""
    what_if: Callable[[bytes], Generator[None, None, WhatIf]]
    """Computes in steps the plan of a TrainingJob in JSON that is not submitted; raises ValueError."""


def create_planner_app(
    receiver: PlannerReceiver, views: PlannerViews, gate: PeerGate, unready: Callable[[], list[str]]
) -> Starlette:
    """Create the application.

    Args:
        receiver: Receiver of reports and chunk requests.
        views: State of the planner for the web page.
        gate: Check of tokens.
        unready: Returns the names of watches that are not synced.
    """

    async def take(request: Request) -> Response:
        reports = _decoded(messages.decode_reports, await _body(request))
        taken = [await receiver.take(report) for report in reports]
        return _packed([messages.ACCEPTED if one else messages.SUPERSEDED for one in taken])

    async def grant(request: Request) -> Response:
        given = await receiver.ask(_decoded(messages.decode_request, await _body(request)))
        return _packed(given) if given is not None else Response(status_code=messages.SUPERSEDED)

    async def progress(request: Request) -> Response:
        receiver.check()
        known = views.progress(request.query_params.get("job", ""))
        return _packed(known) if known is not None else Response(status_code=404)

    async def outlook(request: Request) -> Response:
        receiver.check()
        return _packed(await _computed(views.outlook()))

    async def chunks(request: Request) -> Response:
        receiver.check()
        steps = views.chunk_windows(request.query_params.get("job", ""))
        return _packed(await _computed(steps)) if steps is not None else Response(status_code=404)

    computing = asyncio.Lock()

    async def what_if(request: Request) -> Response:
        receiver.check()
        body = await _body(request)
        if computing.locked():
            return PlainTextResponse("another what-if is computed: retry in a moment", messages.TOO_MANY)
        async with computing:
            try:
                return _packed(await _paced(views.what_if(body)))
            except ValueError as error:
                return PlainTextResponse(" ".join(str(error).split()), messages.UNREADABLE)

    routes = [
        Route(messages.REPORTS, _guarded(take, gate), methods=["POST"]),
        Route(messages.CHUNK_REQUESTS, _guarded(grant, gate), methods=["POST"]),
        Route(messages.PROGRESS, _guarded(progress, gate), methods=["GET"]),
        Route(messages.OUTLOOK, _guarded(outlook, gate), methods=["GET"]),
        Route(messages.CHUNKS, _guarded(chunks, gate), methods=["GET"]),
        Route(messages.WHAT_IF, _guarded(what_if, gate), methods=["POST"]),
        Route("/readyz", _readyz(unready), methods=["GET"]),
    ]
    return Starlette(routes=routes)


def _readyz(unready: Callable[[], list[str]]) -> Handler:
    async def readyz(request: Request) -> Response:
        return readiness(unready())

    return readyz


class _MalformedError(ValueError):
    """The body cannot be read."""


def _guarded(handler: Handler, gate: PeerGate) -> Handler:
    """Authenticate before a handler runs, and turn errors into responses."""

    async def guarded(request: Request) -> Response:
        try:
            peer = request.client.host if request.client is not None else ""
            if not await gate.admits(request.headers.get("Authorization", ""), peer):
                return PlainTextResponse("only the API process of tranche may ask", 401)
            return await handler(request)
        except _MalformedError as error:
            return PlainTextResponse(str(error), 400)
        except ClientDisconnect:
            return PlainTextResponse("the request body is incomplete", 400)
        except TimeoutError:
            return PlainTextResponse("the plan could not be written in time", 504)
        except TooManyRefusalsError:
            return PlainTextResponse("too many tokens from this address were invalid", 503)
        except (NotLeadingError, ApiError, BusyError) as error:
            return PlainTextResponse(str(error) or "too many token reviews are pending", 503)

    return guarded


async def _body(request: Request) -> bytes:
    body = await read_body(request, LARGEST_BODY)
    if body is None:
        raise _MalformedError(f"the body is larger than {LARGEST_BODY} bytes")
    return body


def _decoded(decode: Callable[[bytes], T], body: bytes) -> T:
    try:
        return decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise _MalformedError(str(error)) from error


def _packed(value: Any) -> Response:
    return Response(messages.encode(value), media_type=messages.CONTENT_TYPE)


async def _paced(steps: Generator[None, None, T]) -> T:
    """Run a long computation step by step, with at most half of the time of the event loop."""
    while True:
        began = time.monotonic()
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
        await asyncio.sleep(time.monotonic() - began)


async def _computed(steps: Generator[None, None, T]) -> T:
    """Run a computation step by step; other tasks run between the steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
        await asyncio.sleep(0)
