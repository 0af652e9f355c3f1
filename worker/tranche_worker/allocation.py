"""Bandwidth and batch sizes that the scheduler assigns to the workers of a job, and the measurements it needs for that.

The pod that reports for its job (parameter server 0, or rank 0 of a gang) sends the last iterations of each worker with
its report. The response has the allocation of each worker, which that pod passes on.
"""

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

LARGEST_FIGURE = 1e9
"""Largest number of samples or seconds that the scheduler reads; it refuses a report with another as a whole."""
ITERATIONS, MOST_ITERATIONS = 16, 4000
"""Largest number of iterations in a report, per worker and of all workers: a report may have 256 KiB."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """Share of one worker."""

    bits_per_second: float = inf
    """Bandwidth for gradients and parameters together; infinite without a limit."""
    samples: int | None = None
    """Samples of its part of a batch; None: the program decides."""


@dataclass(frozen=True, slots=True)
class Communication:
    """Options of the job's spec.communication, which the operator passes in TRANCHE_COMMUNICATION."""

    shared: bool = False
    """Whether the scheduler assigns bandwidth or batch sizes, so that reports need iterations."""
    decoupled: bool = False
    """Whether workers communicate one batch beside the computation of the next."""
    batch_size: int | None = None
    """Samples of a batch of all workers."""
    barrier: int | None = None
    """Number k of pushes that close a round; None: asynchronous."""
    staleness: float = inf
    """Rounds that a worker may miss, or batches that it may be ahead."""
    aggregation: str = "mean"
    """Rule for the gradients of a round: ``mean``, ``median`` or ``trimmed-mean``."""


class Iterations:
    """Last iterations of the workers of a job."""

    def __init__(self) -> None:
        self._last: dict[int, deque[tuple[float, float, float]]] = {}

    def record(self, worker: int, samples: float, compute_seconds: float, fetch_seconds: float = 0.0) -> None:
        """Record one iteration, unless a figure makes no sense, such as a time by a clock that was set back.

        Args:
            worker: Index of the worker.
            samples: Samples of its part of the batch.
            compute_seconds: Time to compute the gradient.
            fetch_seconds: Time to fetch samples from other sites before that.
        """
        figures = float(samples), _short(compute_seconds), _short(fetch_seconds)
        if all(map(makes_sense, figures)):
            self._last.setdefault(worker, deque(maxlen=ITERATIONS)).append(figures)

    def forget(self, worker: int) -> None:
        """Remove a worker that has ended."""
        self._last.pop(worker, None)

    def dump(self) -> dict[int, list[tuple[float, float, float]]]:
        """Return the last iterations by worker, for a report; fewer of each if there are many workers."""
        histories = list(self._last.items())
        count = max(1, min(ITERATIONS, MOST_ITERATIONS // max(1, len(histories))))
        return {worker: list(last)[-count:] for worker, last in histories}


def makes_sense(figure: float) -> bool:
    """Return whether the scheduler reads a number of samples or seconds."""
    return 0 <= figure <= LARGEST_FIGURE


def _short(seconds: float) -> float:
    """Round to microseconds, which need fewer characters in a report."""
    return round(float(seconds), 6)


def read_communication(text: str) -> Communication:
    """Read TRANCHE_COMMUNICATION; empty: the defaults."""
    options = json.loads(text) if text else {}
    return Communication(
        shared="bandwidthShares" in options or "batching" in options,
        decoupled=options.get("decoupled", False),
        batch_size=options.get("batchSize"),
        barrier=options.get("barrier"),
        staleness=options.get("staleness", inf),
        aggregation=options.get("aggregation", "mean"),
    )


def read_allocations(body: bytes) -> dict[int, Allocation]:
    """Return the allocation by worker from the response to a report; an empty response has none."""
    shares: Mapping[str, Mapping[str, float]] = json.loads(body).get("workers", {}) if body else {}
    return {int(worker): _read(share) for worker, share in shares.items()}


def _read(share: Mapping[str, float]) -> Allocation:
    samples = share.get("samples")
    return Allocation(share.get("bitsPerSecond", inf), None if samples is None else int(samples))
