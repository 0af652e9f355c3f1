"""The parameter server: ``python -m numpy_ps.server`` in a pod of role ps.

``POST /exchange?slot=&attempt=&chunks=`` gives the parameters; with ``&chunk=&batch=`` and a gradient as its body it
applies that first. The answer's header says how many batches of the chunks are applied; 409 says that another attempt
has taken over. ``GET /state`` is for observers.
"""

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np

from numpy_ps import states
from numpy_ps.models import Network
from numpy_ps.states import State
from tranche_worker import EXIT_FENCED, EXIT_TERMINATED, Assignment, Progress, Reporter, assignment

COUNTS, TIMES = "X-Batches", "X-Seconds"


class Server:
    """The state, and what may be done with it, one at a time."""

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
        """Apply a gradient, if there is one; parameters and counts, or None to an attempt that is over."""
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
        """Write a checkpoint now."""
        with self.lock:
            self._save()

    def _save(self) -> None:
        self.state.save(self.mine.checkpoint_directory, self.mine.attempt)
        self.saved = dict(self.state.batches)
        self.note("save", self.state.total)

    def progress(self) -> Progress:
        """For the scheduler: applied is what the model has seen, durable what the checkpoint holds."""
        with self.lock:
            return Progress(dict(self.state.batches), dict(self.saved), *self.times)

    def note(self, *words: object) -> None:
        """One line into the diary, which outlives the process: for those who check what was applied."""
        if self.diary is not None:
            with self.diary.open("a") as file:
                file.write(" ".join(map(str, words)) + "\n")


def handler(server: Server) -> type[BaseHTTPRequestHandler]:
    """The server's HTTP side."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            """See the module."""
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
            """The parameters and all counts."""
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
            """Not a line a batch."""

    return Handler


def listen_at(environment: Mapping[str, str] = os.environ) -> tuple[str, int]:
    """Host name and port of the first parameter server, as TF_CONFIG tells server and workers."""
    host, _, port = json.loads(environment["TF_CONFIG"])["cluster"]["ps"][0].rpartition(":")
    return host, int(port)


def main() -> None:
    """Serve until SIGTERM; then save and report, and exit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=0.5, help="step size at the beginning")
    parser.add_argument("--halving", type=float, default=1e9, help="batches after which it is halved, again and again")
    parser.add_argument("--checkpoint-batches", type=int, default=50, help="batches between two checkpoints")
    parser.add_argument("--seed", type=int, default=0, help="of the first parameters")
    parser.add_argument("--diary", type=Path, help="append a line for every batch applied and every checkpoint")
    mine, options = assignment(), parser.parse_args()
    server = Server(mine, options)
    with ThreadingHTTPServer(("", listen_at()[1]), handler(server)) as http:
        http.daemon_threads = True
        stop = threading.Event()
        signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
        fenced = threading.Event()

        def refused() -> None:
            fenced.set()
            stop.set()

        with Reporter(mine, server.progress, refused):
            threading.Thread(target=http.serve_forever, daemon=True).start()
            while not stop.wait(1.0):
                pass
            http.shutdown()
            if not fenced.is_set():
                server.save()
    sys.exit(EXIT_FENCED if fenced.is_set() else EXIT_TERMINATED)


if __name__ == "__main__":
    main()
