"""JSON client on kept-alive connections, usable from any thread."""

import contextlib
import http.client
import json
import ssl
from collections import deque
from collections.abc import Mapping
from typing import Any

from .workspace import HOST

_TIMEOUT_SECONDS = 30.0


class Client:
    """Client for one port of 127.0.0.1, with TLS if a context is given."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None, timeout: float = _TIMEOUT_SECONDS) -> None:
        """Connect lazily; ``timeout`` is in seconds, per request."""
        self._port, self._context, self._timeout = port, context, timeout
        self._idle: deque[http.client.HTTPConnection] = deque()  # append and pop are atomic

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Return the status and the answer: an object if it is JSON, else text.

        Anything but str and bytes is sent as JSON. A request on a connection that the server has closed meanwhile is
        sent once more on a new one.

        Raises:
            OSError: The server cannot be reached or does not answer in time.
        """
        if body is not None and not isinstance(body, str | bytes):
            body = json.dumps(body)
        all_headers = {**(headers or {}), **({"Content-Type": content_type} if body is not None else {})}
        while True:
            try:
                connection, fresh = self._idle.pop(), False
            except IndexError:
                connection, fresh = self._connection(), True
            try:
                connection.request(method, path, body, all_headers)
                reply = connection.getresponse()
                content = reply.read()
            except (ConnectionError, ssl.SSLError, http.client.HTTPException) as error:
                connection.close()
                if fresh:
                    raise ConnectionError(f"{method} {path}: {error!r}") from error
            except BaseException:
                connection.close()
                raise
            else:
                self._idle.append(connection)
                is_json = "json" in (reply.getheader("Content-Type") or "")
                return reply.status, json.loads(content) if is_json else content.decode(errors="replace")

    def ok(self, path: str) -> bool:
        """Return whether a GET is answered with 200."""
        try:
            return self.request("GET", path)[0] == 200
        except OSError:
            return False

    def close(self) -> None:
        """Close the connections that are not in use."""
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()

    def _connection(self) -> http.client.HTTPConnection:
        if self._context:
            return http.client.HTTPSConnection(HOST, self._port, context=self._context, timeout=self._timeout)
        return http.client.HTTPConnection(HOST, self._port, timeout=self._timeout)
