"""Use of each site by the runs, as tables for the terminal, as cells of the page, and as CSV."""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, fields
from math import fsum, isnan

from rich.table import Table
from rich.text import Text

from tranche.simulation.engine.result import SiteUse
from tranche.simulation_report.formatting import format_bytes, format_gpu_time, significant

SITE_HEADINGS = (
    "site",
    "tier",
    "GPU h",
    "trained GPU h",
    "share of GPU h, %",
    "chunks",
    "share of chunks, %",
    "copied GB",
    "unused GB",
)
SITE_KEY = (
    "GPU h: time that workers held GPUs, including restarts; copied: uploads to the site that were started; "
    "unused: copies that no chunk trained from."
)

MOST_COMPARED = 24
"""Sites that a table of several runs shows."""


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


def format_uses(runs: Sequence[tuple[str, Sequence[SiteUse]]], most: int = MOST_COMPARED) -> Table:
    """Several runs side by side: a row for each site, a column for each run, and the sums below.

    A cell has the GPU time that workers held at the site and the bytes of the uploads to it that were begun. Bytes that
    are not known (NaN) are left out.

    Args:
        runs: Label and use of the sites of each run; a run that did not use a site need not list it.
        most: Sites that are shown, those with the most GPU time in any run; the sums count all.
    """
    title = "Use of sites: GPU time held, bytes copied there"
    table = Table(title=title, title_justify="left", box=None, header_style="dim", pad_edge=False)
    table.add_column("site")
    for label, _ in runs:
        table.add_column(Text(label), justify="right")
    found = [_by_site(uses) for _, uses in runs]
    held = {site: max(_held(uses.get(site, ())) for uses in found) for one in found for site in one}
    chosen = sorted(sorted(held, key=lambda site: (-held[site], site))[:most])
    for site in chosen:
        table.add_row(Text(site or "(all nodes)"), *(_amounts(uses.get(site, ())) for uses in found))
    if len(held) > len(chosen):
        table.add_row(f"and {len(held) - len(chosen)} more")
    if len(held) > 1:
        table.add_row("all sites", *(_amounts(uses) for _, uses in runs), style="bold")
    vain = [fsum(use.in_vain_bytes for use in uses) for _, uses in runs]
    if any(amount > 0 for amount in vain):
        table.add_row("copied but unused", *("–" if isnan(amount) else format_bytes(amount) for amount in vain))
    return table


def site_rows(sites: Sequence[SiteUse]) -> Iterator[Sequence[object]]:
    """Header and one row a site, in seconds and bytes, at full precision."""
    yield [one.name for one in fields(SiteUse)]
    for site in sites:
        yield astuple(site)


def _by_site(uses: Sequence[SiteUse]) -> dict[str, list[SiteUse]]:
    """Of a site whose tier changed there are several."""
    found: dict[str, list[SiteUse]] = {}
    for use in uses:
        found.setdefault(use.site, []).append(use)
    return found


def _held(uses: Sequence[SiteUse]) -> float:
    return fsum(use.gpu_seconds for use in uses)


def _amounts(uses: Sequence[SiteUse]) -> str:
    held, copied = _held(uses), fsum(use.copied_bytes for use in uses)
    amounts = [format_gpu_time(held)] if held > 0 else []
    return ", ".join([*amounts, *([format_bytes(copied)] if copied > 0 else [])]) or "–"


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}" if whole else "–"
