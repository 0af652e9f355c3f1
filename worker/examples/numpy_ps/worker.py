"""The worker: ``python -m numpy_ps.worker DATA`` in a pod of role worker."""

import argparse
import http.client
import json
import logging
import sys
import time
from pathlib import Path
from urllib.parse import urlencode

import numpy as np

from numpy_ps import chunks
from numpy_ps.models import Array, Labels, Network
from numpy_ps.server import COUNTS, TIMES, listen_at
from tranche_worker import Session, assignment

PAUSE_SECONDS = 0.2
"""Delay before the server is tried again."""
TIMEOUT_SECONDS = 10.0


class FencedError(Exception):
    """Another attempt has taken over this worker's index or one of its chunks."""


class Connection:
    """Connection to the parameter server."""

    def __init__(self, session: Session) -> None:
        self._session = session
        host, port = listen_at()
        self._http = http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)

    def exchange(self, body: bytes = b"", times: str = "", **batch: int) -> tuple[Array, dict[int, float]]:
        """Push a gradient, if there is one; return the parameters and the applied batches by chunk.

        Raises:
            FencedError: if another attempt has taken over.
            OSError: if the server does not respond; the next response shows whether the gradient was applied.
        """
        mine = self._session.assignment
        query = {"slot": mine.index, "attempt": mine.fence, "chunks": ",".join(map(str, mine.chunks)), **batch}
        try:
            self._http.request("POST", f"/exchange?{urlencode(query)}", body, {TIMES: times})
            answer = self._http.getresponse()
            held = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._http.close()
            raise ConnectionError(str(error)) from error
        if answer.status == 409:
            raise FencedError
        if answer.status != 200:
            raise ConnectionError(f"{answer.status} {held[:200]!r}")
        counts = {int(chunk): float(count) for chunk, count in json.loads(answer.headers[COUNTS]).items()}
        return np.frombuffer(held), counts


def train(session: Session, data: Path) -> None:
    """Train all batches in order until they are applied or the session stops."""
    network, server = Network(), Connection(session)
    held: tuple[int, tuple[Array, Labels]] | None = None
    parameters: Array | None = None
    times = ""
    for chunk, batch in session.batches():
        try:
            if parameters is None:
                parameters, counts = server.exchange()
                session.trained(counts)
                continue
            if held is None or held[0] != chunk:
                held = (chunk, chunks.load(data, chunk))
            x, y = held[1]
            began = time.perf_counter()
            rows = chunks.rows_of_batch(len(y), chunk, batch, session.assignment.batches_per_chunk)
            gradient = network.gradient(parameters, x[rows], y[rows])
            computed = time.perf_counter()
            parameters, counts = server.exchange(gradient.tobytes(), times, chunk=chunk, batch=batch)
            ended = time.perf_counter()
            times = f"{ended - began} {ended - computed} {computed - began}"  # whole, waiting, computing
            session.trained(counts)
        except FencedError:
            session.refuse()
        except OSError as error:
            logging.warning("the parameter server does not answer: %s", error)
            parameters = None
            session.wait(PAUSE_SECONDS)


def main() -> None:
    """Train all windows, and exit with the exit code of the session."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="directory with the staged chunks")
    options = parser.parse_args()
    with Session(assignment(), at_server=True) as session:
        train(session, options.data)
    sys.exit(session.exit_code)


if __name__ == "__main__":
    main()
