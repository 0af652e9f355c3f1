"""Simulator: an event heap that drives the production planner; it contains no scheduling policy."""

from tranche.simulation.engine.result import JobResult, SimulationResult
from tranche.simulation.engine.simulation import Simulation, simulate
from tranche.simulation.job_log import Trace, TraceError, TraceRow, read_rows, read_trace

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
