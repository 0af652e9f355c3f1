"""Shares of a parameter server's port among the workers of one job, SaSP-like.

Source: Network Scheduling for Distributed Machine Learning, thesis, HKUST, 2019. [P, abstract] SaSP allocates the
resources of the processes of one job on different servers, and decouples computation from communication; the abstract
claims 25 to 50 % shorter training over different synchronization schemes. Only the abstract was read: all formulas are
reconstructed [I].

A worker with m seconds of computation per batch, R batches left in its window and a bandwidth of b bit/s ends after
R·(m + 2q/b) seconds, or R·max(m, 2q/b) if it communicates one batch beside the computation of the next. The rule
minimizes the latest end, subject to Σ b ≤ port and b ≤ link. Push and pull of q bits each go through one port, hence
2q. With a full-duplex port on which they overlap, q per direction applies: pass half of the gradient's bits.
Worked numbers: docs/reference/systems/sasp-like.md.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

HALVINGS = 200
"""Largest number of bisections; the interval is then below the distance of two floating-point numbers."""


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """Remaining work of one worker's window."""

    compute_seconds: float
    """Time m to compute one batch."""
    batches: float
    """Batches R left in the window; at least 0."""
    link_bits_per_second: float = inf
    """Bandwidth of the worker's own link."""


Rule = Callable[[Sequence[WorkerLoad], float, float], tuple[float, ...]]
"""Function of loads, bits of one gradient, and bit/s of the port, which returns the bit/s of each worker."""


def window_seconds(load: WorkerLoad, gradient_bits: float, bits_per_second: float, *, decoupled: bool = False) -> float:
    """Return the time until the window ends at a bandwidth: infinite without bandwidth."""
    if load.batches <= 0:
        return 0.0
    transfer = _transfer_seconds(gradient_bits, bits_per_second)
    iteration = max(load.compute_seconds, transfer) if decoupled else load.compute_seconds + transfer
    return load.batches * iteration


def latest_end(
    loads: Sequence[WorkerLoad], gradient_bits: float, shares: Sequence[float], *, decoupled: bool = False
) -> float:
    """Return F, the time until the last window ends; 0 without workers."""
    ends = (
        window_seconds(load, gradient_bits, share, decoupled=decoupled)
        for load, share in zip(loads, shares, strict=True)
    )
    return max(ends, default=0.0)


def min_max_shares(loads: Sequence[WorkerLoad], gradient_bits: float, port: float) -> tuple[float, ...]:
    """Return the shares that minimize the latest end of the windows, computation and communication in turn.

    b_i(F) = min(link_i, 2q/(F/R_i − m_i)) is what worker i needs to end at F. F is the end with full links if the port
    allows these needs, else the root of Σ b_i(F) = port, by bisection. What the port has left is not assigned.

    Args:
        loads: Remaining work of each worker.
        gradient_bits: Size q of the gradients of one batch in bits.
        port: Bandwidth of the parameter server in bit/s, above 0.
    """
    full = [load.link_bits_per_second for load in loads]
    low = latest_end(loads, gradient_bits, full)
    needs = _needs(loads, gradient_bits, low)
    if sum(needs) <= port:
        return tuple(needs)
    high = latest_end(loads, gradient_bits, equal_shares(loads, gradient_bits, port))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if sum(_needs(loads, gradient_bits, middle)) > port:
            low = middle
        else:
            high = middle
    needs = _needs(loads, gradient_bits, high)
    excess = max(1.0, sum(needs) / port)
    return tuple(need / excess for need in needs)


def decoupled_shares(loads: Sequence[WorkerLoad], gradient_bits: float, port: float) -> tuple[float, ...]:
    """Return the shares that minimize the latest end if communication runs beside the computation of the next batch.

    F = max(max R_i·m_i, max 2q·R_i/link_i, 2q·ΣR_i/port), and b_i = 2q·R_i/F. The other arguments are those of
    `min_max_shares`.
    """
    bits = [2 * gradient_bits * max(0.0, load.batches) for load in loads]
    alone = (max(load.compute_seconds * load.batches, bit / load.link_bits_per_second)
             for load, bit in zip(loads, bits, strict=True))  # fmt: skip
    latest = max(sum(bits) / port, *alone, 0.0)
    return tuple(bit / latest if latest else 0.0 for bit in bits)


def equal_shares(loads: Sequence[WorkerLoad], gradient_bits: float, port: float) -> tuple[float, ...]:
    """Return port/n for each worker that has batches left, cut at its link: a comparator."""
    count = sum(load.batches > 0 for load in loads)
    return tuple(min(load.link_bits_per_second, port / count) if load.batches > 0 else 0.0 for load in loads)


def proportional_shares(loads: Sequence[WorkerLoad], gradient_bits: float, port: float) -> tuple[float, ...]:
    """Return shares in proportion to the time of a computation, cut at the link: a comparator."""
    weights = [load.compute_seconds if load.batches > 0 else 0.0 for load in loads]
    if not (whole := sum(weights)):
        return equal_shares(loads, gradient_bits, port)
    return tuple(
        min(load.link_bits_per_second, port * weight / whole) for load, weight in zip(loads, weights, strict=True)
    )


RULES: dict[str, Rule] = {
    "sasp-like": min_max_shares,
    "sasp-like-decoupled": decoupled_shares,
    "equal": equal_shares,
    "proportional": proportional_shares,
}
"""Rules by name."""


def _transfer_seconds(gradient_bits: float, bits_per_second: float) -> float:
    """Return the time to push and to pull the gradients of one batch."""
    if not gradient_bits:
        return 0.0
    return 2 * gradient_bits / bits_per_second if bits_per_second > 0 else inf


def _needs(loads: Sequence[WorkerLoad], gradient_bits: float, end: float) -> list[float]:
    """Return the bandwidth with which each window ends at a time, at most that of the link."""
    needs = []
    for load in loads:
        link = load.link_bits_per_second
        if load.batches <= 0 or not gradient_bits:
            needs.append(0.0)
            continue
        spare = end / load.batches - load.compute_seconds
        needs.append(min(link, 2 * gradient_bits / spare) if spare > 0 else link)
    return needs
