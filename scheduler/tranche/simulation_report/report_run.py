"""The runs that a report covers."""

from dataclasses import dataclass

from tranche.simulation.analysis.summary import Summary
from tranche.simulation.engine.result import SimulationResult


@dataclass(frozen=True, slots=True)
class ReportRun:
    """One simulated run under the name that tables and legends give it."""

    label: str
    result: SimulationResult
    summary: Summary
    bound_seconds: float | None = None
    """Lower bound on the average JCT of the same jobs and cluster, in seconds, if one was worked out."""

    @property
    def over_bound(self) -> float | None:
        """Average JCT over the lower bound (at least 1), if there is one."""
        if self.bound_seconds is None or not self.bound_seconds > 0:
            return None
        return self.summary.average_jct_seconds / self.bound_seconds
