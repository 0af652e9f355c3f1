"""A small HTTP server for the kubelet's probes and for Prometheus."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def serve_health(port: int | None, ready: Callable[[], str], metrics: Callable[[], bytes]) -> AsyncIterator[None]:
    """Answer ``/healthz`` (the event loop turns), ``/readyz`` and ``/metrics`` while the block runs.

    Alive does not depend on the API server: to start again would not bring it back.

    Args:
        port: Of all addresses; None: no server.
        ready: What is waited for, as text; empty if nothing.
        metrics: In the text format of Prometheus.

    Raises:
        OSError: if the port is taken.
    """
    if port is None:
        yield
        return

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        obstacle = ready()
        return web.Response(text=f"{obstacle or 'ok'}\n", status=503 if obstacle else 200)

    async def read_metrics(_: web.Request) -> web.Response:
        return web.Response(body=metrics(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    application = web.Application()
    application.add_routes(
        [web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", read_metrics)]
    )
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    try:
        await web.TCPSite(runner, port=port).start()
        yield
    finally:
        await runner.cleanup()
