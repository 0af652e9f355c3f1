"""The parameter server: ``python -m numpy_ps.server`` in a pod of role ps.

``POST /exchange?slot=&attempt=&chunks=`` returns the parameters; with ``&chunk=&batch=`` and a gradient as its body, it
applies the gradient first. A header of the response has the number of applied batches by chunk; status 409 means that
another attempt has taken over. ``GET /state`` is for monitoring.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from urllib.parse import parse_qs, urlsplit

import numpy as np

from numpy_ps import states
from numpy_ps.models import Network
from numpy_ps.states import State
from tranche_worker import EXIT_FENCED, EXIT_TERMINATED, Assignment, Progress, Reporter, assignment
from tranche_worker.reporter import LAST_SECONDS

COUNTS, TIMES = "X-Batches", "X-Seconds"


class Server:
    """The state of the server, with operations that run one at a time."""

    def __init__(self, mine: Assignment, options: argparse.Namespace) -> None:
        self.lock = threading.Lock()
        self.mine = mine
        found = states.load(mine.checkpoint_directory)
        self.state = found or State(Network().initial(options.seed))
        self.saved = dict(self.state.batches)
        self.rate, self.halving, self.every = options.rate, options.halving, options.checkpoint_batches
        self.times: tuple[float, ...] = ()
        self.diary: Path | None = options.diary
        self.note("restore", self.state.total)

    def exchange(self, query: Mapping[str, list[str]], body: bytes, times: str) -> tuple[bytes, str] | None:
        """Apply a gradient, if there is one; return parameters and counts, or None to a superseded attempt."""
        slot, attempt = int(query["slot"][0]), int(query["attempt"][0])
        chunks = [int(chunk) for chunk in query["chunks"][0].split(",")]
        with self.lock:
            if not self.state.fence.admits(slot, chunks, attempt):
                return None
            if body:
                self._apply(int(query["chunk"][0]), int(query["batch"][0]), body, attempt)
                self.times = tuple(map(float, times.split())) or self.times
            counts = {chunk: self.state.batches.get(chunk, 0) for chunk in chunks}
            return self.state.parameters.tobytes(), json.dumps(counts)

    def _apply(self, chunk: int, batch: int, body: bytes, attempt: int) -> None:
        rate = self.rate * 0.5 ** (self.state.total / self.halving)
        if self.state.apply(chunk, batch, np.frombuffer(body), rate):
            self.note("apply", chunk, batch, attempt)
            if self.state.total % self.every == 0:
                self._save()

    def save(self) -> None:
        """Write a checkpoint."""
        with self.lock:
            self._save()

    def _save(self) -> None:
        self.state.save(self.mine.checkpoint_directory, self.mine.attempt)
        self.saved = dict(self.state.batches)
        self.note("save", self.state.total)

    def progress(self) -> Progress:
        """Return the progress for the scheduler: applied and durable batches."""
        with self.lock:
            return Progress(dict(self.state.batches), dict(self.saved), *self.times)

    def note(self, *words: object) -> None:
        """Append a line to the diary, a file that tests read to check which batches were applied."""
        if self.diary is not None:
            with self.diary.open("a") as file:
                file.write(" ".join(map(str, words)) + "\n")


def handler(server: Server) -> type[BaseHTTPRequestHandler]:
    """Create the HTTP handler of the server."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            """Handle ``/exchange``; see the module."""
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            try:
                answer = server.exchange(parse_qs(urlsplit(self.path).query), body, self.headers.get(TIMES, ""))
            except (KeyError, ValueError) as error:
                self._answer(400, str(error).encode())
                return
            if answer is None:
                self._answer(409, b"another attempt has taken over")
            else:
                self._answer(200, answer[0], answer[1])

        def do_GET(self) -> None:
            """Return the parameters and all counts."""
            with server.lock:
                parameters, counts = server.state.parameters.tobytes(), json.dumps(server.state.batches)
            self._answer(200, parameters, counts)

        def _answer(self, status: int, body: bytes, counts: str = "{}") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header(COUNTS, counts)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Suppress the log line of each request."""

    return Handler


def listen_at(environment: Mapping[str, str] = os.environ) -> tuple[str, int]:
    """Return host name and port of the first parameter server in TF_CONFIG."""
    host, _, port = json.loads(environment["TF_CONFIG"])["cluster"]["ps"][0].rpartition(":")
    return host, int(port)


def main() -> None:
    """Serve until SIGTERM, then save, report and exit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=0.5, help="step size at the beginning")
    parser.add_argument(
        "--halving", type=float, default=1e9, help="batches after each of which the step size is halved"
    )
    parser.add_argument("--checkpoint-batches", type=int, default=50, help="batches between two checkpoints")
    parser.add_argument("--seed", type=int, default=0, help="seed of the initial parameters")
    parser.add_argument(
        "--diary", type=Path, help="file to which a line is appended for every applied batch and every checkpoint"
    )
    mine, options = assignment(), parser.parse_args()
    server = Server(mine, options)
    with ThreadingHTTPServer(("", listen_at()[1]), handler(server)) as http:
        http.daemon_threads = True
        stop = threading.Event()
        fenced = threading.Event()
        deadline = float("inf")

        def terminate(number: int, frame: FrameType | None) -> None:
            nonlocal deadline
            deadline = time.monotonic() + mine.grace_seconds
            stop.set()

        signal.signal(signal.SIGTERM, terminate)

        def refused() -> None:
            fenced.set()
            stop.set()

        def seconds_left() -> float:
            return min(deadline - time.monotonic(), LAST_SECONDS)

        with Reporter(mine, server.progress, refused, seconds_left=seconds_left):
            threading.Thread(target=http.serve_forever, daemon=True).start()
            while not stop.wait(1.0):
                pass
            http.shutdown()
            if not fenced.is_set():
                server.save()
    sys.exit(EXIT_FENCED if fenced.is_set() else EXIT_TERMINATED)


if __name__ == "__main__":
    main()
