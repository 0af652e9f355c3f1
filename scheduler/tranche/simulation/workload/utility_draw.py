"""Utilities drawn for jobs of logs and presets, which name none.

Source: the distributions are those of OASiS (INFOCOM 2018, arXiv 1801.00936) [P], in slots: γ1 ~ U[1, 100] and
γ3 ~ U[1, 15]; γ2 is 0 for 10 % of the jobs, U[0.01, 1] for 55 % and U[4, 6] for 35 %. [I] a slot is one hour, or, since
the lengths of logged jobs span seconds to days, the shortest duration of the job.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Literal

from tranche.model import Job, Utility
from tranche.policies.seeded_choice import uniform
from tranche.simulation.engine.accounting import ideal_seconds

UtilityDraw = Literal["none", "hours", "relative"]
"""`none`: jobs name no utility. `hours`: slots are hours. `relative`: slots are shortest durations of the job."""
SLOT_SECONDS = 3600.0
INSENSITIVE, SENSITIVE = 0.10, 0.65
"""Shares of the jobs up to which γ2 is 0, and up to which it is at most 1; it is 4 to 6 beyond."""


def with_utilities(jobs: Iterable[Job], draw: UtilityDraw, seed: int) -> list[Job]:
    """Return the jobs, those without a utility with a drawn one; each draw depends on seed and job alone."""
    return [job if draw == "none" or job.utility is not None else _with_utility(job, draw, seed) for job in jobs]


def _with_utility(job: Job, draw: UtilityDraw, seed: int) -> Job:
    slot = SLOT_SECONDS if draw == "hours" else max(1e-9, ideal_seconds(job, 1.0))
    return replace(job, utility=drawn_utility(slot, lambda purpose: uniform(seed, job.uid, "utility", purpose)))


def drawn_utility(slot: float, number: Callable[[str], float]) -> Utility:
    """Return a drawn utility.

    Args:
        slot: Length of a slot, in the unit of the durations.
        number: Returns the random number for a purpose, 0 … 1.
    """

    def between(low: float, high: float, purpose: str) -> float:
        return low + (high - low) * number(purpose)

    kind = number("kind")
    if kind < INSENSITIVE:
        decay = 0.0
    else:
        decay = between(0.01, 1.0, "decay") if kind < SENSITIVE else between(4.0, 6.0, "decay")
    return Utility(between(1.0, 100.0, "priority"), decay / slot, between(1.0, 15.0, "target") * slot)
