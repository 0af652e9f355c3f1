"""HTTP server for the kubelet's probes and for Prometheus."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web


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
        OSError: if the port is in use.
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
