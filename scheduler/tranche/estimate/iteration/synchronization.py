"""Ends of workers that wait for each other: BSP, ASP and bounded staleness, SSP(s).

Sources: BSP, ASP and SSP are textbook schemes (SSP: Ho et al., More effective distributed ML via a stale synchronous
parallel parameter server, NIPS 2013 [R]). A worker may start a batch if it is at most s batches ahead of the slowest
one that has batches left: s = 0 is BSP, s = ∞ is ASP.
"""

from collections.abc import Sequence
from math import inf, isinf

BSP, ASP = 0.0, inf
"""Staleness of the two extremes."""


def end_seconds(iteration_seconds: Sequence[float], batches: Sequence[int], staleness: float) -> tuple[float, ...]:
    """Return the time at which each worker has trained its batches.

    Args:
        iteration_seconds: Time of one batch of each worker.
        batches: Number of batches of each worker.
        staleness: Batches s that a worker may be ahead of the slowest one: `BSP`, `ASP`, or between.
    """
    if isinf(staleness):
        return tuple(seconds * count for seconds, count in zip(iteration_seconds, batches, strict=True))
    ends = [0.0] * len(batches)
    slowest: list[float] = [0.0]
    """Time at which every worker has trained this number of batches, or all of its own."""
    for batch in range(max(batches, default=0)):
        allowed = slowest[max(0, batch - int(staleness))]
        for worker, seconds in enumerate(iteration_seconds):
            if batch < batches[worker]:
                ends[worker] = max(ends[worker], allowed) + seconds
        slowest.append(max(end for end, count in zip(ends, batches, strict=True) if batch < count))
    return tuple(ends)
