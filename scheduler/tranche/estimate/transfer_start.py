"""Start rules of transfers: whether a transfer that is ready starts now or waits for those on its links.

Source: the simulator of the authors of arXiv 2002.10105 (see `tranche.estimate.link_contention`) [C]. AdaDUAL lets at
most two transfers share a link, and the second only if it is short enough that the sum of both ends is smaller than one
after the other [D]. SRSF(n) starts a transfer if fewer than n are on its links. Ada-SRSF and SRSF(n) offer the ready
transfers in the order of the least remaining service, one after the other, to their rule.
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf

from tranche.estimate.link_contention import PENALTY_RATIO

StartRule = Callable[[float, Sequence[float], int], bool]
"""Function of the units of a new transfer, the units left of each transfer on its links, and the largest number of
transfers on one of them; it returns whether the new one starts."""


def ada_dual(alone: float, penalty: float) -> StartRule:
    """Return AdaDUAL: alone it starts; beside one other if ``new/old <= β / (2 (β + η))``; beside more it waits.

    Args:
        alone: β, the time of a unit of a transfer alone.
        penalty: η, the time that a second transfer adds to a unit.
    """
    limit = largest_ratio(alone, penalty)

    def starts(new: float, old: Sequence[float], most: int) -> bool:
        return most == 0 or (most == 1 and all(new <= limit * left for left in old))

    return starts


def largest_ratio(alone: float, penalty: float) -> float:
    """Return β / (2 (β + η)): the largest ratio of a new transfer to an old one with which sharing pays.

    [D] A new transfer of M beside an old one with R > M left ends at M (2β + η), and the old one at R β + M (β + η). If
    the new one waits, the two end at R β and (R + M) β. The sums are equal at M / R = β / (2 (β + η)).
    """
    return alone / (2 * (alone + penalty))


def fewer_than(limit: float) -> StartRule:
    """Return SRSF(n): a transfer starts if fewer than `limit` are on each of its links."""
    return lambda new, old, most: most < limit


SHARED = "shared"
"""Name of the usual contention of the simulator: expected times, without a start rule."""
START_RULES: Mapping[str, StartRule] = {
    "at-once": fewer_than(inf),
    "srsf-1": fewer_than(1),
    "srsf-2": fewer_than(2),
    "adadual": ada_dual(1.0, PENALTY_RATIO),
}
"""Start rules of the simulator by name."""
