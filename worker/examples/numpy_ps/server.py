"""The parameter server: ``python -m numpy_ps.server`` in a pod of role ps.

``POST /exchange?slot=&attempt=&chunks=`` returns the parameters; with ``&chunk=&batch=`` and a gradient as its body, it
applies the gradient first, and with ``&leave=1`` no other worker waits for this one. A header of the response has the
number of applied batches by chunk. Status 409 means that another attempt has taken over, 400 that the gradient is not
finite or not one of this model or of the worker's chunks, and 503 that the server has saved for the last time.
``GET /state`` is for monitoring.

With a barrier (spec.communication), the server gathers the gradients of a round, aggregates them by the job's rule and
takes one step; a worker's request waits until its gradient is in the model. With a staleness and no barrier, a request
waits until the worker is close enough to the slowest one. ``GET /round`` returns the number of the round.
"""

import argparse
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType, MappingProxyType
from urllib.parse import parse_qs, urlsplit

import numpy as np

from numpy_ps import states
from numpy_ps.aggregation import RULES
from numpy_ps.models import Array, Network
from numpy_ps.states import Push, State
from tranche_worker import (
    EXIT_FENCED,
    EXIT_TERMINATED,
    Assignment,
    Barrier,
    Iterations,
    Progress,
    Reporter,
    StalenessBound,
    StopFlag,
    assignment,
)
from tranche_worker.barrier import PATIENCE_SECONDS
from tranche_worker.reporter import LAST_SECONDS

COUNTS, TIMES, ROUND, BANDWIDTH = "X-Batches", "X-Seconds", "X-Round", "X-Bandwidth"
"""Headers: applied batches by chunk; seconds of the last batch; number of the round; the worker's share in bit/s."""
WAIT_SECONDS = 8.0
"""Longest time that a request waits for others; the worker repeats it. It is below the worker's timeout."""
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
POLL_SECONDS = 1.0
"""Interval at which a waiting request checks whether lost workers are left out."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Response to a worker."""

    parameters: bytes
    headers: Mapping[str, str]


class EndedError(Exception):
    """The server has saved its state for the last time, so that what it applied now would be lost."""


