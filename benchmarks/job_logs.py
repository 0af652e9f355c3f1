"""The job logs of data/traces, for benchmarks and tests."""

from functools import cache
from pathlib import Path

from tranche.simulation.job_log import TraceRow, read_trace

ROOT = Path(__file__).resolve().parents[1]
TRACES = ROOT / "data/traces"
COMPRESSED = ("philly",)
"""Logs that are stored as ``.csv.gz``."""


def log_path(name: str) -> Path:
    """Return the file of a log.

    Args:
        name: The file name without its suffixes.
    """
    return TRACES / f"{name}.csv{'.gz' * (name in COMPRESSED)}"


def typed_path(name: str) -> str:
    """Return the file of a log relative to the repository, as commands on pages name it."""
    return str(log_path(name).relative_to(ROOT))


@cache
def log_rows(name: str) -> tuple[TraceRow, ...]:
    """Return all rows of a log."""
    return read_trace(log_path(name)).rows
