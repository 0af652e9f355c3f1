"""Limits of the connections to an HTTP server that untrusted clients can reach.

A client that sends nothing, or sends slowly, is disconnected after a few seconds. The number of connections is limited
in total and by peer address. At a limit, the oldest connection without a complete request is closed in favour of the
new one, so that idle and slow connections never keep other clients away.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

BACKLOG = 64
"""Maximum number of connections accepted in one turn of the event loop, before the limits apply to them."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one server."""

    total: int = 4096
    """Maximum number of connections."""
    per_peer: int = 128
    """Maximum number of connections of one peer address."""
    head_seconds: float = 5.0
    """Time for the head of a request, from the connection or from its first byte."""
    body_seconds: float = 10.0
    """Time for the body of a request, from the end of its head."""
    read_seconds: float = 30.0
    """Time for a client to read what the server has sent, before more is sent."""

    def within(self, files: int) -> "ConnectionLimits":
        """Return these limits, reduced to a number of file descriptors."""
        total = max(8, min(self.total, files))
        return ConnectionLimits(
            total, min(self.per_peer, max(4, total // 2)), self.head_seconds, self.body_seconds, self.read_seconds
        )


PROBES = ConnectionLimits(total=64, per_peer=16)
"""Limits of a server for probes and metrics: the kubelet and Prometheus need a few connections."""


class ConnectionTable:
    """Open connections of one server."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._peers: Counter[str] = Counter()
        self._open: dict[GuardedProtocol, None] = {}
        self._idle: dict[GuardedProtocol, None] = {}
        """Connections without a complete request, the oldest first."""

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: "GuardedProtocol") -> bool:
        """Count a new connection, and close an idle one where a limit requires it. Returns False if none is idle."""
        peer = connection.peer
        crowded = self._peers[peer] >= self.limits.per_peer
        if crowded or len(self._open) >= self.limits.total:
            idle = next(
                (open_connection for open_connection in self._idle if not crowded or open_connection.peer == peer), None
            )
            if idle is None:
                return False
            self.remove(idle)
            idle.transport.abort()
        self._peers[peer] += 1
        self._open[connection] = None
        self._idle[connection] = None
        return True

    def remove(self, connection: "GuardedProtocol") -> None:
        """Forget a connection; without effect if it is unknown."""
        if connection in self._open:
            del self._open[connection]
            self._idle.pop(connection, None)
            self._peers[connection.peer] -= 1
            if not self._peers[connection.peer]:
                del self._peers[connection.peer]

    def note(self, connection: "GuardedProtocol", *, idle: bool) -> None:
        """Record whether a connection has no complete request."""
        if connection not in self._open:
            return
        if not idle:
            self._idle.pop(connection, None)
        elif connection not in self._idle:
            self._idle[connection] = None


class GuardedProtocol(H11Protocol):
    """HTTP/1.1 connection with the limits of its table."""

    def __init__(self, *arguments: Any, table: ConnectionTable, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._table = table
        self._timer: asyncio.TimerHandle | None = None
        self._waits_for = ""
        """Part of the request that the timer limits: head, body or none."""
        self._reading: asyncio.TimerHandle | None = None
        self._is_admitted = False
        self.peer = ""

    def reserve(self, transport: asyncio.Transport) -> bool:
        """Count a connection before its TLS handshake, and return whether it is admitted; `connection_made` follows.

        Args:
            transport: Transport below TLS.
        """
        self.transport = transport  # closed if the connection has to give way during the handshake
        self._is_admitted = self._admit(transport)
        return self._is_admitted

    def release(self) -> None:
        """Forget a connection that is lost, perhaps during its handshake."""
        self._table.remove(self)

    def _admit(self, transport: asyncio.Transport) -> bool:
        address = transport.get_extra_info("peername")
        self.peer = str(address[0]) if address else ""
        return self._table.admit(self)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit the connection or close it."""
        super().connection_made(transport)
        if self._is_admitted or self._admit(transport):
            self._wait_for("head", self._table.limits.head_seconds)
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._table.remove(self)
        self._wait_for("", 0.0)
        if self._reading is not None:
            self._reading.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass data on, and limit the time for the rest of the request."""
        super().data_received(data)
        self._follow(receiving=True)

    def on_response_complete(self) -> None:
        """Start to wait for the next request."""
        super().on_response_complete()
        self._follow(receiving=False)

    def pause_writing(self) -> None:
        """Limit the time for the client to read."""
        super().pause_writing()
        self._reading = self.loop.call_later(self._table.limits.read_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Continue after the client has read."""
        super().resume_writing()
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _follow(self, *, receiving: bool) -> None:
        state = self.conn.their_state
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        between = cycle is None or cycle.response_complete
        # A client that sends its body slowly must give way too: the body of a report usually arrives with its head.
        self._table.note(self, idle=state is h11.SEND_BODY or (state is h11.IDLE and between))
        if state is h11.SEND_BODY:
            self._wait_for("body", self._table.limits.body_seconds)
        elif state is h11.IDLE and receiving:
            self._wait_for("head", self._table.limits.head_seconds)
        else:  # a complete request, or the keep-alive timeout of uvicorn applies
            self._wait_for("", 0.0)

    def _wait_for(self, part: str, seconds: float) -> None:
        if part == self._waits_for:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waits_for = part
        if part:
            self._timer = self.loop.call_later(seconds, self._expire)

    def _expire(self) -> None:
        if self._waits_for == "body" and self.flow.read_paused:  # the server itself does not read at present
            self._timer = self.loop.call_later(self._table.limits.body_seconds, self._expire)
            return
        self.transport.abort()


def guarded(limits: ConnectionLimits) -> Callable[..., GuardedProtocol]:
    """Return the protocol factory of a server with these limits."""
    table = ConnectionTable(limits)

    class Protocol(GuardedProtocol):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, table=table, **options)

    return Protocol
