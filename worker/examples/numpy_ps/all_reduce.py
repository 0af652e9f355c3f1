"""All-reduce with a robust rule, over sockets or over another exchange of vectors.

A ring all-reduce can only add, so it cannot take medians. Here, each of n workers is responsible for one of n segments
of the vector: it receives this segment of all workers, applies the rule, and sends the result to all. A worker sends
2(n−1)/n of the vector, as in a ring. A rule that treats each coordinate alone gives the same result as at a parameter
server.
"""

import socket
import struct
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from numpy_ps.aggregation import RULES
from numpy_ps.models import Array

PATIENCE_SECONDS, PAUSE_SECONDS = 600.0, 0.2
"""Time to wait for workers that start later, and pause between two tries."""
_LENGTH = struct.Struct("!Q")
Exchange = Callable[[Mapping[int, Array], Mapping[int, int]], Mapping[int, Array]]
"""Function of one vector to each peer and the length of the vector from each; returns the vector from each."""


def reduce_segments(vector: Array, weight: float, rule: str, rank: int, size: int, exchange: Exchange) -> Array:
    """Return the aggregate of the vectors of all workers; all of them must call this with one rule and length.

    Args:
        vector: Gradient of this worker.
        weight: Its weight, such as the samples of this worker.
        rule: Name of the rule, of `RULES`.
        rank: Number of this worker, from 0.
        size: Number of workers.
        exchange: Sends to all peers and receives from all.
    """
    segments = np.array_split(vector, size)
    peers = [peer for peer in range(size) if peer != rank]
    mine = np.append(segments[rank], weight)
    received = exchange({peer: np.append(segments[peer], weight) for peer in peers}, dict.fromkeys(peers, len(mine)))
    rows = np.stack([received[peer] if peer != rank else mine for peer in range(size)])
    result = RULES[rule](rows[:, :-1], rows[:, -1])
    results = exchange(dict.fromkeys(peers, result), {peer: len(segments[peer]) for peer in peers})
    return np.concatenate([results[peer] if peer != rank else result for peer in range(size)])


class Collective:
    """Connections of one worker to all others."""

    def __init__(self, rank: int, peers: Mapping[int, socket.socket]) -> None:
        """Store the connections.

        Args:
            rank: Number of this worker, from 0.
            peers: Connected socket to each other worker, by its rank.
        """
        self.rank, self.size = rank, len(peers) + 1
        self.sent_bytes = 0
        """Bytes of vectors that this worker has sent."""
        self._peers = peers

    def reduce(self, vector: Array, weight: float, rule: str = "mean") -> Array:
        """Return the aggregate of the vectors of all workers; all of them must call this with one rule and length.

        Raises:
            ConnectionError: if a peer ends.
        """
        return reduce_segments(vector, weight, rule, self.rank, self.size, lambda sent, _: self._exchange(sent))

    def gather(self, vector: Array) -> list[Array]:
        """Return the vectors of all workers by rank; lengths may differ."""
        received = self._exchange(dict.fromkeys(self._peers, vector))
        received[self.rank] = vector
        return [received[rank] for rank in range(self.size)]

    def close(self) -> None:
        """Close all connections."""
        for peer in self._peers.values():
            peer.close()

    def _exchange(self, outgoing: Mapping[int, Array]) -> dict[int, Array]:
        """Send one vector to each peer and receive one from each."""
        if not outgoing:
            return {}
        with ThreadPoolExecutor(len(outgoing), "tranche-all-reduce") as threads:
            sends = [threads.submit(_send, self._peers[peer], vector) for peer, vector in outgoing.items()]
            received = {peer: _receive(self._peers[peer]) for peer in outgoing}
            self.sent_bytes += sum(send.result() for send in sends)
        return received


def connect(rank: int, addresses: list[tuple[str, int]], listening: socket.socket) -> Collective:
    """Connect to all workers: a worker connects to those before it and accepts those after it.

    Args:
        rank: Number of this worker.
        addresses: Host and port of each worker.
        listening: Socket that listens at this worker's address.
    """
    peers: dict[int, socket.socket] = {}
    for other in range(rank):
        peers[other] = _patiently(addresses[other])
        peers[other].sendall(_LENGTH.pack(rank))
    for _ in range(rank + 1, len(addresses)):
        accepted, _ = listening.accept()
        peers[_LENGTH.unpack(_exactly(accepted, _LENGTH.size))[0]] = accepted
    for peer in peers.values():
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Collective(rank, peers)


def _patiently(address: tuple[str, int]) -> socket.socket:
    """Connect to a worker that may start later; raises OSError when the patience is over."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return socket.create_connection(address)
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(PAUSE_SECONDS)


def _send(peer: socket.socket, vector: Array) -> int:
    body = np.ascontiguousarray(vector, np.float64).tobytes()
    peer.sendall(_LENGTH.pack(len(body)) + body)
    return len(body)


def _receive(peer: socket.socket) -> Array:
    (length,) = _LENGTH.unpack(_exactly(peer, _LENGTH.size))
    return np.frombuffer(_exactly(peer, length))


def _exactly(peer: socket.socket, length: int) -> bytes:
    pieces: list[bytes] = []
    while length > 0:
        piece = peer.recv(min(length, 2**20))
        if not piece:
            raise ConnectionError("a worker of the collective has ended")
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)
