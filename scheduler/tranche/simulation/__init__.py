"""The simulator: an event heap that drives the production planner; it owns no policy."""

from tranche.simulation.engines import JobResult, Simulation, SimulationResult, simulate
from tranche.simulation.traces import TraceRow, read_trace

__all__ = ["JobResult", "Simulation", "SimulationResult", "TraceRow", "read_trace", "simulate"]
