"""Output of the simulator commands: results on stdout, progress and notes on stderr."""

import json
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click
from click.core import ParameterSource
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from tranche.cli.errors import InputError, output_errors
from tranche.cli.option_types import several

OnProgress = Callable[[int, int], None]
NAMED = 10
"""Maximum number of skipped rows or jobs that are named; the others are only counted."""
WIDTH = 200
"""Width of tables that are not printed to a terminal, in characters."""


if TYPE_CHECKING:
    from tranche.simulation_report import ReportRun

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Output:
    """Output options of a command."""

    form: Literal["table", "json", "csv"]
    out: Path | None
    """Directory of the report."""
    quiet: bool
    command: str
    """Command line that repeats the run."""
    figures: tuple[str, ...] = ()
    """Formats of the report's figures besides PNG."""


def output_options(command: Command) -> Command:
    """Add the output options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS = (
    click.option("--strict-fit", is_flag=True, help="Stop with exit status 2 if a job can never run."),
    click.option("--format", "form", default="table", show_default=True, type=click.Choice(["table", "json", "csv"])),
    click.option(
        "--out", type=click.Path(path_type=Path), metavar="DIR", help="Directory for results, figures and an HTML page."
    ),
    click.option(
        "--figures",
        callback=several(click.Choice(["svg", "pdf"])),
        metavar="FORMATS",
        help="Formats of the figures in DIR besides PNG, for papers: svg,pdf.",
    ),
    click.option("--quiet", is_flag=True, help="No progress bar, no notes."),
)
IRRELEVANT = frozenset({"form", "quiet", "processes", "dask"})
"""Options that affect neither results nor files."""


def output_of(context: click.Context, **implied: float | None) -> Output:
    """Read the options of `output_options`.

    Args:
        context: Context of the command.
        implied: Values of options that were not given but belong in the command that repeats the run.

    Raises:
        InputError: the directory is not writable, or figures are requested without one.
    """
    values = context.params
    figures = values.get("figures") or ()  # replay has no figures
    if figures and values["out"] is None:
        raise InputError("--figures needs --out DIR")
    _prepare(values["out"])
    words = [f"--{name} {_text(value)}" for name, value in implied.items() if value is not None and not values[name]]
    return Output(values["form"], values["out"], values["quiet"], " ".join([command_line(context), *words]), figures)


def command_line(context: click.Context) -> str:
    """Return the command line that repeats the run, without options that affect neither results nor files."""
    words = ["tranche", context.info_name or ""]
    for parameter in context.command.params:
        name = parameter.name or ""
        if name not in IRRELEVANT and context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            words += _words(parameter, context.params[name])
    return shlex.join(words)


def _words(parameter: click.Parameter, value: Any) -> list[str]:
    if isinstance(parameter, click.Argument):
        return [] if value is None else [str(value)]
    if isinstance(value, bool):
        return [(parameter.opts if value else parameter.secondary_opts)[0]]
    values = [_text(item) for item in (value if isinstance(value, tuple) else (value,))]
    if getattr(parameter, "multiple", False):
        return [word for item in values for word in (parameter.opts[0], item)]
    return [parameter.opts[0], ",".join(values)]


def _text(value: Any) -> str:
    """Format a value: whole numbers without a decimal point, others with all digits."""
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)


@contextmanager
def progress_bar(unit: str, *, quiet: bool) -> Iterator[OnProgress | None]:
    """Show a progress bar with the expected end on stderr; yields None if stderr is not a terminal."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("ETA"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(unit, total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield show


def print_table(table: Table, caption: str) -> None:
    """Print a table to stdout; transposed if the terminal is too narrow. Values are never truncated."""
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else WIDTH)
    if full_width(console, table) > console.width:
        table = transposed(table)
    with output_errors():
        console.print(table, width=max(console.width, full_width(console, table)), soft_wrap=True, crop=False)
        console.print(caption, soft_wrap=True, markup=False, highlight=False)


def full_width(console: Console, table: Table) -> int:
    """Return the width of the table without wrapping, in characters."""
    return Measurement.get(console, console.options.update(width=10_000), table).maximum


