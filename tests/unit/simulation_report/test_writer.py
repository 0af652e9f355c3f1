"""A report as files in a folder."""

import csv
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from support.simulated_results import full_result, report_run
from tranche.simulation.engine.result import SimulationResult
from tranche.simulation_report import ReportError, ReportRun, check_report, write_report
from tranche.simulation_report.writer import slugs_of

PNG = b"\x89PNG\r\n\x1a\n"
HOSTILE = '<script>alert("x")</script> $\\frac{1}{$ & \u4e16\u754c'


class Page(HTMLParser):
    """Collects tags, and text outside of styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    runs = [report_run("fifo", bound=None), report_run(HOSTILE)]
    return write_report(tmp_path_factory.mktemp("r") / "new" / "folder", f"Title {HOSTILE}", runs, [f"note {HOSTILE}"])


def test_the_files_are_those_that_it_names(written: list[Path]) -> None:
    assert sorted(written) == sorted(written[0].parent.iterdir())
    assert [path.name for path in written] == [
        "report.html",
        "summary.json",
        "summary.csv",
        "jobs-fifo.csv",
        "jobs-script-alert-x-script-frac-1.csv",
        "jct-cdf.png",
        "jct-by-size.png",
        "load.png",
        "gantt-fifo.png",
        "gantt-script-alert-x-script-frac-1.png",
    ]


def test_pictures_are_png_of_a_sensible_size(written: list[Path]) -> None:
    for path in written:
        if path.suffix == ".png":
            data = path.read_bytes()
            assert data.startswith(PNG)
            assert 5_000 < len(data) < 300_000


def test_the_page_shows_labels_as_text_only(written: list[Path]) -> None:
    page = Page(written[0].read_text(encoding="utf-8"))
    assert "script" not in {tag for tag, _ in page.tags}
    assert f"note {HOSTILE}" in page.text
    assert f"Title {HOSTILE}" in page.text
    captions = [attributes["alt"] for tag, attributes in page.tags if tag == "img"]
    assert any(HOSTILE in str(caption) for caption in captions)


def test_the_page_needs_nothing_from_outside(written: list[Path]) -> None:
    page = Page(written[0].read_text(encoding="utf-8"))
    sources = [v for _, a in page.tags for k, v in a.items() if k in {"src", "srcset"}]
    assert len(sources) == 2 * 5
    assert all(str(source).startswith("data:image/png;base64,") for source in sources)
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert links == [path.name for path in written[1:]]
    assert not re.search(r"https?://|url\(|@import", written[0].read_text(encoding="utf-8"))


def test_the_page_fits_phones_and_both_appearances(written: list[Path]) -> None:
    text = written[0].read_text(encoding="utf-8")
    assert 'name="viewport" content="width=device-width, initial-scale=1"' in text
    assert "@media (prefers-color-scheme: dark)" in text
    assert text.count('media="(prefers-color-scheme: dark)" srcset') == 5


def test_the_page_names_jobs_that_never_completed(written: list[Path]) -> None:
    assert "default/giant: needs 64 GPUs, the largest node has 4" in Page(written[0].read_text(encoding="utf-8")).text


def test_summaries_and_jobs_read_back(written: list[Path]) -> None:
    folder = written[0].parent
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert [run["run"] for run in summary["runs"]] == ["fifo", HOSTILE]
    assert summary["runs"][1]["bound_seconds"] == 40.0
    assert summary["runs"][0]["average_jct_seconds"] == 50.0
    rows = list(csv.DictReader((folder / "jobs-fifo.csv").read_text(encoding="utf-8").splitlines()))
    assert [float(row["jct_seconds"]) for row in rows if row["state"] == "completed"] == [10.0, 60.0, 80.0]


def test_further_files_are_written_and_listed(tmp_path: Path) -> None:
    paths = write_report(tmp_path, "t", [report_run()], [], {"comparison.json": "{}"})
    assert tmp_path / "comparison.json" in paths
    assert "comparison.json" in Page((tmp_path / "report.html").read_text()).text


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    first = write_report(tmp_path / "a", "t", [report_run()], [])
    second = write_report(tmp_path / "b", "t", [report_run()], [])
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_own_files_are_replaced_and_others_left_alone(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("old")
    (tmp_path / "mine.txt").write_text("kept")
    write_report(tmp_path, "new title", [report_run()], [])
    assert "new title" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert (tmp_path / "mine.txt").read_text() == "kept"


def test_runs_with_less_data_have_fewer_pictures(tmp_path: Path) -> None:
    bare = SimulationResult(full_result().jobs)
    assert {p.name for p in write_report(tmp_path, "t", [report_run("a", bare)], []) if p.suffix == ".png"} == {
        "jct-cdf.png",
        "jct-by-size.png",
    }
    nothing = SimulationResult((), {"default/giant": "never fits"})
    assert not [p for p in write_report(tmp_path / "n", "t", [report_run("a", nothing)], []) if p.suffix == ".png"]


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ReportError, match="file is a file; name a folder"):
        write_report(tmp_path / "file", "t", [report_run()], [])
    with pytest.raises(ReportError, match="a part of this path is a file"):
        write_report(tmp_path / "file" / "below", "t", [report_run()], [])
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_in_the_place_of_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "summary.json").mkdir()
    with pytest.raises(ReportError, match=r"summary\.json cannot be written: Is a directory"):
        write_report(tmp_path, "t", [report_run()], [])


def test_a_folder_can_be_asked_for_before_a_long_run(tmp_path: Path) -> None:
    check_report(tmp_path / "new" / "folder")
    assert list((tmp_path / "new" / "folder").iterdir()) == []
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ReportError, match="is a file"):
        check_report(tmp_path / "file")


def test_a_report_on_nothing_is_refused(tmp_path: Path) -> None:
    runs: list[ReportRun] = []
    with pytest.raises(ReportError, match="no run"):
        write_report(tmp_path / "r", "t", runs, [])
    assert not (tmp_path / "r").exists()


def test_labels_become_different_file_names() -> None:
    assert slugs_of(["las:limits=3250/7200", "LAS limits 3250 7200", "...", "../x", "世"]) == [
        "las-limits-3250-7200",
        "las-limits-3250-7200-2",
        "run",
        "x",
        "run-2",
    ]


def test_without_matplotlib_it_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "import importlib.util as u; found = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'matplotlib' else found(name, *rest)\n"
        "from pathlib import Path\n"
        "from support.simulated_results import report_run\n"
        "from tranche.simulation_report import ReportError, write_report\n"
        "try: write_report(Path(sys.argv[1]), 't', [report_run()], [])\n"
        "except ReportError as error: print(error)\n"
    )
    root = Path(__file__).resolve().parents[3]
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "r")], capture_output=True, text=True, cwd=root, check=True
    )
    assert ran.stdout == 'pictures need matplotlib: pip install "tranche[report]"\n'
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("module", ["tranche.cli.main", "tranche.simulation_report"])
def test_starting_a_command_imports_no_matplotlib(module: str) -> None:
    code = f"import sys, {module}; print(sorted({{'matplotlib', 'distributed', 'highspy'}} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_further_formats_have_the_same_bytes_each_time(tmp_path: Path) -> None:
    runs = [report_run("fifo", bound=None)]
    first, second = (
        write_report(tmp_path / name, "Title", runs, [], formats=("svg", "pdf")) for name in ("first", "second")
    )
    extra = [path for path in first if path.suffix in (".svg", ".pdf")]
    assert {path.name for path in extra} >= {"jct-cdf.svg", "jct-cdf.pdf", "load.svg", "gantt-fifo.pdf"}
    heads = {path.suffix: path.read_bytes()[:5] for path in extra}
    assert heads == {".svg": b"<?xml", ".pdf": b"%PDF-"}
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert "jct-cdf.svg" in first[0].read_text()
