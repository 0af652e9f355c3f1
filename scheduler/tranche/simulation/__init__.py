"""The simulator: an event heap that drives the production planner; it owns no policy."""

from tranche.simulation.engines import Simulation, simulate
from tranche.simulation.readers import Trace, TraceError, TraceRow, read_rows, read_trace
from tranche.simulation.results import JobResult, SimulationResult

__all__ = [
    "JobResult",
    "Simulation",
    "SimulationResult",
    "Trace",
    "TraceError",
    "TraceRow",
    "read_rows",
    "read_trace",
    "simulate",
]