def transposed(table: Table) -> Table:
    """Return the transposed table: headings at the left, one column per row."""
    result = Table(title=table.title, title_justify=table.title_justify, box=None, header_style="bold")
    rows = [[column.header, *column.cells] for column in table.columns]
    for index, heading in enumerate(rows[0]):
        result.add_column(heading, justify="right" if index else "left")
    for row in rows[1:]:
        result.add_row(*row)
    return result


def print_json(value: Mapping[str, Any]) -> None:
    """Print a value as JSON to stdout."""
    with output_errors():
        click.echo(json_of(value))


def json_of(value: Mapping[str, Any]) -> str:
    """Encode as JSON, with null for NaN and infinity."""
    from tranche.simulation_report.table import finite

    return json.dumps(finite(value), indent=2, ensure_ascii=False)


def print_csv(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows as CSV to stdout, with a header; list items are joined by spaces, undefined numbers are empty."""
    with output_errors():
        click.echo(csv_of(rows), nl=False)


def csv_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """Encode rows as CSV, with a header of all their keys."""
    from tranche.simulation_report.table import csv_text, finite

    keys = list(dict.fromkeys(key for row in rows for key in row))
    lines: list[Iterable[object]] = [keys]
    lines += [[_cell(finite(row.get(key))) for key in keys] for row in rows]
    return csv_text(lines)


def _cell(value: object) -> object:
    if value is None:
        return ""
    return " ".join(map(str, value)) if isinstance(value, list | dict) else value


def print_notes(notes: Iterable[str], *, quiet: bool) -> None:
    """Print notes to stderr, one per line."""
    if not quiet:
        for note in notes:
            click.echo(note, err=True)


def named(items: Sequence[str], *, separator: str = ", ") -> str:
    """Join the first items and the number of the others."""
    unnamed = len(items) - len(items[:NAMED])
    text = separator.join(items[:NAMED])
    return f"{text}{separator}and {unnamed:,} more" if unnamed > 0 else text


def counted(count: int, noun: str) -> str:
    """Return the number with its noun, in the plural if it is not one."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def never_ran(reasons: Iterable[tuple[str, str]], count: int) -> str:
    """Describe jobs that never ran, grouped by reason.

    Args:
        reasons: Names and reasons of the first jobs.
        count: Number of all such jobs.
    """
    by_reason: dict[str, list[str]] = {}
    listed = list(reasons)[:NAMED]
    for name, reason in listed:
        by_reason.setdefault(reason, []).append(name)
    parts = [f"{', '.join(names)} ({reason})" for reason, names in by_reason.items()]
    if count > len(listed):
        parts.append(f"and {count - len(listed):,} more")
    return f"{counted(count, 'job')} never ran: {'; '.join(parts)}"


def write(
    output: Output, title: str, runs: "Sequence[ReportRun]", notes: Sequence[str], texts: Mapping[str, str] = {}
) -> None:
    """Write the report of the runs, and further files by name, to the output directory.

    Raises:
        click.ClickException: the report cannot be written; the result was already printed.
    """
    from tranche.simulation_report import ReportError, write_report

    directory = output.out or Path()
    try:
        if runs:
            paragraphs = [*notes, f"Repeat with: {output.command}"]
            paths = write_report(directory, title, runs, paragraphs, texts, output.figures)
        else:
            paths = [directory / name for name in texts]
            for path, text in zip(paths, texts.values(), strict=True):
                path.write_text(text, encoding="utf-8")
    except (ReportError, OSError) as error:
        raise click.ClickException(str(error)) from None
    print_notes([f"wrote {path}" for path in paths], quiet=output.quiet)


def _prepare(directory: Path | None) -> None:
    """Create the directory of a report before the simulations start.

    Raises:
        InputError: it is not a writable directory.
    """
    if directory is None:
        return
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / ".tranche-write-test"
        probe.touch()
        probe.unlink()
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"--out {directory}: not a directory") from None
    except OSError as error:
        raise InputError(f"--out {directory}: {error.strerror or error}") from None
