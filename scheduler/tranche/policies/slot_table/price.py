"""Prices of resources on a slot table, which rise exponentially with the part that is reserved.

Source: eq. (22) to (26) of OASiS (INFOCOM 2018, arXiv 1801.00936) [P]; PD-ORS (arXiv 2108.02917) [R] has the same form
with one pool of machines, and a factor 2 instead of 4 in L. [P] the printed (23) and (24) subtract the arrival from a
duration, which is a slip: utilities here are of durations. [I] U is at least L, so that prices never fall with use.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log

from tranche.policies.slot_table.slot_job import Amounts

SMALLEST = 1e-280
"""Least L: utilities of completions long after their targets underflow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Contribution of one job to the bounds of prices."""

    best: float
    """Its utility if it completes as soon as possible."""
    last: float
    """Its utility if it completes at the horizon."""
    least_slots: int
    """Worker-slots of its whole work on one machine, rounded up."""
    most_slots: int
    """Worker-slots of its whole work on several machines, rounded up."""
    demand: Amounts
    """Demand of one worker, or of the pods that a pool has to hold for it."""


@dataclass(frozen=True, slots=True)
class PriceRange:
    """Price of each resource on an unused machine, L, and on a full one, U."""

    least: float
    most: Amounts
    most_ratio: float = inf
    """Largest U/L: L of a resource is at least its U over this [I]."""

    def at(self, used: Amounts, capacity: Amounts) -> Amounts:
        """Return L · (U/L)^(used/capacity) of each resource.

        An unlimited capacity costs L whatever is reserved [I]. A resource of which there is none costs U, and so does
        one of which more is reserved than there is [I]: the machine has shrunk since.
        """
        return Amounts(*(self._price(*of) for of in zip(self.most, used, capacity, strict=True)))

    def _price(self, most: float, used: float, capacity: float) -> float:
        least = max(self.least, most / self.most_ratio)
        if most <= least or (used <= 0 and capacity > 0) or capacity == inf:
            return least
        return least * exp(log(most / least) * (min(1.0, used / capacity) if capacity > 0 else 1.0))


def steepness(claims: Sequence[Claim], capacity: float, horizon_slots: int) -> float:
    """Return μ (η in OASiS): the least number ≥ 1 with 1/μ ≤ work · demand / (horizon · capacity) for all jobs.

    Args:
        claims: Jobs with any demand.
        capacity: Sum of all resources of all machines that are limited.
        horizon_slots: T.
    """
    share = min((claim.least_slots * claim.demand.total for claim in claims), default=inf)
    return max(1.0, horizon_slots * capacity / share) if share > 0 else inf


def price_range(
    claims: Sequence[Claim],
    capacity: float,
    horizon_slots: int,
    *,
    factor: float,
    scale: float = 1.0,
    most_ratio: float = inf,
) -> PriceRange:
    """Return L and U from the jobs that are known.

    Args:
        claims: Contributions of the known jobs.
        capacity: Sum of all resources of all machines that are limited.
        horizon_slots: T.
        factor: 4 in OASiS, 2 in PD-ORS: L = min of u at the horizon / (factor · μ · work · demand).
        scale: Factor of U/L, below 1 for an under-estimate.
        most_ratio: Largest U/L.
    """
    asking = [claim for claim in claims if claim.demand.total > 0]
    if not asking:
        return PriceRange(SMALLEST, Amounts(SMALLEST, SMALLEST, SMALLEST))
    slope = steepness(asking, capacity, horizon_slots)
    least = min(claim.last / (factor * slope * claim.most_slots * claim.demand.total) for claim in asking)
    least = max(least, SMALLEST)
    most = []
    for number in range(len(Amounts())):
        bids = (c.best / c.demand[number] for c in asking if c.demand[number] > 0)
        most.append(max(least, scale * max(bids, default=0.0)))
    return PriceRange(least, Amounts(*most), most_ratio)
