"""TLS of a server whose certificate is renewed while it runs."""

import asyncio
import logging
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tranche.runtime.connection_guard import GuardedProtocol

logger = logging.getLogger(__name__)

CHECK_SECONDS = 10.0
"""Time between two checks of the files."""
FIRST_CHECK_SECONDS = 0.5
"""The same before the first certificate."""
HANDSHAKE_SECONDS = 5
"""Time for a client to complete the handshake."""


class ServerTls:
    """TLS context that loads certificate and key again when their files change.

    Connections keep the certificate with which they began.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        """Load nothing before `ready`.

        Args:
            certificate: File with the certificate chain, PEM.
            key: File with the private key, PEM.
        """
        self.context = _server_context()
        self._files = certificate, key
        self._loaded: tuple[bytes, ...] = ()
        self._logged_error = ""
        """Last failure in the log; the files are read too often to log each one."""

    @property
    def is_loaded(self) -> bool:
        """Whether there is a certificate, so that clients can connect."""
        return bool(self._loaded)

    @property
    def certificate(self) -> bytes:
        """Loaded certificate chain, PEM; empty if there is none."""
        return self._loaded[0] if self._loaded else b""

    async def ready(self) -> None:
        """Wait until there is a certificate, and load it."""
        while not self.reload():
            await asyncio.sleep(FIRST_CHECK_SECONDS)

    async def follow(self) -> None:
        """Load changed files forever."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self.reload()

    def over_tls(self, protocol: Callable[..., asyncio.Protocol]) -> Callable[..., asyncio.BaseProtocol]:
        """Return a protocol factory that gives each connection `HANDSHAKE_SECONDS` for its handshake.

        Args:
            protocol: Factory of the protocol above TLS.
        """

        def connect(**options: Any) -> asyncio.BaseProtocol:
            return _Connection(
                asyncio.get_running_loop(),
                protocol(**options),
                self.context,
                None,  # no coroutine waits for the handshake
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
            )

        return connect

    def reload(self) -> bool:
        """Load the files if they have changed; return whether a certificate is loaded.

        A pair that does not match, such as between two writes, is not loaded.
        """
        try:
            content = tuple(file.read_bytes() for file in self._files)
            if content == self._loaded:
                return True
            # A failed load may leave a context with half of a pair, so a context of its own is tried first.
            for context in (_server_context(), self.context):
                context.load_cert_chain(*self._files)
        except (OSError, ssl.SSLError) as error:
            self._log_once(error)
            return self.is_loaded
        if self._loaded:
            logger.info("the certificate %s has been loaded again", self._files[0])
        self._loaded = content
        self._logged_error = ""
        return True

    def _log_once(self, error: Exception) -> None:
        """Log why the files cannot be loaded, once for each text."""
        if str(error) == self._logged_error:
            return
        self._logged_error = str(error)
        # The first certificate may be written after the start.
        is_expected = isinstance(error, FileNotFoundError) and not self.is_loaded
        level = logging.INFO if is_expected else logging.WARNING
        logger.log(level, "the certificate %s cannot be loaded: %s", self._files[0], error)


class _Connection(SSLProtocol):
    """TLS of a connection that counts for the limits of the server from its beginning, before its handshake."""

    max_size = 2**14
    """Size of the buffer that each connection has for received bytes, as large as a TLS record; 256 KiB by default."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol, *arguments: Any, **options: Any):
        super().__init__(loop, protocol, *arguments, **options)
        self._guarded = protocol if isinstance(protocol, GuardedProtocol) else None

    def connection_made(self, transport: Any) -> None:
        """Begin the handshake if the connection is admitted."""
        if self._guarded is None or self._guarded.reserve(transport):
            super().connection_made(transport)
        else:
            transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Release the place; the protocol above TLS learns nothing of a connection without a complete handshake."""
        if self._guarded is not None:
            self._guarded.release()
        super().connection_lost(exc)


def _server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
