"""HTTP server that runs in the current event loop."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator

import uvicorn
from fastapi import FastAPI

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


async def serve(app: FastAPI, host: str, port: int, *, listening: Callable[[int], None] | None = None) -> None:
    """Serve requests until cancelled; then finish those in progress.

    Args:
        app: Application to serve.
        host: Listen address.
        port: Port; 0 for any free port.
        listening: Called with the port once connections are accepted.

    Raises:
        ListenError: the address cannot be used.
    """
    with listen(host, port) as listener:
        config = uvicorn.Config(
            app,
            http="h11",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
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


def listen(host: str, port: int) -> socket.socket:
    """Create a listening socket with TCP_NODELAY.

    uvicorn writes the body of a response separately from its headers. With Nagle's algorithm, the body would wait 40 ms
    for the acknowledgement of the headers. asyncio disables it only for sockets that it opened itself.

    Raises:
        ListenError: the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise ListenError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
