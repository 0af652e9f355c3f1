"""Record of a job's pods that could not be placed, and what it permits the job to do to others.

Ours [I]. The planner does not know everything that kube-scheduler and admission check. A job preempts others for the
promise that its pod then runs; when that promise was broken, or was never proven for a pod with constraints that the
planner does not plan with, the job preempts for one window at a time, with a pause that doubles.
"""

from dataclasses import dataclass, field
from enum import IntEnum


class PreemptionScope(IntEnum):
    """Number of windows for which a job may preempt other jobs at a time."""

    NONE = 0
    """It only uses free capacity."""
    ONE = 1
    """One window (of a gang: all of them), whose pod must be placed before the next."""
    ALL = 2
    """As many as its policy gives it."""


@dataclass(slots=True, eq=False)
class PlacementRecord:
    """Failed attempts of a job to have a pod placed since kube-scheduler last placed one."""

    placed: bool = False
    """Whether kube-scheduler has placed a pod of this specification, and none has failed to be placed since."""
    failures: int = 0
    """Number of pods that found no place or that the API server rejected, since one was placed."""
    nodes: dict[str, None] = field(default_factory=dict)
    """Nodes on which these pods found no place."""
    message: str = ""
    """Last message of kube-scheduler or the API server."""
    failed_at: float = 0.0
    """Time of the last failure, in seconds on the planner's clock."""
    paused_until: float = 0.0
    """Time before which the job preempts no other; 0: it is not paused."""

    @property
    def paused(self) -> bool:
        """Whether the job preempts no other for now; a timer ends the pause."""
        return self.paused_until > 0
