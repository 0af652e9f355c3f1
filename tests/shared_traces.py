"""The job logs of shared/traces, which are not part of this repository."""

import os
from functools import cache
from pathlib import Path

import pytest

from tranche.simulation.job_log import TraceRow, read_trace

TRACES = Path(os.environ.get("TRANCHE_TRACES", Path(__file__).resolve().parents[2] / "shared/traces"))
needs_traces = pytest.mark.skipif(
    not TRACES.is_dir(),
    reason=f"no job logs in {TRACES}: set TRANCHE_TRACES to the folder that has them",
)
"""Skips on a machine without the logs; tests/property/test_queue_policies.py shows exactness without them."""


@cache
def shared_rows(name: str) -> tuple[TraceRow, ...]:
    """All rows of a log, by the name of its file without the suffix."""
    return read_trace(TRACES / f"{name}.csv").rows
