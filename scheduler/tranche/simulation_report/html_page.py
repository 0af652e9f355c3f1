"""Self-contained HTML page: table, pictures and notes in a single file without external content."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from urllib.parse import quote

from tranche.simulation_report.formatting import significant
from tranche.simulation_report.report_run import ReportRun
from tranche.simulation_report.site_table import SITE_HEADINGS, SITE_KEY, site_cells
from tranche.simulation_report.table import Column, columns_of, shown_cells

MAX_REASONS = 50
"""Maximum number of unfinished jobs of a run on the page; the CSV has all of them."""

_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1f24; --muted: #59636e; --line: #dfe3e8; --soft: #f5f7f9; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #161b22; --ink: #e6edf3; --muted: #9aa4af; --line: #2d343d; --soft: #1e252e; }
}
body { background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; margin: 0 auto;
  max-width: 80rem; padding: 1rem; }
h1 { font-size: 1.5rem; line-height: 1.25; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .85rem; }
th, td { border-bottom: 1px solid var(--line); padding: .35rem .45rem; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { background: var(--paper); left: 0; max-width: 40vw; min-width: 7rem; position: sticky;
  overflow-wrap: anywhere; text-align: left; white-space: normal; }
thead th { color: var(--muted); font-weight: 600; vertical-align: bottom; white-space: normal; }
figure { margin: 1.5rem 0; } figcaption { color: var(--muted); font-size: .9rem; }
img { display: block; height: auto; min-width: 36rem; width: 100%; }
li { overflow-wrap: anywhere; } code, .notes { overflow-wrap: anywhere; }
.notes { background: var(--soft); border-radius: .4rem; padding: .6rem 1rem .6rem 2rem; }
@media print { body { max-width: none; } figure { break-inside: avoid; } }
"""

_CHUNKS_KEY = (
    "<p>In <code>chunks-….csv</code> a row is a window in which a chunk trained, in seconds of the run: its site, node "
    "and slots, when it started and ended, and how. The planned times and Q are those at dispatch, under policies that "
    "bind chunks to slots then. A chunk that never trained has one row without times.</p>"
)


@dataclass(frozen=True, slots=True)
class Picture:
    """Picture for light and dark mode."""

    name: str
    """Name of its file."""
    caption: str
    light: bytes
    """Contents as PNG."""
    dark: bytes
    others: Mapping[str, bytes] = field(default_factory=dict)
    """Files with the light picture in other formats, by name."""


def page(
    title: str, runs: Sequence[ReportRun], notes: Sequence[str], pictures: Sequence[Picture], files: Sequence[str]
) -> str:
    """Return the page as text; every label, note and name is escaped.

    Args:
        title: Title of the page.
        runs: Runs in the order of the table.
        notes: One paragraph each, for example the command line that repeats the figures.
        pictures: Pictures to embed.
        files: Names of the other files in the same folder, which the page links by relative addresses.
    """
    blocks = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">",
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>Simulation: {escape(title)}</h1>",
        _listing(notes, "notes"),
        "<h2>Figures</h2>",
        _table(runs),
        *(_sites(run) for run in runs if len(run.result.sites) > 1),
        *(_figure(picture) for picture in pictures),
        *(_reasons(run) for run in runs if run.result.unfinished),
        "<h2>Files</h2>",
        "<ul>" + "".join(f'<li><a href="{escape(quote(name))}">{escape(name)}</a></li>' for name in files) + "</ul>",
        _CHUNKS_KEY if any(run.result.chunks for run in runs) else "",
        "</body></html>\n",
    ]
    return "\n".join(part for part in blocks if part)


def _table(runs: Sequence[ReportRun]) -> str:
    bounds = [run.shown_bound_seconds for run in runs]
    bounded = any(bound is not None for bound in bounds)
    lacking = any(run.figures["unfinished"] for run in runs)
    columns = columns_of([run.figures for run in runs], bounds=bounds)
    ratios = list(dict.fromkeys(heading for run in runs for heading in run.ratios))
    headings = ["run", *ratios, *(column.heading for column in columns)]
    headings += ["average ÷ bound"] * bounded + ["unfinished"] * lacking
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    body = "".join(_row(run, ratios, columns, bounded, lacking) for run in runs)
    key = (
        "All figures are simulated. Times are job completion times; queueing is the time in which no worker of a job "
        "trained."
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div><p>{key}</p>'


def _row(run: ReportRun, ratios: Sequence[str], columns: Sequence[Column], bounded: bool, lacking: bool) -> str:
    cells = [run.ratios.get(heading, "–") for heading in ratios]
    cells += shown_cells(run.figures, columns, run.shown_bound_seconds)
    if bounded:
        cells.append("–" if run.over_bound is None else f"{run.over_bound:.3f}")
    if lacking:
        cells.append(_count(run.figures["unfinished"]))
    return f'<tr><th scope="row">{escape(run.label)}</th>' + "".join(f"<td>{escape(c)}</td>" for c in cells) + "</tr>"


def _count(number: float) -> str:
    """Return a count, or a mean of counts."""
    return f"{number:,}" if isinstance(number, int) else significant(number)


def _sites(run: ReportRun) -> str:
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in SITE_HEADINGS)
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>' + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
        for name, *cells in site_cells(run.result.sites)
    )
    table = f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    return f"<h2>Use of sites in {escape(run.label)}</h2>\n{table}<p>{escape(SITE_KEY)}</p>"


def _figure(picture: Picture) -> str:
    light, dark = (b64encode(data).decode("ascii") for data in (picture.light, picture.dark))
    return (
        '<figure><div class="wide"><picture>'
        f'<source media="(prefers-color-scheme: dark)" srcset="data:image/png;base64,{dark}">'
        f'<img alt="{escape(picture.caption)}" src="data:image/png;base64,{light}"></picture></div>'
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
    )


def _reasons(run: ReportRun) -> str:
    named = [f"{key}: {reason}" for key, reason in list(run.result.unfinished.items())[:MAX_REASONS]]
    unlisted = len(run.result.unfinished) - len(named)
    listed = _listing([*named, *([f"and {unlisted:,} more, all in the CSV"] if unlisted else [])], "")
    return f"<h2>Never completed in {escape(run.label)}</h2>\n{listed}"


def _listing(items: Sequence[str], kind: str) -> str:
    if not items:
        return ""
    return f'<ul class="{kind}">' + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"
