"""Limit of the bandwidth of this process, a token bucket.

It keeps this worker to the share of its parameter server's port that the scheduler has assigned (`allocation`). It
counts what the process sends and receives, without the headers of the network.
"""

import time
from collections.abc import Callable, Iterator
from math import inf
from typing import Protocol

PIECE_BYTES = 64 * 1024
"""Bytes that are sent or read between two waits."""
BURST_SECONDS = 0.1
"""Time at the full rate that an idle process may save up."""


class TokenBucket:
    """Bucket of bits that fills at a rate; the time is an argument.

    Bits may be taken before they are there. `take` then returns how long to wait, so in t seconds at most
    ``burst + rate · t`` bits pass.
    """

    def __init__(self, bits_per_second: float = inf, burst_bits: float | None = None, now: float = 0.0) -> None:
        """Create a full bucket.

        Args:
            bits_per_second: Rate; infinite: no limit.
            burst_bits: Capacity; default: `BURST_SECONDS` at the rate.
            now: Present time in seconds.
        """
        self._declared_burst = burst_bits
        self._rate = bits_per_second
        self._bits = self._burst
        self._now = now

    @property
    def bits_per_second(self) -> float:
        """Rate of the bucket."""
        return self._rate

    @property
    def _burst(self) -> float:
        if self._declared_burst is not None:
            return self._declared_burst
        return self._rate * BURST_SECONDS if self._rate < inf else 0.0

    def set_rate(self, bits_per_second: float, now: float) -> None:
        """Change the rate from now on; what was taken before counts at the old one."""
        self._fill(now)
        self._rate = bits_per_second
        self._bits = min(self._bits, self._burst)

    def take(self, bits: float, now: float) -> float:
        """Take bits, and return the seconds after which they may pass."""
        if self._rate == inf:
            return 0.0
        self._fill(now)
        self._bits -= bits
        return max(0.0, -self._bits / self._rate) if self._rate > 0 else inf

    def _fill(self, now: float) -> None:
        if self._rate < inf:
            self._bits = min(self._burst, self._bits + self._rate * max(0.0, now - self._now))
        else:
            self._bits = 0.0
        self._now = max(now, self._now)


class Readable(Protocol):
    """Source of bytes, such as an HTTP response."""

    def read(self, size: int, /) -> bytes:
        """Return at most this many bytes; none at the end."""


class RateLimit:
    """Sends and reads of this process at a limited rate."""

    def __init__(
        self,
        bits_per_second: float = inf,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Create the limit.

        Args:
            bits_per_second: Rate for both directions together.
            clock: Returns the present time in seconds.
            sleep: Waits for a number of seconds.
        """
        self._clock, self._sleep = clock, sleep
        self._bucket = TokenBucket(bits_per_second, now=clock())

    @property
    def bits_per_second(self) -> float:
        """Rate for both directions together; infinite without a limit."""
        return self._bucket.bits_per_second

    @bits_per_second.setter
    def bits_per_second(self, rate: float) -> None:
        if rate != self._bucket.bits_per_second:
            self._bucket.set_rate(rate, self._clock())

    def pieces(self, body: bytes) -> Iterator[bytes]:
        """Yield a body in pieces, each when it may be sent: an iterable for `http.client`."""
        for start in range(0, len(body), PIECE_BYTES):
            piece = body[start : start + PIECE_BYTES]
            self._wait(len(piece))
            yield piece

    def read(self, source: Readable) -> bytes:
        """Read all bytes; the sender is slowed down because its connection fills."""
        pieces = []
        while piece := source.read(PIECE_BYTES):
            pieces.append(piece)
            self._wait(len(piece))
        return b"".join(pieces)

    def _wait(self, count: int) -> None:
        if (seconds := self._bucket.take(8.0 * count, self._clock())) > 0:
            self._sleep(seconds)
