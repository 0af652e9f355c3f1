"""Moving-block bootstrap: draws logs similar to a given one, so that a figure on one log gets an interval.

Künsch, "The jackknife and the bootstrap for general stationary observations", Annals of Statistics 17(3), 1989: blocks
of neighbors are drawn with replacement, so that bursts of similar jobs stay together; the length of a block grows with
the cube root of the number of observations.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import replace

from tranche.simulation.job_log import TraceRow


def resample(rows: Sequence[TraceRow], seed: int) -> tuple[TraceRow, ...]:
    """Draw as many rows as there are, in blocks; each row keeps the time since its predecessor.

    Jobs are renumbered in order of submission, since one row may be drawn more than once.
    """
    ordered = sorted(rows, key=lambda row: row.submit_seconds)
    if not ordered:
        return ()
    draw = random.Random(f"resample {seed}")  # noqa: S311 - statistics, no secret
    length = block_length(len(ordered))
    drawn: list[TraceRow] = []
    clock = 0.0
    while len(drawn) < len(ordered):
        begin = draw.randrange(len(ordered) - length + 1)
        for position in range(begin, min(begin + length, begin + len(ordered) - len(drawn))):
            previous = ordered[max(0, position - 1)].submit_seconds
            clock += ordered[position].submit_seconds - previous
            drawn.append(replace(ordered[position], job_id=str(len(drawn)), submit_seconds=clock))
    return tuple(drawn)


def block_length(count: int) -> int:
    """Return the number of jobs of one block: the cube root of the number of jobs, at least one."""
    return max(1, round(math.cbrt(count)))