class Server:
    """The state of the server, with operations that run one at a time."""

    def __init__(self, mine: Assignment, options: argparse.Namespace) -> None:
        self.lock = threading.Condition()
        self.mine = mine
        saved_state = states.load(mine.checkpoint_directory)
        self.state = saved_state or State(Network().initial(options.seed))
        self.saved = dict(self.state.batches)
        self.rate, self.halving, self.every = options.rate, options.halving, options.checkpoint_batches
        self.times: tuple[float, ...] = ()
        self.iterations = Iterations()
        self.reporter: Reporter | None = None
        self.stop = StopFlag()
        """Set when the process is to end."""
        self.has_ended = False
        """Whether the last save has begun."""
        communication = mine.communication
        self.rule = RULES[communication.aggregation]
        self.barrier = (
            None
            if communication.barrier is None
            else Barrier(communication.barrier, communication.staleness, options.patience)
        )
        self.bound = None if self.barrier is not None else StalenessBound(communication.staleness, options.patience)
        self.pushes: dict[int, Push] = {}
        """Gradients of the present round by slot."""
        self.chunks: dict[int, list[int]] = {}
        """Chunks of the workers that take part, by slot."""
        self.diary: Path | None = options.diary
        self.note("restore", self.state.total)

    def exchange(self, query: Mapping[str, list[str]], body: bytes, times: str) -> Answer | None:
        """Apply a gradient, if there is one; return parameters and counts, or None to a superseded attempt.

        Raises:
            EndedError: the server has saved for the last time.
        """
        slot, attempt = int(query["slot"][0]), int(query["attempt"][0])
        chunks = [int(chunk) for chunk in query["chunks"][0].split(",")]
        with self.lock:
            self._check()
            if not self.state.fence.admits(slot, chunks, attempt):
                return None
            if "leave" in query:
                self._leave(slot)
                return Answer(b"", {COUNTS: "{}", **self._headers(slot)})
            self._join(slot, chunks)
            if body:
                push = self._push(query, chunks, self._gradient(body), attempt)
                seconds = _seconds(times)
                self._take(slot, push)
                if seconds:
                    self.times = seconds
                    self.iterations.record(slot, push.count, seconds[2])
            self._wait(slot)
            counts = {chunk: self.state.batches.get(chunk, 0) for chunk in chunks}
            if all(count >= self.mine.batches for count in counts.values()):
                self._leave(slot)
            return Answer(self.state.parameters.tobytes(), {COUNTS: json.dumps(counts), **self._headers(slot)})

    def round(self) -> int:
        """Return the number of the present round; 0 without a barrier."""
        return self.barrier.round if self.barrier is not None else 0

    def _join(self, slot: int, chunks: list[int]) -> None:
        member = self.barrier if self.barrier is not None else self.bound
        if member is not None:
            member.contact(slot, time.monotonic())
        if self.chunks.get(slot) != chunks:
            self.chunks[slot] = chunks
            self._report_soon()

    def _leave(self, slot: int) -> None:
        member = self.barrier if self.barrier is not None else self.bound
        if member is not None:
            member.leave(slot)
        self.chunks.pop(slot, None)
        self.iterations.forget(slot)
        self._report_soon()
        self.lock.notify_all()

    def _report_soon(self) -> None:
        if self.reporter is not None:
            self.reporter.report_soon()

    def _push(self, query: Mapping[str, list[str]], chunks: list[int], gradient: Array, attempt: int) -> Push:
        """Return the push of a request.

        Raises:
            ValueError: the fence was not checked for its chunk, or the chunk does not have these mini-batches.
        """
        chunk, batch, count = int(query["chunk"][0]), int(query["batch"][0]), int(query.get("count", ["1"])[0])
        if chunk not in chunks or count < 1 or batch + count > self.mine.batches:
            raise ValueError(f"impossible: {count} mini-batches from {batch} of chunk {chunk}, of a worker of {chunks}")
        return Push(chunk, batch, gradient, attempt, count)

    def _gradient(self, body: bytes) -> Array:
        """Return the gradient of a request.

        Raises:
            ValueError: it is not one of this model, or not finite; a round with it would harm all workers.
        """
        size = len(self.state.parameters)
        if len(body) != 8 * size:
            raise ValueError(f"the gradient has {len(body) // 8} numbers of 64 bits, and the model {size}")
        gradient = np.frombuffer(body)
        if not np.isfinite(gradient).all():
            raise ValueError("the gradient is not finite: the loss has overflowed, or the GPU is bad")
        return gradient

    def _take(self, slot: int, push: Push) -> None:
        if self.barrier is None:
            if self._apply([push]) and self.bound is not None:
                self.bound.trained(slot, time.monotonic(), push.count)
            self.lock.notify_all()
        elif push.batch == self.state.batches.get(push.chunk, 0):
            self.pushes[slot] = push
            self.barrier.push(slot, time.monotonic())

    def _wait(self, slot: int) -> None:
        """Wait until the worker may go on, at most `WAIT_SECONDS`; other requests are handled meanwhile."""
        deadline = time.monotonic() + WAIT_SECONDS
        while (now := time.monotonic()) < deadline:
            self._check()
            if self.barrier is not None and self.barrier.may_close(now):
                self._apply(list(self.pushes.values()))
                self.pushes.clear()
                self.barrier.close()
                self.lock.notify_all()
            if slot not in self.pushes and (self.bound is None or self.bound.may_start(slot, now)):
                return
            self.lock.wait(min(POLL_SECONDS, deadline - now))

    def _apply(self, pushes: list[Push]) -> list[Push]:
        """Take one step along the aggregate of these pushes; return those that are in it."""
        rate = self.rate * 0.5 ** (self.state.total / self.halving)
        before = self.state.total
        applied = self.state.apply_round(pushes, self.rule, rate)
        for push in applied:
            for batch in range(push.batch, push.batch + push.count):
                self.note("apply", push.chunk, batch, push.attempt)
        if self.state.total // self.every > before // self.every:
            self._save()
        return applied

    def _headers(self, slot: int) -> dict[str, str]:
        headers = {ROUND: str(self.round())}
        share = self.reporter.allocations.get(slot) if self.reporter is not None else None
        return headers if share is None else headers | {BANDWIDTH: str(share.bits_per_second)}

    def _check(self) -> None:
        if self.has_ended:
            raise EndedError("the server has saved for the last time")

    def end(self, *, saves: bool) -> None:
        """Apply nothing any more, and write the last checkpoint unless another attempt has taken over."""
        with self.lock:
            self.has_ended = True
            self.lock.notify_all()
            if saves:
                self._save()

    def _save(self) -> None:
        try:
            self.state.save(self.mine.checkpoint_directory, self.mine.attempt)
        except OSError:  # the volume is full or read-only, so that what is trained from now on would be lost
            self.stop.set()
            raise
        self.saved = dict(self.state.batches)
        self.note("save", self.state.total)

    def progress(self) -> Progress:
        """Return the progress for the scheduler: applied and durable batches."""
        with self.lock:
            whole, fetch, compute = self.times or (None, None, None)
            iterations = self.iterations.dump()
            return Progress(dict(self.state.batches), dict(self.saved), whole, fetch, compute, iterations)

    def note(self, *words: object) -> None:
        """Append a line to the diary, a file that tests read to check which batches were applied."""
        if self.diary is not None:
            with self.diary.open("a") as file:
                file.write(" ".join(map(str, words)) + "\n")


