"""The worker: ``python -m numpy_ps.worker DATA`` in a pod of role worker."""

import argparse
import http.client
import json
import logging
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

import numpy as np

from numpy_ps import chunks
from numpy_ps.models import Array, Labels, Network
from numpy_ps.server import BANDWIDTH, COUNTS, ROUND, TIMES, listen_at
from numpy_ps.states import Push
from tranche_worker import DoubleBuffer, RateLimit, Session, assignment

PAUSE_SECONDS = 0.2
"""Delay before the server is tried again."""
TIMEOUT_SECONDS = 10.0


class FencedError(Exception):
    """Another attempt has taken over this worker's index or one of its chunks."""


class RefusedError(Exception):
    """The server refuses the gradient, and would refuse it again: the worker has failed."""


class Answer(NamedTuple):
    """Response of the parameter server."""

    parameters: Array
    counts: dict[int, float]
    """Applied batches by chunk."""
    round: int
    seconds: float
    """Time of the exchange."""


class Connection:
    """Connection to the parameter server, at the bandwidth that the server assigns."""

    def __init__(self, session: Session) -> None:
        self._session = session
        host, port = listen_at()
        self._http = http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
        self._status_http = http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
        self.limit = RateLimit(sleep=session.wait)
        """Bandwidth that the server has assigned last; SIGTERM ends its waits."""

    def push(self, push: Push, times: str) -> Answer:
        """Send a gradient; otherwise as `exchange`."""
        return self.exchange(push.gradient.tobytes(), times, chunk=push.chunk, batch=push.batch, count=push.count)

    def exchange(self, body: bytes = b"", times: str = "", **batch: int) -> Answer:
        """Push a gradient, if there is one; return the parameters and the applied batches by chunk.

        Raises:
            FencedError: if another attempt has taken over.
            RefusedError: if the server refuses the gradient.
            OSError: if the server does not respond; the next response shows whether the gradient was applied.
        """
        mine = self._session.assignment
        query = {"slot": mine.index, "attempt": mine.fence, "chunks": ",".join(map(str, mine.chunks)), **batch}
        headers = {TIMES: times, "Content-Length": str(len(body))}
        began = time.perf_counter()
        try:
            self._http.request("POST", f"/exchange?{urlencode(query)}", self.limit.pieces(body), headers)
            answer = self._http.getresponse()
            received = self.limit.read(answer)
        except (OSError, http.client.HTTPException) as error:
            self._http.close()
            raise ConnectionError(str(error)) from error
        if answer.headers.get("Content-Length") != str(len(received)):  # read in pieces, it raises no IncompleteRead
            self._http.close()
            raise ConnectionError("the response ends early")
        if answer.status == 409:
            raise FencedError
        if answer.status == 400:
            raise RefusedError(received[:200].decode(errors="replace"))
        if answer.status != 200:
            raise ConnectionError(f"{answer.status} {received[:200]!r}")
        self.limit.bits_per_second = float(answer.headers.get(BANDWIDTH, "inf"))
        counts = {int(chunk): float(count) for chunk, count in json.loads(answer.headers[COUNTS]).items()}
        return Answer(np.frombuffer(received), counts, int(answer.headers[ROUND]), time.perf_counter() - began)

    def round(self) -> int | None:
        """Return the number of the server's present round; None if it does not respond."""
        try:
            self._status_http.request("GET", "/round")
            return int(self._status_http.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError):
            self._status_http.close()
            return None

    def close(self) -> None:
        """Close the connection."""
        self._http.close()
        self._status_http.close()


class Trainer:
    """Training of one worker's chunks."""

    def __init__(self, session: Session, data: Path, parts: int = 1) -> None:
        """Store the arguments.

        Args:
            session: The session.
            data: Directory with the staged chunks.
            parts: Maximum number of mini-batches in one gradient; it has fewer if the round ends before.
        """
        self._session, self._data, self._parts = session, data, parts
        self._network, self._server = Network(), Connection(session)
        self._held: tuple[int, tuple[Array, Labels]] | None = None
        self._times, self._compute_seconds = "", 0.0

    def train(self) -> None:
        """Train all batches in order until they are applied or the session stops."""
        latest: Answer | None = None
        in_flight: Push | None = None
        with DoubleBuffer(self._push) as buffer:
            for chunk, batch in self._session.batches():
                began = time.perf_counter()
                try:
                    if latest is None:
                        latest = self._record(self._server.exchange())
                        continue
                    first = batch + (in_flight.count if in_flight is not None else 0)
                    before, in_flight = in_flight, None
                    if first < self._session.assignment.batches:
                        push = self._gradient(latest, chunk, first)
                        answer = buffer.exchange(push)
                        if self._session.assignment.communication.decoupled:
                            in_flight = push
                        else:
                            before, answer = push, buffer.flush()
                        self._time(answer, push.count, began)
                    else:
                        answer = buffer.flush()
                    if answer is not None:
                        latest = self._record(answer)
                    if before is not None and latest.counts.get(before.chunk, 0) < before.batch + before.count:
                        latest, in_flight = None, None  # not applied: begin again where the server is
                        buffer.flush()
                except FencedError:
                    self._session.refuse()
                except OSError as error:
                    logging.warning("the parameter server does not respond: %s", error)
                    latest, in_flight = None, None
                    self._session.wait(PAUSE_SECONDS)
            with suppress(FencedError, OSError):
                if (last := buffer.flush()) is not None:
                    self._record(last)
                self._server.exchange(leave=1)

    def _push(self, push: Push) -> Answer:
        return self._server.push(push, self._times)

    def _record(self, answer: Answer) -> Answer:
        self._session.trained(answer.counts)
        return answer

    def _time(self, answer: Answer | None, count: int, began: float) -> None:
        """Note the seconds per mini-batch, whole, exchanging and computing, for the next push."""
        if answer is not None:
            seconds = (time.perf_counter() - began, answer.seconds, self._compute_seconds)
            self._times = " ".join(str(value / count) for value in seconds)

    def _gradient(self, latest: Answer, chunk: int, batch: int) -> Push:
        """Return the mean gradient of the next mini-batches; fewer if the round ends meanwhile."""
        began, mine = time.perf_counter(), self._session.assignment
        if self._held is None or self._held[0] != chunk:
            self._held = (chunk, chunks.load(self._data, chunk))
        x, y = self._held[1]
        max_count, count, whole = min(self._parts, mine.batches - batch), 0, np.zeros(self._network.size)
        while count == 0 or (count < max_count and self._server.round() == latest.round):
            rows = chunks.rows_of_batch(len(y), chunk, batch + count, mine.batches_per_chunk)
            whole += self._network.gradient(latest.parameters, x[rows], y[rows])
            count += 1
        self._compute_seconds = time.perf_counter() - began
        return Push(chunk, batch, whole / count, count=count)


def main() -> None:
    """Train all windows, and exit with the exit code of the session."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="directory with the staged chunks")
    parser.add_argument(
        "--parts", type=int, default=1, help="mini-batches in one gradient; fewer if the round ends meanwhile"
    )
    options = parser.parse_args()
    with Session(assignment(), at_server=True) as session:
        Trainer(session, options.data, options.parts).train()
    sys.exit(session.exit_code)


if __name__ == "__main__":
    main()
