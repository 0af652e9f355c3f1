"""Writer of a report's files."""

import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile

from tranche.simulation_report.errors import ReportError
from tranche.simulation_report.html_page import Picture, page
from tranche.simulation_report.report_run import ReportRun
from tranche.simulation_report.site_table import site_rows
from tranche.simulation_report.table import chunk_rows, csv_text, format_csv, job_rows, runs_json

PAGE = "report.html"
_OWN = (".html", ".json", ".csv", ".png", ".svg", ".pdf")


def write_report(
    directory: Path,
    title: str,
    runs: Sequence[ReportRun],
    notes: Sequence[str],
    texts: Mapping[str, str] = {},
    formats: Sequence[str] = (),
) -> list[Path]:
    """Write per-job results, summaries, pictures and one page that shows all.

    ``report.html`` (self-contained), ``summary.json``, ``summary.csv``, ``jobs-<run>.csv``; if the runs have the data
    for ``sites-<run>.csv``, ``chunks-<run>.csv`` and PNG pictures: ``jct-cdf.png``, ``jct-by-size.png``, ``load.png``,
    ``gantt-<run>.png``. The same input gives the same bytes. Files of these names are replaced, others in the folder
    are left alone.

    Args:
        directory: Folder, created with its parents if it does not exist.
        title: Title of the page.
        runs: Runs in the order of tables and legends, at least one.
        notes: Paragraphs for the page, such as the command line that repeats the figures.
        texts: Further files by name.
        formats: Formats in which the pictures are written besides PNG: svg, pdf.

    Returns:
        Paths of the files, the page first.

    Raises:
        ReportError: There are no runs, matplotlib is not installed, or the folder cannot be written.
    """
    if not runs:
        raise ReportError("there is no run to report on")
    check_report(directory)
    slugs = slugs_of([run.label for run in runs])
    pictures = _draw(runs, slugs, formats)
    files: dict[str, str | bytes] = {
        **texts,
        "summary.json": runs_json(title, runs, notes) + "\n",
        "summary.csv": format_csv([(run.label, run.summary) for run in runs]),
        **{f"jobs-{slug}.csv": csv_text(job_rows(run.result)) for run, slug in zip(runs, slugs, strict=True)},
        **{
            f"sites-{slug}.csv": csv_text(site_rows(run.result.sites))
            for run, slug in zip(runs, slugs, strict=True)
            if run.result.sites
        },
        **{
            f"chunks-{s}.csv": csv_text(chunk_rows(r.result))
            for r, s in zip(runs, slugs, strict=True)
            if r.result.chunks
        },
        **{picture.name: picture.light for picture in pictures},
        **{name: content for picture in pictures for name, content in picture.others.items()},
    }
    files = {PAGE: page(title, runs, notes, pictures, list(files)), **files}
    try:
        for name, content in files.items():
            data = content.encode("utf-8", "replace") if isinstance(content, str) else content
            (directory / name).write_bytes(data)
    except OSError as error:
        raise _cannot(directory, error) from None
    return [directory / name for name in files]


def check_report(directory: Path) -> None:
    """Create the folder and check that a report can be written to it; call this before long runs.

    Raises:
        ReportError: Matplotlib is not installed (then no folder is created), or the folder is not writable.
    """
    if find_spec("matplotlib") is None:
        raise ReportError('pictures need matplotlib: pip install "tranche[report]"')
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=directory):
            pass
    except FileExistsError:
        raise ReportError(f"{directory} is a file; name a folder for the report") from None
    except NotADirectoryError:
        raise ReportError(f"{directory}: a part of this path is a file; name another folder for the report") from None
    except OSError as error:
        raise _cannot(directory, error) from None


def _cannot(directory: Path, error: OSError) -> ReportError:
    where = directory if error.filename is None or not str(error.filename).endswith(_OWN) else error.filename
    return ReportError(f"{where} cannot be written: {error.strerror or error}")


def slugs_of(labels: Sequence[str]) -> list[str]:
    """Return distinct names that every file system accepts, one a label."""
    slugs: list[str] = []
    for label in labels:
        base = re.sub(r"[^a-z0-9.]+", "-", label.lower()).strip("-.")[:60] or "run"
        slug, number = base, 2
        while slug in slugs:
            slug, number = f"{base}-{number}", number + 1
        slugs.append(slug)
    return slugs


def _draw(runs: Sequence[ReportRun], slugs: Sequence[str], formats: Sequence[str]) -> list[Picture]:
    from tranche.simulation_report.figures import (
        pictures,  # imported only when needed: matplotlib is slow to import, and optional
    )

    return list(pictures(runs, slugs, formats))
