"""What a run used at each site, as a table for the terminal, as cells of the page, and as CSV."""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, fields

from rich.table import Table
from rich.text import Text

from tranche.simulation.engine.result import SiteUse
from tranche.simulation_report.formatting import significant

SITE_HEADINGS = (
    "site",
    "tier",
    "GPU h",
    "trained GPU h",
    "share of GPU h, %",
    "chunks",
    "share of chunks, %",
    "copied GB",
    "in vain GB",
)
SITE_KEY = (
    "GPU h: held by workers, restarts included; copied: uploads to the site that were begun; "
    "in vain: copies that no chunk trained from."
)


def site_cells(sites: Sequence[SiteUse]) -> Iterator[tuple[str, ...]]:
    """Cells under `SITE_HEADINGS`, one tuple a site."""
    hours, chunks = sum(one.gpu_seconds for one in sites) / 3600, sum(one.chunks for one in sites)
    for one in sites:
        held = one.gpu_seconds / 3600
        yield (
            one.site or "(all nodes)",
            f"{one.tier}, unlimited" if one.unlimited else one.tier,
            significant(held),
            significant(one.trained_gpu_seconds / 3600),
            _share(held, hours),
            f"{one.chunks:,}",
            _share(one.chunks, chunks),
            significant(one.copied_bytes / 1e9),
            significant(one.in_vain_bytes / 1e9),
        )


def format_sites(sites: Sequence[SiteUse]) -> Table:
    """One row a site."""
    table = Table(title="Use of sites", title_justify="left", box=None, header_style="bold")
    for number, heading in enumerate(SITE_HEADINGS):
        table.add_column(heading, justify="left" if number < 2 else "right")
    for name, *cells in site_cells(sites):
        table.add_row(Text(name), *cells)
    return table


def site_rows(sites: Sequence[SiteUse]) -> Iterator[Sequence[object]]:
    """Header and one row a site, in seconds and bytes, at full precision."""
    yield [one.name for one in fields(SiteUse)]
    for site in sites:
        yield astuple(site)


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}" if whole else "–"
