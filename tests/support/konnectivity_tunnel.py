"""Access of the API server to the cluster's network, like a konnectivity server: HTTP CONNECT on a Unix socket.

The API server proxies to no loopback address, so a Service has another one here; whatever it connects to ends at one
port of this machine. `--egress-selector-config-file` configures the API server for it.
"""

import json
import socket
import socketserver
import threading
from pathlib import Path
from types import TracebackType
from typing import Self


class Tunnel:
    """Tunnel that accepts connections while it is entered; all of them end at `port` on loopback."""

    def __init__(self, folder: Path) -> None:
        self.port = 0
        self.asked: list[str] = []
        """Addresses that the API server requested."""
        socket_file = folder / "egress"
        connection = {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": str(socket_file)}}}
        selection = {"name": "cluster", "connection": connection}
        config = {"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration"}
        file = folder / "egress.yaml"
        file.write_text(json.dumps({**config, "egressSelections": [selection]}))
        self.flag = f"--egress-selector-config-file={file}"
        self._server = _Server(str(socket_file), _Handler)
        self._server.tunnel = self

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128  # a connection beyond the queue is refused at once, and the API server answers 503
    tunnel: Tunnel


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        wanted = self.rfile.readline().split()[1].decode()
        while self.rfile.readline().strip():
            pass
        self.server.tunnel.asked.append(wanted)
        with socket.create_connection(("127.0.0.1", self.server.tunnel.port), timeout=10) as inside:
            inside.settimeout(None)
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            back = threading.Thread(target=_pump, args=(inside, self.connection), daemon=True)
            back.start()
            _pump(self.connection, inside)
            back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while received := source.recv(65536):
            target.sendall(received)
        target.shutdown(socket.SHUT_WR)
    except OSError:  # the other side has gone
        pass
