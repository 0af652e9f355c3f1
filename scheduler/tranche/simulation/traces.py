"""Readers of job logs: ``job_id,submit_time,num_gpu,duration``, times in seconds."""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


class TraceError(ValueError):
    """A trace cannot be read; the text names the line."""


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One job of a log."""

    job_id: str
    submit_seconds: float
    gpus: int
    duration_seconds: float


def read_trace(lines: Iterable[str]) -> Iterator[TraceRow]:
    """Read a job log; lines that begin with ``#`` are comments.

    Raises:
        TraceError: naming line and column of what cannot be read.
    """
    kept: list[int] = []

    def content() -> Iterator[str]:
        for number, line in enumerate(lines, 1):
            if line.strip() and not line.startswith("#"):
                kept.append(number)
                yield line

    reader = csv.DictReader(content())
    wanted = {"job_id", "submit_time", "num_gpu", "duration"}
    missing = wanted - set(reader.fieldnames or ())
    if missing:
        raise TraceError(f"the header lacks {', '.join(sorted(missing))}")
    for row in reader:
        try:
            parsed = TraceRow(row["job_id"], float(row["submit_time"]), int(row["num_gpu"]), float(row["duration"]))
        except (TypeError, ValueError) as error:
            raise TraceError(f"line {kept[-1]}: {error}") from None
        if not (parsed.gpus > 0 and 0 < parsed.duration_seconds < float("inf") and parsed.submit_seconds >= 0):
            raise TraceError(f"line {kept[-1]}: GPUs and duration must be positive, the submission not negative")
        yield parsed
