"""Batched service of requests as the queue M/G(a,b)/1/N: delay, loss and queue length from the size limits of a batch.

Source: the model is named in the abstract of BatOpt (IEEE TCC 2024), of which one half could be read: dynamic batches,
M/G(a,b)/1/N, a balance of latency and GPU memory [P]. All formulas are ours [D]: the Markov chain of the requests that
wait just after a batch ends. Requests arrive as a Poisson process. At most N of them wait; the batch in service does
not count. The server starts when at least a wait, and takes all that wait, but at most b.

The expected number of arrivals in a batch of k is Σ_{m≥0} P(A_k > m) = λ E S_k, so the infinite sums of the model are
finite ones here, without a cut: only the first N terms are computed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import exp, inf, isfinite, lgamma, log
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Law = Literal["deterministic", "exponential"]
Floats = NDArray[np.float64]
TIE = 1e-12
"""Relative difference of mean delays below which two pairs of limits count as equal."""


@dataclass(frozen=True, slots=True)
class ServiceTime:
    """Service time of a batch by the number of its requests, in seconds."""

    seconds: tuple[tuple[float, ...], ...]
    """For batches of 1, 2, … requests: the mean alone or, for the law `sampled`, measured times."""
    law: Law | Literal["sampled"] = "deterministic"
    """Distribution around the mean; `sampled`: that of the measured times."""

    def __post_init__(self) -> None:
        values = [value for times in self.seconds for value in times]
        if not (self.seconds and all(self.seconds) and all(isfinite(value) and value > 0 for value in values)):
            raise ValueError("each size of a batch needs service times above 0 seconds")
        if self.law != "sampled" and len(values) != len(self.seconds):
            raise ValueError(f"the law {self.law} takes one mean service time for each size of a batch")

    @classmethod
    def linear(cls, fixed: float, each: float, most: int, law: Law = "deterministic") -> "ServiceTime":
        """Return a service time with the mean fixed + each · k seconds for batches of k up to `most` requests."""
        return cls(tuple((fixed + each * size,) for size in range(1, most + 1)), law)

    @classmethod
    def sampled(cls, samples: Mapping[int, Sequence[float]]) -> "ServiceTime":
        """Return the distribution of measured times, by size of the batch.

        Raises:
            ValueError: a size from 1 to the largest one has no measurement.
        """
        sizes = range(1, max(samples, default=0) + 1)
        missing = [size for size in sizes if not samples.get(size)]
        if missing or not samples:
            raise ValueError(f"no service time was measured for batches of {missing[0] if missing else 1}")
        return cls(tuple(tuple(samples[size]) for size in sizes), "sampled")

    def mean_seconds(self, size: int) -> float:
        """Return E S_k for a batch of k = `size` requests."""
        times = self.seconds[size - 1]
        return sum(times) / len(times)

    def arrivals(self, rate: float, size: int, count: int) -> Floats:
        """Return P(A_k = m) for m = 0 … count − 1: the distribution of the arrivals in a batch of k = `size`."""
        if self.law == "exponential":
            load = rate * self.mean_seconds(size)
            return np.array([exp(m * log(load / (1 + load)) - log(1 + load)) for m in range(count)])
        times = self.seconds[size - 1]
        return np.array([sum(_poisson(rate * seconds, m) for seconds in times) / len(times) for m in range(count)])


@dataclass(frozen=True, slots=True)
class BatchDelay:
    """Stationary figures of one pair of size limits."""

    least: int
    """a, the least number of waiting requests at which a batch starts."""
    most: int
    """b, the largest number of requests in a batch."""
    delay_seconds: float
    """Mean time from arrival to the end of the batch, of requests that were not lost."""
    loss: float
    """Probability that a request is lost because N others wait."""
    queue_length: float
    """Mean number of waiting requests."""
    batch_size: float
    """Mean number of requests in a batch."""
    throughput: float
    """Requests served per second: mean batch over mean time between two ends of batches."""


@dataclass(frozen=True)
class BatchQueue:
    """Queue M/G(a,b)/1/N with given arrivals, waiting places and service times, for any a and b."""

    rate: float
    """λ, requests per second."""
    places: int
    """N, the number of requests that can wait, without those in service."""
    service: ServiceTime
    _arrivals: dict[int, Floats] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not (isfinite(self.rate) and self.rate > 0 and self.places >= 1):
            raise ValueError("a queue of batches needs a rate above 0 and at least one waiting place")

    @property
    def largest(self) -> int:
        """Largest size of a batch: that of the known service times, but not above N."""
        return min(self.places, len(self.service.seconds))

    @cached_property
    def _means(self) -> Floats:
        return np.array([self.service.mean_seconds(size) for size in range(1, self.largest + 1)])

    def figures(self, least: int, most: int) -> BatchDelay:
        """Return the stationary figures with 1 ≤ a = `least` ≤ b = `most` ≤ N.

        Raises:
            ValueError: the limits are not in this order, or the service time of a batch of b is not known.
        """
        if not 1 <= least <= most <= self.largest:
            raise ValueError(
                f"the limits {least} and {most} of a batch are not in the order 1 ≤ a ≤ b ≤ {self.largest}"
            )
        rate, places = self.rate, self.places
        waiting = np.arange(places + 1)
        sizes = np.where(waiting < least, least, np.minimum(waiting, most))
        left_behind = np.where(waiting < least, 0, waiting - np.minimum(waiting, most))
        chain = np.array(
            [self._waiting_after(int(size), int(count)) for size, count in zip(sizes, left_behind, strict=True)]
        )
        shares = _stationary(chain)
        seconds = self._means[sizes - 1]
        idle = np.maximum(least - waiting, 0) / rate
        cycle = float(shares @ (idle + seconds))
        forming = [sum(range(int(count), least)) / rate for count in waiting]  # Σ_{m=i}^{a−1} m/λ
        areas, lost = np.array(
            [self._integral_and_losses(int(size), int(count)) for size, count in zip(sizes, left_behind, strict=True)]
        ).T
        loss = max(0.0, float(shares @ lost) / (rate * cycle))
        queue = float(shares @ (forming + areas)) / cycle
        served = float(shares @ sizes)
        delay = queue * cycle / served + float(shares @ (sizes * seconds)) / served
        return BatchDelay(least, most, delay, loss, queue, served, served / cycle)

    def _probabilities(self, size: int) -> Floats:
        """Return P(A_k = m) for m < N."""
        if size not in self._arrivals:
            self._arrivals[size] = self.service.arrivals(self.rate, size, self.places)
        return self._arrivals[size]

    def _waiting_after(self, size: int, left_behind: int) -> Floats:
        """Return the distribution of min(N, ℓ + A_k), the number that waits after a batch of k that left ℓ behind."""
        row = np.zeros(self.places + 1)
        row[left_behind : self.places] = self._probabilities(size)[: self.places - left_behind]
        row[self.places] = max(0.0, 1.0 - row.sum())
        return row

    def _integral_and_losses(self, size: int, left_behind: int) -> tuple[float, float]:
        """Return the expected time integral of waiting requests and of lost ones while a batch of k is in service.

        Both are sums over m of P(A_k > m), the expected time between the m-th and the next arrival times λ: the first
        in requests · seconds, the second in requests.
        """
        room = self.places - left_behind
        exceeding = 1.0 - np.cumsum(self._probabilities(size)[:room])  # P(A_k > m) for m < N − ℓ
        expected = self.rate * self.service.mean_seconds(size)
        waiting = self.places * expected - float((room - np.arange(room)) @ exceeding)
        return waiting / self.rate, max(0.0, expected - float(exceeding.sum()))


@dataclass(frozen=True, slots=True)
class BatchMemory:
    """GPU memory of a batch, and its limit: fixed + each · b ≤ limit; any unit, the same for all three."""

    fixed: float = 0.0
    """M₀: memory of the model without a batch."""
    each: float = 0.0
    """M₁: memory of each request of a batch."""
    limit: float = inf

    def of(self, most: int) -> float:
        """Return the memory of a server whose batches have up to `most` requests."""
        return self.fixed + self.each * most


def best_limits(queue: BatchQueue, memory: BatchMemory, loss_limit: float = 1.0) -> BatchDelay | None:
    """Return the limits (a, b) of least mean delay within the limits of memory and loss; None if there are none.

    Of equal delays the smaller b wins, then the smaller a. The time grows with N² pairs of N³ steps: use it for at most
    a few dozen waiting places.
    """
    return _least_delay(_allowed(queue, memory, loss_limit))


def best_fixed_size(queue: BatchQueue, memory: BatchMemory, loss_limit: float = 1.0) -> BatchDelay | None:
    """Return the fixed size, a = b, of least mean delay within the limits of memory and loss; None if there is none."""
    return _least_delay(figures for figures in _allowed(queue, memory, loss_limit, fixed=True))


def _allowed(queue: BatchQueue, memory: BatchMemory, loss_limit: float, *, fixed: bool = False) -> Iterator[BatchDelay]:
    """Yield the figures of all pairs of limits within the limits of memory and loss; with `fixed`, those with a = b."""
    for most in range(1, queue.largest + 1):
        if memory.of(most) > memory.limit:
            return
        for least in range(most if fixed else 1, most + 1):
            figures = queue.figures(least, most)
            if figures.loss <= loss_limit:
                yield figures


def _least_delay(candidates: Iterator[BatchDelay]) -> BatchDelay | None:
    best = None
    for figures in candidates:
        if best is None or figures.delay_seconds < best.delay_seconds * (1 - TIE):
            best = figures
    return best


def _poisson(mean: float, count: int) -> float:
    return exp(count * log(mean) - mean - lgamma(count + 1))


def _stationary(chain: Floats) -> Floats:
    """Return π with π P = π and Σ π = 1."""
    size = len(chain)
    equations = np.vstack([(chain.T - np.eye(size))[:-1], np.ones(size)])
    right = np.zeros(size)
    right[-1] = 1.0
    return np.clip(np.linalg.solve(equations, right), 0.0, None)
