"""Tables of runs for the terminal, as JSON and as CSV."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from rich.table import Table
from rich.text import Text

from tranche.simulation.analysis.summary import Summary
from tranche.simulation.engine.result import SimulationResult
from tranche.simulation_report.formatting import column_unit, significant
from tranche.simulation_report.report_run import ReportRun

Figures = Mapping[str, float]
"""Figures of a row, by the names of `Summary.as_dict`."""
COLUMNS: tuple[tuple[str, str], ...] = (
    ("average_jct_seconds", "average"),
    ("median_jct_seconds", "median"),
    ("p95_jct_seconds", "p95"),
    ("p99_jct_seconds", "p99"),
    ("makespan_seconds", "makespan"),
    ("average_queueing_seconds", "queueing"),
    ("preemptions", "preempted"),
    ("lost_gpu_seconds", "lost GPU h"),
    ("cloud_gpu_seconds", "cloud GPU h"),
    ("copied_bytes", "copied GB"),
    ("in_vain_bytes", "unused GB"),
    ("communication_seconds", "communication"),
    ("utilisation", "used"),
    ("worst_slowdown", "worst slowdown"),
    ("total_utility", "utility"),
    ("jobs", "jobs"),
)
"""Keys of a summary that tables show, with their headings; times have one unit for each column."""
BOUND = ("lower_bound_seconds", "lower bound")
"""Key and heading of the average JCT below which no policy can be; not part of a summary."""
IF_ANY = frozenset({"cloud_gpu_seconds", "copied_bytes", "in_vain_bytes", "communication_seconds", "total_utility"})
"""Columns that tables omit if all runs have 0 there: without a cloud, data that move, network model, or utilities."""

JOB_COLUMNS = (
    "job",
    "tenant",
    "state",
    "gpus",
    "submitted_seconds",
    "started_seconds",
    "completed_seconds",
    "jct_seconds",
    "ideal_seconds",
    "slowdown",
    "waiting_seconds",
    "preemptions",
    "starts",
    "lost_gpu_seconds",
    "attained_gpu_seconds",
    "cloud_gpu_seconds",
    "copied_bytes",
    "in_vain_bytes",
    "reason",
)
"""Header of the per-job results."""

CHUNK_COLUMNS = (
    "job",
    "chunk",
    "state",
    "site",
    "node",
    "slots",
    "planned_start_seconds",
    "planned_end_seconds",
    "q_seconds",
    "start_seconds",
    "end_seconds",
    "outcome",
)
"""Header of the windows of chunks."""


@dataclass(frozen=True, slots=True)
class Column:
    """Column of figures with one unit."""

    key: str
    """Key of the figures in a summary."""
    heading: str
    """Heading, with the unit of times."""
    unit_seconds: float = 1.0
    """Length of the unit of times, in seconds."""

    def shown(self, value: float | None) -> str:
        """Format one figure; a dash for None and for what is undefined."""
        if value is None:
            return "–"
        if _is_time(self.key):
            return significant(value / self.unit_seconds)
        if self.key.endswith("gpu_seconds"):
            return significant(value / 3600)
        if self.key.endswith("_bytes"):
            return significant(value / 1e9)
        if self.key == "utilisation":
            return f"{100 * value:.1f} %"
        return f"{value:,}" if isinstance(value, int) else significant(value)


def format_table(
    rows: Sequence[tuple[str, Summary]], title: str = "Simulated job completion time (JCT) and cost"
) -> Table:
    """Return the runs as a table for the terminal, one row a run; labels are shown unchanged."""
    table = Table(title=title, title_justify="left", box=None, header_style="bold")
    table.add_column("", justify="left")
    lacking = any(summary.unfinished for _, summary in rows)
    columns = columns_of([summary.as_dict() for _, summary in rows])
    for column in columns:
        table.add_column(column.heading, justify="right")
    if lacking:
        table.add_column("unfinished", justify="right", style="red")
    for label, summary in rows:
        cells = shown_cells(summary.as_dict(), columns)
        table.add_row(Text(label), *cells, *([f"{summary.unfinished:,}"] if lacking else []))
    return table


def columns_of(figures: Sequence[Figures], *, bounds: Sequence[float | None] = ()) -> list[Column]:
    """Return the columns of a table of these figures, a mapping a row.

    Args:
        figures: Figures of the rows.
        bounds: Lower bounds of the rows, in seconds; without any, the table has no column for them.
    """
    columns = []
    for key, heading in COLUMNS:
        if key not in IF_ANY or any(row[key] > 0 for row in figures):
            columns.append(_column(key, heading, [row[key] for row in figures]))
    known_bounds = [bound for bound in bounds if bound is not None]
    return [*columns, _column(*BOUND, known_bounds)] if known_bounds else columns


def shown_cells(figures: Figures, columns: Sequence[Column], bound: float | None = None) -> list[str]:
    """Return one row of such a table."""
    return [column.shown(bound if column.key == BOUND[0] else figures[column.key]) for column in columns]


def _column(key: str, heading: str, values: Sequence[float]) -> Column:
    if not _is_time(key):
        return Column(key, heading)
    unit_seconds, unit = column_unit([value for value in values if isfinite(value)])
    return Column(key, f"{heading} ({unit})", unit_seconds)


def _is_time(key: str) -> bool:
    return key.endswith("_seconds") and not key.endswith("gpu_seconds")


def finite(value: object) -> object:
    """Return the value with null in place of every number that JSON cannot represent (NaN, infinity)."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def format_csv(rows: Sequence[tuple[str, Summary]]) -> str:
    """Format the runs as CSV with all keys of the summary, full precision; undefined figures are empty."""
    lines: list[Iterable[object]] = []
    for label, summary in rows:
        values = summary.as_dict()
        if not lines:
            lines.append(["run", *values])
        lines.append([label, *(_cell(value) for value in values.values())])
    return csv_text(lines)


