"""Use of each site by runs, as tables for the terminal, as cells of the page, and as CSV."""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from math import fsum, isnan

from rich.table import Table
from rich.text import Text

from tranche.simulation.engine.result import SiteUse
from tranche.simulation_report.formatting import bytes_unit, gpu_time_unit, significant

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

MAX_COMPARED = 24
"""Maximum number of sites in a table of several runs."""


@dataclass(frozen=True, slots=True)
class _Units:
    """Units of a table, the same in all cells, so that they can be compared."""

    gpu_seconds: float
    gpu_time: str
    bytes: float
    data: str

    def amounts(self, uses: Sequence[SiteUse]) -> str:
        """Format the GPU time and the copied bytes; a dash for none."""
        held, copied = _held(uses), _copied(uses)
        parts = [f"{significant(held / self.gpu_seconds)} {self.gpu_time}"] if held > 0 else []
        return ", ".join([*parts, *([self.of_bytes(copied)] if copied > 0 else [])]) or "–"

    def of_bytes(self, amount: float) -> str:
        """Format an amount of data."""
        return f"{significant(amount / self.bytes)} {self.data}"


def site_cells(sites: Sequence[SiteUse]) -> Iterator[tuple[str, ...]]:
    """Yield the cells under `SITE_HEADINGS`, one tuple a site."""
    hours, chunks = sum(use.gpu_seconds for use in sites) / 3600, sum(use.chunks for use in sites)
    for use in sites:
        held = use.gpu_seconds / 3600
        yield (
            use.site or "(all nodes)",
            f"{use.tier}, unlimited" if use.unlimited else use.tier,
            significant(held),
            significant(use.trained_gpu_seconds / 3600),
            _share(held, hours),
            f"{use.chunks:,}",
            _share(use.chunks, chunks),
            significant(use.copied_bytes / 1e9),
            significant(use.in_vain_bytes / 1e9),
        )


def format_sites(sites: Sequence[SiteUse]) -> Table:
    """Return a table with one row a site."""
    table = Table(title="Use of sites", title_justify="left", box=None, header_style="bold")
    for number, heading in enumerate(SITE_HEADINGS):
        table.add_column(heading, justify="left" if number < 2 else "right")
    for name, *cells in site_cells(sites):
        table.add_row(Text(name), *cells)
    return table


def format_uses(runs: Sequence[tuple[str, Sequence[SiteUse]]], max_sites: int = MAX_COMPARED) -> Table:
    """Return a table of several runs: a row for each site, a column for each run, and the sums below.

    A cell has the GPU time that workers held at the site and the bytes of the uploads to it that were started. Bytes
    that are unknown (NaN) are omitted.

    Args:
        runs: Label and use of the sites of each run; a run that did not use a site need not list it.
        max_sites: Maximum number of sites, those with the most GPU time in any run; the sums count all.
    """
    title = "Use of sites: GPU time held, bytes copied there"
    table = Table(title=title, title_justify="left", box=None, header_style="dim", pad_edge=False)
    table.add_column("site")
    for label, _ in runs:
        table.add_column(Text(label), justify="right")
    uses_by_run = [_by_site(uses) for _, uses in runs]
    held = {site: max(_held(uses.get(site, ())) for uses in uses_by_run) for uses in uses_by_run for site in uses}
    vain = [fsum(use.in_vain_bytes for use in uses) for _, uses in runs]
    copied = [_copied(of_site) for uses in uses_by_run for of_site in uses.values()]
    units = _Units(
        *gpu_time_unit([_held(of_site) for uses in uses_by_run for of_site in uses.values()]),
        *bytes_unit([*copied, *vain]),
    )
    chosen = sorted(sorted(held, key=lambda site: (-held[site], site))[:max_sites])
    for site in chosen:
        table.add_row(Text(site or "(all nodes)"), *(units.amounts(uses.get(site, ())) for uses in uses_by_run))
    if len(held) > len(chosen):
        table.add_row(f"and {len(held) - len(chosen)} more")
    if len(held) > 1:
        table.add_row("all sites", *(units.amounts(uses) for _, uses in runs), style="bold")
    if any(amount > 0 for amount in vain):
        table.add_row("copied but unused", *("–" if isnan(amount) else units.of_bytes(amount) for amount in vain))
    return table


def site_rows(sites: Sequence[SiteUse]) -> Iterator[Sequence[object]]:
    """Yield the header and one row a site, in seconds and bytes, at full precision."""
    yield [column.name for column in fields(SiteUse)]
    for site in sites:
        yield astuple(site)


def _by_site(uses: Sequence[SiteUse]) -> dict[str, list[SiteUse]]:
    """Return the uses by site; a site whose tier changed has several."""
    by_site: dict[str, list[SiteUse]] = {}
    for use in uses:
        by_site.setdefault(use.site, []).append(use)
    return by_site


def _held(uses: Sequence[SiteUse]) -> float:
    return fsum(use.gpu_seconds for use in uses)


def _copied(uses: Sequence[SiteUse]) -> float:
    return fsum(use.copied_bytes for use in uses)


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}" if whole else "–"
