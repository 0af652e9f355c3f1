"""The page of `tranche compare` in headless Chromium, at the width of a desktop and of a phone."""

from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("playwright", reason="the development dependencies are older than this test")

from support.browser import DESK, PHONE, require_chromium, started
from tranche.cli.main import main

ROWS = [f"{i},{3600 * i},{1 + i % 4},{3600 + 60_000 * (i % 5)}" for i in range(40)]


def test_report_fits_desktop_and_phone(tmp_path: Path) -> None:
    require_chromium()
    log, out = tmp_path / "a_log_of_one_cluster_with_a_long_name_2026-11.csv", tmp_path / "report"
    log.write_text("\n".join(["job_id,submit_time,num_gpu,duration", *ROWS, ""]))
    options = ["--gpus", "16", "--policies", "fifo,srsf,tiresias", "--loads", "0.7,0.9", "--processes", "1"]
    result = CliRunner().invoke(main, ["compare", str(log), *options, "--out", str(out)])
    assert result.exit_code == 0, result.output
    with started() as browser:
        for size in (DESK, PHONE):
            page = browser.new_page(viewport=size)
            page.goto(f"file://{out}/report.html")
            assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
            table = page.locator(".wide:has(table)").first
            hidden = table.evaluate("(element) => element.scrollWidth - element.clientWidth")
            assert (hidden <= 0) is (size == DESK)
