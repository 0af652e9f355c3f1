"""One job of a log as a value, and what its cells must say."""

from dataclasses import dataclass

MAX_JOBS = 5_000_000
"""Most jobs of one log: 1.3 GB of rows (measured: 0.25 GB a million)."""
MAX_GPUS = 1_000_000
"""Most GPUs of one job; a larger number is a mistake of units or columns."""
MAX_SECONDS = 1e11
"""Latest submission and longest duration: 3,000 years, so that a time in milliseconds since 1970 is noticed."""
MAX_ID = 253
"""Most characters of a job's id."""


class TraceError(ValueError):
    """A log cannot be read; the text is one line that names file and line number."""


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One job of a log."""

    job_id: str
    submit_seconds: float
    """Since the beginning of the log, or whatever the log counts from."""
    gpus: int
    """GPUs of the whole job."""
    duration_seconds: float
    """On all of its GPUs, without waiting."""
    tenant: str = ""
    """Virtual cluster or user that it counts for; empty if the log does not say."""
    model: str = ""
    """What it trained; empty if the log does not say."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A job log."""

    rows: tuple[TraceRow, ...]
    """By submission, then by id: numbers as numbers and before texts."""
    layout: str
    """One of `tranche.simulation.readers.LAYOUTS`, never ``auto``."""
    problems: tuple[str, ...]
    """Rows that were left out: one line each with file, line number and reason (past 10,000, only their number)."""


def parse_row(job_id: str, submit: str, gpus: str, duration: str, tenant: str = "", model: str = "") -> TraceRow:
    """Check the cells of one row.

    Raises:
        ValueError: naming the column, its content and what is allowed.
    """
    if not job_id or len(job_id) > MAX_ID or not job_id.isprintable():
        raise ValueError(f"job_id {quote(job_id)} must have 1 to {MAX_ID} printable characters")
    submit_seconds = _number("submit_time", submit)
    if not 0 <= submit_seconds <= MAX_SECONDS:
        raise ValueError(f"submit_time {quote(submit)} must be seconds from 0 to {MAX_SECONDS:g}")
    duration_seconds = _number("duration", duration)
    if not 0 < duration_seconds <= MAX_SECONDS:
        raise ValueError(f"duration {quote(duration)} must be seconds above 0, at most {MAX_SECONDS:g}")
    count = _number("num_gpu", gpus)
    if not (1 <= count <= MAX_GPUS and count.is_integer()):
        raise ValueError(f"num_gpu {quote(gpus)} must be a whole number from 1 to {MAX_GPUS:,}")
    return TraceRow(job_id, submit_seconds, int(count), duration_seconds, tenant, model)


def sort_key(row: TraceRow) -> tuple[float, bool, int, str]:
    """Order of a trace: submission, then ids; numeric ones by their value, before all others."""
    numeric = row.job_id.isascii() and row.job_id.isdigit()
    return (row.submit_seconds, not numeric, int(row.job_id) if numeric else 0, row.job_id)


def quote(text: str) -> str:
    """The text as it may stand in a message of one line: escaped, and cut when it is long."""
    return ascii(text if len(text) <= 40 else text[:40] + "...")


def _number(column: str, text: str) -> float:
    try:
        if "_" in text or not text.isascii():  # Python would read 1_000 and the digits of every script
            raise ValueError
        return float(text)
    except ValueError:
        raise ValueError(f"{column} {quote(text)} is not a number") from None
