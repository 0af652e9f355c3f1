"""Input of a report."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tranche.simulation.analysis.summary import Summary
from tranche.simulation.engine.result import SimulationResult


@dataclass(frozen=True, slots=True)
class ReportRun:
    """Simulated run with its name in tables and legends."""

    label: str
    result: SimulationResult
    summary: Summary
    bound_seconds: float | None = None
    """Lower bound on the average JCT of the same jobs and cluster, in seconds, if it was computed."""

    ratios: Mapping[str, str] = field(default_factory=dict)
    """Ratios to a baseline as text, by the headings of their columns."""

    @property
    def over_bound(self) -> float | None:
        """Average JCT over the lower bound (at least 1), if there is one."""
        if self.bound_seconds is None or not self.bound_seconds > 0:
            return None
        return self.summary.average_jct_seconds / self.bound_seconds
