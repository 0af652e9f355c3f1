"""Job of a log as a value, and the rules for its cells."""

from dataclasses import dataclass

MAX_JOBS = 5_000_000
"""Maximum number of jobs of one log: 1.3 GB of rows (measured: 0.25 GB a million)."""
MAX_GPUS = 1_000_000
"""Maximum number of GPUs of one job; a larger number is an error of units or columns."""
MAX_SECONDS = 1e11
"""Latest submission and longest duration: 3,000 years, so that a time in milliseconds since 1970 is noticed."""
MIN_SECONDS = 1e-6
"""Shortest duration; a shorter one is an error of units, and rates of work would overflow."""
MAX_ID = 253
"""Maximum length of a job's id, in characters."""


class TraceError(ValueError):
    """Error of a log that cannot be read; the text is one line that names file and line number."""


@dataclass(frozen=True, slots=True)
class TraceRow:
    """Job of a log."""

    job_id: str
    submit_seconds: float
    """Submission, in seconds since the beginning of the log, or since the log's own epoch."""
    gpus: int
    """GPUs of the whole job."""
    duration_seconds: float
    """Duration on all of its GPUs, without waiting."""
    tenant: str = ""
    """Virtual cluster or user that the job counts for; empty if the log has none."""
    model: str = ""
    """Model that the job trained; empty if the log has none."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Contents of a job log."""

    rows: tuple[TraceRow, ...]
    """Rows by submission, then by id: numbers in numeric order, before texts."""
    layout: str
    """Layout of the log, one of `tranche.simulation.job_log.LAYOUTS`, never ``auto``."""
    problems: tuple[str, ...]
    """Rows that were skipped: one line each with file, line number and reason (past 10,000, only their number)."""


def parse_row(job_id: str, submit: str, gpus: str, duration: str, tenant: str = "", model: str = "") -> TraceRow:
    """Check the cells of one row.

    Raises:
        ValueError: A cell is invalid; the text names the column, its content and the allowed values.
    """
    if not job_id or len(job_id) > MAX_ID or not job_id.isprintable():
        raise ValueError(f"job_id {quote(job_id)} must have 1 to {MAX_ID} printable characters")
    submit_seconds = _number("submit_time", submit)
    if not 0 <= submit_seconds <= MAX_SECONDS:
        raise ValueError(f"submit_time {quote(submit)} must be seconds from 0 to {MAX_SECONDS:g}")
    duration_seconds = _number("duration", duration)
    if not 0 < duration_seconds <= MAX_SECONDS:
        raise ValueError(f"duration {quote(duration)} must be seconds above 0, at most {MAX_SECONDS:g}")
    if duration_seconds < MIN_SECONDS:
        raise ValueError(f"duration {quote(duration)} is shorter than a microsecond: durations are in seconds")
    count = _number("num_gpu", gpus)
    if not (1 <= count <= MAX_GPUS and count.is_integer()):
        raise ValueError(f"num_gpu {quote(gpus)} must be a whole number from 1 to {MAX_GPUS:,}")
    return TraceRow(job_id, submit_seconds, int(count), duration_seconds, tenant, model)


def sort_key(row: TraceRow) -> tuple[float, bool, int, str]:
    """Return the sort key of a trace: submission, then ids; numeric ones by their value, before all others."""
    numeric = row.job_id.isascii() and row.job_id.isdigit()
    return (row.submit_seconds, not numeric, int(row.job_id) if numeric else 0, row.job_id)


def quote(text: str) -> str:
    """Return the text for a message of one line: escaped, and shortened when it is long."""
    return ascii(text if len(text) <= 40 else text[:40] + "...")


def _number(column: str, text: str) -> float:
    try:
        if "_" in text or not text.isascii():  # Python would accept 1_000 and the digits of every script
            raise ValueError
        return float(text)
    except ValueError:
        raise ValueError(f"{column} {quote(text)} is not a number") from None