def job_rows(result: SimulationResult) -> Iterator[Sequence[object]]:
    """Yield header and one row a job: completed ones in order of completion, then the others with the reason."""
    yield JOB_COLUMNS
    for job in result.jobs:
        yield (
            job.key,
            job.tenant,
            "completed",
            job.gpus,
            job.submitted,
            job.started,
            job.completed,
            job.jct_seconds,
            job.ideal_seconds,
            job.slowdown,
            job.waiting_seconds,
            job.preemptions,
            job.starts,
            job.lost_gpu_seconds,
            job.attained_gpu_seconds,
            job.cloud_gpu_seconds,
            job.use.copied_bytes,
            job.use.in_vain_bytes,
            "",
        )
    for key, reason in result.unfinished.items():
        yield (key, "", "unfinished", *[""] * (len(JOB_COLUMNS) - 4), reason)


def chunk_rows(result: SimulationResult) -> Iterator[Sequence[object]]:
    """Yield header and one row a window in which a chunk trained; a chunk that never trained has one row without times.

    The planned times and Q are those at dispatch, empty under policies that bind no chunk at arrival. Several slots
    have spaces between them.
    """
    yield CHUNK_COLUMNS
    for key, chunks in result.chunks.items():
        for chunk in chunks:
            head = (key, chunk.chunk, str(chunk.state).lower())
            planned = tuple("" if at is None else at for at in (chunk.planned_start, chunk.planned_end, chunk.cost))
            if not chunk.executed:
                yield (*head, chunk.site, chunk.node or "", _slots(chunk.slots), *planned, "", "", "")
            for run in chunk.executed:
                place = (run.site, run.node or "", _slots(run.slots))
                yield (*head, *place, *planned, run.start, run.end, run.outcome)


def _slots(slots: Sequence[int]) -> str:
    return " ".join(map(str, slots))


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Format rows as CSV text with plain line ends."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def runs_json(title: str, runs: Sequence[ReportRun], notes: Sequence[str]) -> str:
    """Format all runs of a report as JSON: ``{"title", "notes", "runs": [{"run", …summary, "bound_seconds"}, …]}``."""
    listed = [{"run": run.label, **run.summary.as_dict(), "bound_seconds": run.bound_seconds} for run in runs]
    return json.dumps(finite({"title": title, "notes": list(notes), "runs": listed}), indent=2, ensure_ascii=False)


def _cell(value: float) -> object:
    return value if isfinite(value) else ""
