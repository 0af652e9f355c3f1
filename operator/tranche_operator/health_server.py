"""HTTP server for the kubelet's probes and for Prometheus."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tranche.runtime.connection_guard import PROBES
from tranche.runtime.http_server import serve


@asynccontextmanager
async def serve_health(port: int | None, ready: Callable[[], str], metrics: Callable[[], bytes]) -> AsyncIterator[None]:
    """Serve ``/healthz``, ``/readyz`` and ``/metrics`` while the block runs.

    ``/healthz`` succeeds while the event loop runs. It does not depend on the API server, because a restart of the
    operator would not repair that.

    Args:
        port: Port on all addresses; None for no server.
        ready: Returns the obstacle to readiness, as text; empty if the operator is ready.
        metrics: Returns the metrics in Prometheus text format.

    Raises:
        ListenError: if the port is in use.
    """
    if port is None:
        yield
        return

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        obstacle = ready()
        return PlainTextResponse(f"{obstacle or 'ok'}\n", 503 if obstacle else 200)

    async def read_metrics(_: Request) -> Response:
        return Response(metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")

    application = Starlette(
        routes=[Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", read_metrics)]
    )
    listening = asyncio.Event()
    serving = asyncio.create_task(serve(application, "", port, listening=lambda _: listening.set(), limits=PROBES))
    waiting = asyncio.create_task(listening.wait())
    try:
        await asyncio.wait([serving, waiting], return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
        yield
    finally:
        waiting.cancel()
        serving.cancel()
        await asyncio.wait([serving])
