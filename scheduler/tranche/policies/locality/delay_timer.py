"""Delay timers: how long a job declines places at wide topology levels because narrower ones may become free.

Source: design ours [I] after the abstract of GPU Cluster Scheduling for Network-Sensitive Deep Learning (Dally), arXiv
2401.16492: delay scheduling for consolidation, with timers that a tuner sets. Of the paper, only the abstract was read.
Timers add up: a job that waits 100 s for one node and 50 s for one rack takes any place after 150 s. No timer exceeds
what the job can gain: its remaining mini-batches times the difference between the two levels.
Worked numbers: docs/reference/systems/dally-like.md.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise

CLASS_LIMITS = (1, 2, 4, 8, 16)
"""Largest number of GPUs of each class of jobs; the last class has all larger jobs."""


def size_class(gpus: int) -> int:
    """Return the class of a job by its number of GPUs: 1, 2, 3-4, 5-8, 9-16, or more."""
    return next((number for number, limit in enumerate(CLASS_LIMITS) if gpus <= limit), len(CLASS_LIMITS))


def effective_timers(timers: Sequence[float], seconds: Sequence[float], batches_left: float) -> list[float]:
    """Return the timers of the levels but for the last one, limited by what the job gains there, in seconds.

    Args:
        timers: Timer of each feasible level but the last one, narrowest first, in seconds.
        seconds: Time of a mini-batch at each feasible level, narrowest first, in seconds.
        batches_left: Number of remaining mini-batches.
    """
    gains = (max(0.0, batches_left * (wider - narrower)) for narrower, wider in pairwise(seconds))
    return [min(timer, gain) for timer, gain in zip(timers, gains, strict=True)]


def deadlines(timers: Sequence[float]) -> list[float]:
    """Return the waiting time from which a job takes a place wider than each level: the sum of the timers up to it."""
    return list(accumulate(timers))


def accepts(offered: int, limits: Sequence[float], waited: float) -> bool:
    """Return whether a job takes a place at a level.

    Args:
        offered: Position of the narrowest level at which it fits now, among its feasible levels.
        limits: Deadlines of the feasible levels but the last one.
        waited: Time for which the job has declined places since it began to wait, in seconds.
    """
    return offered == 0 or waited >= limits[offered - 1]


def next_deadline(offered: int, limits: Sequence[float], waited: float) -> float:
    """Return after how many more seconds the job takes the place that it declines now."""
    return limits[offered - 1] - waited
