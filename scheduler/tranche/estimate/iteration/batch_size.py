"""Batch sizes of workers that train one global batch together: LOFT-like, with LB-BSP-like beside it.

Sources: Locality-Aware and Fault-Tolerant Batching for Machine Learning on Distributed Datasets, Liu, Ding, Cheng,
Zhou, IEEE TCC 12(2):370-387, 2024. [P, abstract] The fetch of data that are not local makes stragglers; batch sizes
follow models of fetching and computing and an adaptive grid search; a robust aggregation upon ring all-reduce guards
small batches. LB-BSP, arXiv 1806.02508. [P, abstract] Batch sizes follow the speed of each worker. Only the abstracts
were read: all formulas are reconstructed [I].

Worker i trains b samples in a + k·b seconds; k has the computation and the fetch of the samples that are not local.
The sizes even out these times: Σ clip((T − a_i)/k_i, smallest, largest) = B, with T by bisection, because cutting at
the bounds and solving again may oscillate when both bounds bind. LB-BSP is the same with k = c, the computation alone.
Worked numbers: docs/reference/systems/loft-like.md.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import floor, inf, isfinite

HALVINGS = 200
"""Largest number of bisections."""


class InfeasibleBatchError(ValueError):
    """The limits of the workers do not allow the global batch."""


@dataclass(frozen=True, slots=True)
class SampleTime:
    """Time of one worker's part of a batch: ``fixed_seconds + seconds_per_sample · b``."""

    fixed_seconds: float
    """Time a of an iteration without samples."""
    seconds_per_sample: float
    """Time k of each sample, above 0."""
    smallest: int = 1
    largest: float = inf
    """Largest number of samples, by the worker's memory: an integer, or infinite."""

    def seconds(self, samples: float) -> float:
        """Return the time of an iteration with this number of samples."""
        return self.fixed_seconds + self.seconds_per_sample * samples


@dataclass(frozen=True, slots=True)
class BatchSplit:
    """Division of a global batch among workers."""

    exact: tuple[float, ...]
    """Sizes before they are rounded."""
    sizes: tuple[int, ...]
    seconds: float
    """Time T at which all workers that no limit binds are done, before sizes are rounded."""


def seconds_per_sample(
    compute_seconds: float, local: float, sample_bits: float, bits_per_second: float, *, prefetch: bool = False
) -> float:
    """Return k of a worker: computation and fetch one after the other, or the longer of them.

    Args:
        compute_seconds: Time c to compute one sample.
        local: Part of the samples that are at the worker, from 0 to 1.
        sample_bits: Size of one sample in bits.
        bits_per_second: Bandwidth to the other samples.
        prefetch: Whether samples are fetched beside the computation of earlier ones.
    """
    fetch = (1 - local) * sample_bits / bits_per_second if local < 1 else 0.0
    return max(compute_seconds, fetch) if prefetch else compute_seconds + fetch


def split(workers: Sequence[SampleTime], total: int) -> BatchSplit:
    """Divide a global batch so that the workers end together, as far as their limits allow.

    Sizes are rounded down, and the largest remainders get one more; of equal ones, the first.

    Raises:
        InfeasibleBatchError: the limits do not allow the total.
    """
    least, most = sum(worker.smallest for worker in workers), sum(worker.largest for worker in workers)
    if not least <= total <= most:
        raise InfeasibleBatchError(
            f"{len(workers)} workers train from {least} to {most} samples together, not {total}: "
            "change the batch or the number of workers"
        )
    low = min(worker.seconds(worker.smallest) for worker in workers)
    high = max(worker.seconds(min(worker.largest, total)) for worker in workers)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if sum(_sizes_at(workers, middle)) < total:
            low = middle
        else:
            high = middle
    exact = tuple(_sizes_at(workers, high))
    return BatchSplit(exact, _rounded(workers, exact, total), high)


def equal_split(workers: int, total: int) -> tuple[int, ...]:
    """Return equal sizes, the first ones larger by 1 if the total is not divisible: a comparator."""
    whole, remainder = divmod(total, workers)
    return tuple(whole + (number < remainder) for number in range(workers))


def slowest_seconds(workers: Sequence[SampleTime], sizes: Sequence[int]) -> float:
    """Return the time of an iteration, which ends when the slowest worker is done."""
    return max(worker.seconds(size) for worker, size in zip(workers, sizes, strict=True))


def needs_robust_rule(sizes: Sequence[int], smallest: int) -> bool:
    """Return whether some part is so small that a robust rule should aggregate the gradients.

    The limit is max(2·smallest, B/4n) [I]. It is above the smallest size, at which sizes are cut.
    """
    return min(sizes) < max(2 * smallest, sum(sizes) / (4 * len(sizes)))


def fitted(points: Iterable[tuple[float, float]], prior: SampleTime) -> SampleTime:
    """Return a worker's model by least squares of its iteration times against its batch sizes.

    With equal sizes, or where the fit has a negative fixed time, the prior's fixed time applies (at most the mean time)
    and the slope follows from the means.

    Args:
        points: Pairs of samples and seconds.
        prior: Model to correct; without points, it is the result.
    """
    pairs = [(samples, seconds) for samples, seconds in points if samples > 0 and isfinite(seconds)]
    if not pairs:
        return prior
    mean_samples = sum(samples for samples, _ in pairs) / len(pairs)
    mean_seconds = sum(seconds for _, seconds in pairs) / len(pairs)
    spread = sum((samples - mean_samples) ** 2 for samples, _ in pairs)
    slope, fixed = 0.0, -1.0
    if spread > 0:
        slope = sum((samples - mean_samples) * (seconds - mean_seconds) for samples, seconds in pairs) / spread
        fixed = mean_seconds - slope * mean_samples
    if slope <= 0 or fixed < 0:
        fixed = prior.fixed_seconds if prior.fixed_seconds < mean_seconds else 0.0
        slope = (mean_seconds - fixed) / mean_samples
    return SampleTime(fixed, slope if slope > 0 else prior.seconds_per_sample, prior.smallest, prior.largest)


def _sizes_at(workers: Sequence[SampleTime], end: float) -> list[float]:
    """Return the samples that each worker trains until a time, within its limits."""
    return [
        min(worker.largest, max(worker.smallest, (end - worker.fixed_seconds) / worker.seconds_per_sample))
        for worker in workers
    ]


def _rounded(workers: Sequence[SampleTime], exact: Sequence[float], total: int) -> tuple[int, ...]:
    sizes = [floor(size) for size in exact]
    order = sorted(range(len(sizes)), key=lambda worker: (sizes[worker] - exact[worker], worker))
    for worker in order:
        if sum(sizes) < total and sizes[worker] < workers[worker].largest:
            sizes[worker] += 1
    return tuple(sizes)
