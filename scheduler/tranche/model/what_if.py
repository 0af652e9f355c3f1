"""Result of a what-if: the plan of a job that is not submitted. Times are in seconds of the planner's clock."""

from dataclasses import dataclass

from tranche.model.plan import Interval


@dataclass(frozen=True, slots=True)
class Delay:
    """Job that would complete later."""

    job: str
    """Key of the job."""
    before: float
    """Planned completion without the new job."""
    after: float
    """Planned completion with it."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Plan of a job that is not submitted, and its effect on others."""

    start: float | None
    """Planned start; None if the job does not start within the forecast."""
    completion: float | None
    """Planned completion; None if the job does not complete within the forecast."""
    site: str
    """Site of the first worker; "" if unknown."""
    behind: str
    """Key of the job that frees the capacity for the first worker; "" if it starts at once, or if unknown."""
    explanation: str
    """Activity of the job, or the reason why it would wait, right after its submission, in the conditional."""
    workers: int
    """Workers that would start at once."""
    delays: tuple[Delay, ...]
    """Jobs that would complete later, the longest delay first."""
    cut_short: bool
    """Whether the forecast ended before all jobs did."""
    completion_interval: Interval | None = None
