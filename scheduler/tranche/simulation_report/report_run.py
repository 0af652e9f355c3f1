"""Input of a report."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tranche.simulation.analysis.summary import Summary
from tranche.simulation.engine.result import SimulationResult


@dataclass(frozen=True, slots=True)
class Means:
    """Means over the seeds of a comparison."""

    figures: Mapping[str, float]
    """Means by the names of `Summary.as_dict`."""
    bound_seconds: float | None
    """Mean lower bound on the average JCT, in seconds."""


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

    means: Means | None = None
    """Means that the page's table has in place of the figures of this run."""

    @property
    def figures(self) -> Mapping[str, float]:
        """Figures for the page's table, by the names of `Summary.as_dict`."""
        return self.summary.as_dict() if self.means is None else self.means.figures

    @property
    def shown_bound_seconds(self) -> float | None:
        """Lower bound for the page's table, in seconds, if there is one."""
        return self.bound_seconds if self.means is None else self.means.bound_seconds

    @property
    def over_bound(self) -> float | None:
        """Average JCT over the lower bound (at least 1) in the page's table, if there is one."""
        bound = self.shown_bound_seconds
        return None if bound is None or not bound > 0 else self.figures["average_jct_seconds"] / bound
