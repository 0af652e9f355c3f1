"""Line-by-line reader of job logs: only the rows are held in memory, never the file."""

import csv
import gzip
import lzma
import stat
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from io import BufferedIOBase, BufferedReader
from itertools import pairwise
from pathlib import Path
from sys import intern
from typing import Literal

from tranche.simulation.job_log.layout import Columns, find_columns
from tranche.simulation.job_log.row import MAX_JOBS, Trace, TraceError, TraceRow, parse_row, quote, sort_key

MAX_BYTES = 2 * 2**30
"""Largest accepted file: at 30 bytes a row it holds some 70 million jobs, far more than `MAX_JOBS`."""
MAX_LINE = 2**20
"""Maximum length of a line in bytes; no row of a log is longer."""
KEPT_PROBLEMS = 10_000
GZIP, XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
"""Magic bytes of compressed files."""
OnError = Literal["stop", "skip"]


def read_trace(path: Path, *, layout: str = "auto", on_error: OnError = "stop") -> Trace:
    """Read a job log: CSV with a header; lines that begin with ``#`` are comments.

    Args:
        path: A file in UTF-8 or a pipe, which may be compressed by gzip or xz.
        layout: One of `LAYOUTS`; ``auto`` chooses by the header.
        on_error: Whether a row that cannot be read ends the reading (``stop``), or is noted in `Trace.problems`
            (``skip``). A header that cannot be read always ends it.

    Raises:
        TraceError: one line that names file, line number and reason.
    """
    name = _shown(path)
    try:
        _check(path, name)
        with path.open("rb") as file:
            return read_rows(_lines(_unpacked(file), name), name, layout=layout, on_error=on_error)
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise TraceError(f"{name}: cannot be decompressed: {error}") from None
    except OSError as error:
        raise TraceError(f"{name}: {error.strerror or error}") from None


def read_rows(lines: Iterable[str | bytes], name: str, *, layout: str = "auto", on_error: OnError = "stop") -> Trace:
    """Read a job log from its lines; see `read_trace` for the arguments.

    Args:
        lines: Text, or UTF-8.
        name: Name of the log, for messages.
        layout: One of `LAYOUTS`.
        on_error: ``stop`` or ``skip``.

    Raises:
        TraceError: As for `read_trace`.
    """
    numbered = _content(lines)
    columns = _header(numbered, name, layout)
    rows: list[TraceRow] = []
    job_ids: set[str] = set()
    problems: list[str] = []
    bad_rows = 0
    for number, line in numbered:
        try:
            row = _row(line, columns, job_ids)
        except ValueError as error:
            problem = f"{name}, line {number}: {error}"
            if on_error == "stop":
                raise TraceError(problem) from None
            bad_rows += 1
            if bad_rows <= KEPT_PROBLEMS:
                problems.append(problem)
            continue
        if len(rows) == MAX_JOBS:
            raise TraceError(f"{name}, line {number}: more than {MAX_JOBS:,} jobs: cut the log, such as by head -n")
        rows.append(row)
    if not rows:
        example = f"; the first of {bad_rows:,}: {problems[0]}" if bad_rows else ""
        raise TraceError(f"{name}: no job can be read below the header{example}")
    if bad_rows > KEPT_PROBLEMS:
        problems.append(f"{name}: {bad_rows - KEPT_PROBLEMS:,} more rows were left out")
    if any(sort_key(row_before) > sort_key(row_after) for row_before, row_after in pairwise(rows)):
        rows.sort(key=sort_key)
    return Trace(tuple(rows), columns.layout, tuple(problems))


def _shown(path: Path) -> str:
    text = str(path)
    return text if text.isprintable() else ascii(text)


def _check(path: Path, name: str) -> None:
    """Check the file before reading it.

    Raises:
        OSError: The file cannot be opened.
        TraceError: The path is a directory, or the file is too large.
    """
    try:
        status = path.stat()
    except ValueError as error:  # a name with a NUL
        raise TraceError(f"{name}: {error}") from None
    if stat.S_ISDIR(status.st_mode):
        raise TraceError(f"{name}: is a directory: name a file in it")
    if status.st_size > MAX_BYTES:
        raise TraceError(_too_large(name, f"has {status.st_size / 2**30:.1f} GiB, "))


def _too_large(name: str, size: str = "") -> str:
    return f"{name}: {size}more than {MAX_BYTES / 2**30:g} GiB: cut it, such as by head -n 1000000 IN.csv > OUT.csv"


def _unpacked(file: BufferedReader) -> BufferedIOBase:
    """Return the content of a compressed file, or the file itself if it is not compressed."""
    begin = file.peek(len(XZ))
    if begin.startswith(GZIP):
        return gzip.GzipFile(fileobj=file)
    return lzma.LZMAFile(file) if begin.startswith(XZ) else file


def _lines(file: BufferedIOBase, name: str) -> Iterator[bytes]:
    """Yield lines of at most `MAX_LINE` bytes; the size of a pipe is not known beforehand."""
    size = number = 0
    while line := file.readline(MAX_LINE + 1):
        size, number = size + len(line), number + 1
        if len(line) > MAX_LINE:
            raise TraceError(f"{name}, line {number}: is longer than {MAX_LINE:,} bytes: this is not a job log")
        if size > MAX_BYTES:
            raise TraceError(_too_large(name))
        yield line


def _content(lines: Iterable[str | bytes]) -> Iterator[tuple[int, str | bytes]]:
    """Yield lines that are neither blank nor comments, with line numbers from 1."""
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if number == 1:
            text = text.removeprefix(BOM_UTF8) if isinstance(text, bytes) else text.removeprefix("\ufeff")
        if text and text[:1] not in (b"#", "#"):
            yield number, text


def _header(numbered: Iterator[tuple[int, str | bytes]], name: str, layout: str) -> Columns:
    number, line = next(numbered, (0, ""))
    if not number:
        raise TraceError(f"{name}: is empty: a header such as job_id,submit_time,num_gpu,duration is needed")
    try:
        return find_columns(_cells(line), layout)
    except ValueError as error:
        raise TraceError(f"{name}, line {number}: {error}") from None


def _row(line: str | bytes, columns: Columns, job_ids: set[str]) -> TraceRow:
    """Parse one row; raise ValueError with the problem."""
    cells = _cells(line)
    if len(cells) != columns.width:
        raise ValueError(f"has {len(cells)} cells, but the header has {columns.width}")
    tenant, model = columns.tenant, columns.model
    row = parse_row(
        cells[columns.job_id].strip(),
        cells[columns.submit],
        cells[columns.gpus],
        cells[columns.duration],
        "" if tenant is None else intern(cells[tenant].strip()),
        "" if model is None else intern(cells[model].strip()),
    )
    if row.job_id in job_ids:
        raise ValueError(f"job_id {quote(row.job_id)} appears twice")
    job_ids.add(row.job_id)
    return row


def _cells(line: str | bytes) -> list[str]:
    """Split one line into cells; lines are parsed singly, so that an open quotation mark cannot consume later rows."""
    try:
        text = line.decode() if isinstance(line, bytes) else line
    except UnicodeDecodeError:
        raise ValueError("is not text in UTF-8: unpack or convert the file first") from None
    if '"' not in text:
        return text.split(",")
    try:
        return next(csv.reader([text], strict=True), [])
    except csv.Error as error:
        raise ValueError(f"is not a valid CSV row: {error}") from None