def _seconds(times: str) -> tuple[float, ...]:
    """Return the seconds that a worker has measured: whole, exchanging, computing; empty if it sends none.

    Raises:
        ValueError: they are not three numbers.
    """
    seconds = tuple(map(float, times.split()))
    if len(seconds) not in (0, 3):
        raise ValueError(f"impossible: seconds {times!r}")
    return seconds


def handler(server: Server) -> type[BaseHTTPRequestHandler]:
    """Create the HTTP handler of the server."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            """Handle ``/exchange``; see the module."""
            length = int(self.headers.get("Content-Length", "0"))
            body = self.rfile.read(length)
            if len(body) < length:  # the worker has ended meanwhile
                self.close_connection = True
                return
            try:
                answer = server.exchange(parse_qs(urlsplit(self.path).query), body, self.headers.get(TIMES, ""))
            except (KeyError, ValueError) as error:
                self._answer(400, str(error).encode())
                return
            except EndedError as error:
                self._answer(503, str(error).encode())
                return
            if answer is None:
                self._answer(409, b"another attempt has taken over")
            else:
                self._answer(200, answer.parameters, answer.headers)

        def do_GET(self) -> None:
            """Return the parameters and all counts, or only the number of the round."""
            if self.path == "/round":
                self._answer(200, str(server.round()).encode())
                return
            with server.lock:
                parameters, counts = server.state.parameters.tobytes(), json.dumps(server.state.batches)
            self._answer(200, parameters, {COUNTS: counts})

        def _answer(self, status: int, body: bytes, headers: Mapping[str, str] = NO_HEADERS) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Suppress the log line of each request."""

    return Handler


class DualStackServer(ThreadingHTTPServer):
    """HTTP server at all addresses of the pod, of IPv6 too if the system has it."""

    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def server_bind(self) -> None:
        """Bind the socket to the addresses of both families."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def listen_at() -> tuple[str, int]:
    """Return host name and port of the first parameter server in TF_CONFIG."""
    host, _, port = json.loads(os.environ["TF_CONFIG"])["cluster"]["ps"][0].rpartition(":")
    return host, int(port)


def main() -> None:
    """Serve until SIGTERM or a failed save, then save, report and exit."""
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
    parser.add_argument(
        "--patience", type=float, default=PATIENCE_SECONDS, help="seconds that others wait for a worker without contact"
    )
    mine, options = assignment(), parser.parse_args()
    if mine.index > 0:  # no worker would exchange with it, and its checkpoint would replace that of server 0
        parser.error("this program has one parameter server: set spec.parameterServers.replicas to 1")
    server = Server(mine, options)
    with DualStackServer(("", listen_at()[1]), handler(server)) as http:
        http.daemon_threads = True
        stop = server.stop
        fenced = threading.Event()
        deadline = float("inf")

        def terminate(number: int, frame: FrameType | None) -> None:
            nonlocal deadline
            deadline = min(deadline, time.monotonic() + mine.grace_seconds)
            stop.set()

        signal.signal(signal.SIGTERM, terminate)

        def refused() -> None:
            fenced.set()
            stop.set()

        def seconds_left() -> float:
            return min(deadline - time.monotonic(), LAST_SECONDS)

        with Reporter(mine, server.progress, refused, seconds_left=seconds_left) as server.reporter:
            threading.Thread(target=http.serve_forever, daemon=True).start()
            while not stop.wait(1.0):
                pass
            http.shutdown()
            server.end(saves=not fenced.is_set())
    sys.exit(EXIT_FENCED if fenced.is_set() else EXIT_TERMINATED)


if __name__ == "__main__":
    main()
