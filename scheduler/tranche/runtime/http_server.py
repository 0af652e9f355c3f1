"""Serving the application in the event loop that is running."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator

import uvicorn
from fastapi import FastAPI

KEEP_ALIVE_SECONDS = 120
"""Longer than the 90 s for which kube-scheduler keeps idle connections: it must be the one that closes them."""
GRACE_SECONDS = 5
"""For requests under way when we stop."""


class ListenError(OSError):
    """An address that cannot be used."""


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to whoever runs the loop."""
        yield


async def serve(app: FastAPI, host: str, port: int, *, listening: Callable[[int], None] | None = None) -> None:
    """Answer requests until cancelled; then finish those under way.

    Args:
        app: What to serve.
        host: Address to listen at.
        port: 0: any free one.
        listening: Called with the port once connections are accepted.

    Raises:
        ListenError: if the address cannot be used.
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
    """A listening socket whose connections send at once.

    With Nagle's algorithm the body of an answer, which uvicorn writes apart from its headers, would wait 40 ms for the
    acknowledgement of the headers. asyncio turns it off only for sockets that it opened itself.

    Raises:
        ListenError: if the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise ListenError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
