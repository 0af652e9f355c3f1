"""Readers of job logs: columns, rows, and one clear line about what cannot be read."""

from tranche.simulation.job_log.layout import LAYOUTS
from tranche.simulation.job_log.reader import MAX_BYTES, read_rows, read_trace
from tranche.simulation.job_log.row import MAX_JOBS, Trace, TraceError, TraceRow

__all__ = ["LAYOUTS", "MAX_BYTES", "MAX_JOBS", "Trace", "TraceError", "TraceRow", "read_rows", "read_trace"]
