"""Use of each site by a run, as people and programs read it."""

from dataclasses import replace
from math import nan
from pathlib import Path

from rich.console import Console
from rich.table import Table

from support.simulated_results import full_result, job_result, report_run
from tranche.simulation.analysis.summary import summarize
from tranche.simulation.engine.result import JobUse, SimulationResult, SiteUse
from tranche.simulation_report import format_table, write_report
from tranche.simulation_report.site_table import format_sites, format_uses, site_cells, site_rows

USES = (
    SiteUse("cloud", "Cloud", True, 3 * 3600.0, 2 * 3600.0, 6, 4.5e9, 1.5e9),
    SiteUse("edge-a", "Edge", False, 9 * 3600.0, 9 * 3600.0, 2, 0.0, 0.0),
)


def lines(table: Table) -> list[list[str]]:
    console = Console(width=250, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        console.print(table)
    return [[cell for cell in line.split("  ") if cell.strip()] for line in console.export_text().splitlines()]


def test_a_site_is_a_row_with_its_shares() -> None:
    cloud, edge = site_cells(USES)
    assert cloud == ("cloud", "Cloud, unlimited", "3", "2", "25.0", "6", "75.0", "4.5", "1.5")
    assert edge == ("edge-a", "Edge", "9", "9", "75.0", "2", "25.0", "0", "0")


def test_unused_sites_have_no_shares() -> None:
    (cells,) = site_cells([SiteUse("", "Edge", False)])
    assert (cells[0], cells[4], cells[6]) == ("(all nodes)", "–", "–")


def test_the_table_of_sites_has_a_row_for_each() -> None:
    _, heads, *rows = lines(format_sites(USES))
    assert len(rows) == 2
    assert [len(row) for row in rows] == [len(heads), len(heads)]


def test_several_runs_are_columns_beside_each_other() -> None:
    past = (SiteUse("edge-a", "Edge", False, 1800.0, nan, 0, nan, nan),)
    table = format_uses([("as it was", past), ("chunk", USES)])
    assert [str(column.header) for column in table.columns] == ["site", "as it was", "chunk"]
    assert body(table) == [
        ["cloud", "–", "10,800 GPU s, 4.5 GB"],
        ["edge-a", "1,800 GPU s", "32,400 GPU s"],
        ["all sites", "1,800 GPU s", "43,200 GPU s, 4.5 GB"],
        ["copied but unused", "–", "1.5 GB"],
    ]


def test_site_table_shows_most_used_sites_and_sum_of_all() -> None:
    many = [SiteUse(f"site-{number}", "Edge", False, 100.0 * number) for number in range(1, 6)]
    assert body(format_uses([("chunk", many)], max_sites=2)) == [
        ["site-4", "400 GPU s"],
        ["site-5", "500 GPU s"],
        ["and 3 more"],
        ["all sites", "1,500 GPU s"],
    ]


def test_a_site_whose_tier_changed_is_one_row() -> None:
    uses = [SiteUse("a", "Cloud", False, 10.0), SiteUse("a", "Edge", False, 5.0)]
    assert body(format_uses([("chunk", uses)])) == [["a", "15 GPU s"]]


def body(table: Table) -> list[list[str]]:
    """Cells below the line of headings."""
    rows = [[cell.strip() for cell in row] for row in lines(table)]
    return rows[1 + [row[0] for row in rows].index("site") :]


def test_csv_of_sites_has_bytes_and_seconds() -> None:
    header, cloud, _ = site_rows(USES)
    named = dict(zip(header, cloud, strict=True))
    assert (named["site"], named["gpu_seconds"], named["copied_bytes"]) == ("cloud", 10_800.0, 4.5e9)


def test_cost_columns_are_in_gpu_hours_and_gigabytes() -> None:
    job = job_result("a", use=JobUse(7200.0, 3e9, 1e9))
    _, heads, row = lines(format_table([("chunk", summarize(SimulationResult((job,))))]))
    cells = dict(zip([head.strip() for head in heads], [cell.strip() for cell in row[1:]], strict=True))
    assert (cells["cloud GPU h"], cells["copied GB"], cells["unused GB"]) == ("2", "3", "1")


def test_runs_without_cloud_and_copies_have_no_such_columns() -> None:
    _, heads, _ = lines(format_table([("fifo", summarize(SimulationResult((job_result("a"),))))]))
    assert not {"cloud GPU h", "copied GB", "unused GB"} & {head.strip() for head in heads}


def test_a_report_has_the_sites_on_its_page_and_as_csv(tmp_path: Path) -> None:
    written = write_report(tmp_path, "T", [report_run("chunk", replace(full_result(), sites=USES))], [])
    assert tmp_path / "sites-chunk.csv" in written
    assert (tmp_path / "sites-chunk.csv").read_text().splitlines()[1].startswith("cloud,Cloud,True,10800.0,")
    page = (tmp_path / "report.html").read_text()
    assert "Use of sites in chunk" in page
    assert "Cloud, unlimited" in page
