"""HTTP server that runs in the current event loop."""

import asyncio
import contextlib
import ipaddress
import socket
from asyncio import constants
from collections.abc import Callable, Iterator

import uvicorn
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp

from tranche.runtime.connection_guard import BACKLOG, ConnectionLimits, guarded
from tranche.runtime.server_tls import ServerTls

KEEP_ALIVE_SECONDS = 120
"""Keep-alive time, longer than the 90 s of kube-scheduler, so that the client closes idle connections."""
GRACE_SECONDS = 5
"""Time for requests in progress at shutdown, in seconds."""


class ListenError(OSError):
    """The listen address cannot be used."""


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the owner of the event loop."""
        yield


def readiness(unready: list[str]) -> Response:
    """Return the response of /readyz: 200, or 503 with the names of what is not ready."""
    text = f"waiting for {', '.join(unready)}\n" if unready else "ok\n"
    return PlainTextResponse(text, 503 if unready else 200)


async def serve(
    app: ASGIApp,
    host: str,
    port: int,
    *,
    listening: Callable[[int], None] | None = None,
    tls: ServerTls | None = None,
    limits: ConnectionLimits | None = None,
) -> None:
    """Serve requests until cancelled; then finish those in progress.

    Args:
        app: Application to serve.
        host: Listen address; empty for all addresses.
        port: Port; 0 for any free port.
        listening: Called with the port once connections are accepted.
        tls: Certificate for HTTPS, which may be renewed meanwhile; the server listens only after the first one.
            None for HTTP.
        limits: Limits of connections [default: none on a loopback address, which no other pod reaches; elsewhere
            `ConnectionLimits`].

    Raises:
        ListenError: the address cannot be used.
    """
    if limits is None and not _is_loopback(host):
        limits = ConnectionLimits()
    if tls is not None:
        # A connection that is accepted earlier would be read by no server.
        await tls.ready()
    config = _configuration(app, limits)
    with listen(host, port) as listener:
        renewal: asyncio.Task[None] | None = None
        if tls is not None:
            if limits is not None:
                # uvicorn passes no time limit; for the default of 60 s, idle connections would hold descriptors.
                vars(constants)["SSL_HANDSHAKE_TIMEOUT"] = limits.head_seconds
            config.load()
            # Not config.ssl: the handshake would have 60 s, in which the limits of connections do not apply yet.
            config.http_protocol_class = tls.over_tls(config.http_protocol_class)  # type: ignore[assignment]
            renewal = asyncio.create_task(tls.follow())
        server = _Server(config)
        running = asyncio.create_task(server.serve([listener]))
        if listening is not None:
            listening(listener.getsockname()[1])
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            server.should_exit = True
            await running
            raise
        finally:
            if renewal is not None:
                renewal.cancel()


def _configuration(app: ASGIApp, limits: ConnectionLimits | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="h11" if limits is None else guarded(limits),  # type: ignore[arg-type]
        backlog=2048 if limits is None else BACKLOG,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, or empty
        return host == "localhost"


def listen(host: str, port: int) -> socket.socket:
    """Create a listening socket with TCP_NODELAY; an empty host is all addresses, of IPv6 too if the system has it.

    uvicorn writes the body of a response separately from its headers. With Nagle's algorithm, the body would wait 40 ms
    for the acknowledgement of the headers. asyncio disables it only for sockets that it opened itself.

    Raises:
        ListenError: the address cannot be used.
    """
    is_dual_stack = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_dual_stack or ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, dualstack_ipv6=is_dual_stack)
    except OSError as error:
        raise ListenError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
