"""The pages build without a warning, and need nothing from elsewhere."""

import re
import shutil
from pathlib import Path

import pytest

from support.doc_pages import anchors
from support.doc_site import build, main

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[3]
LOADED = re.compile(r'<(?:script|img|iframe|source)[^>]*\bsrc="([^"]+)"|<link[^>]*rel="stylesheet"[^>]*href="([^"]+)"')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    answer = build(ROOT / "docs", folder)
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr == ""
    return folder


def test_every_page_is_built(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    built = {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}
    assert pages <= built


def test_a_page_loads_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        for match in LOADED.finditer(page.read_text(encoding="utf-8")):
            assert not re.match(r"(https?:)?//", match[1] or match[2]), page


def test_files_of_the_repository_are_named_by_their_path(site: Path) -> None:
    page = (site / "how-to/installing.html").read_text(encoding="utf-8")
    assert "manifests/kind/job.yaml" in page
    assert "_downloads" not in page


def test_headings_have_the_addresses_that_links_and_alerts_use(site: Path) -> None:
    for name in ("runbook", "recovering", "installing"):
        ids = set(re.findall(r'id="([^"]+)"', (site / f"how-to/{name}.html").read_text(encoding="utf-8")))
        assert len(anchors(ROOT / f"docs/how-to/{name}.md")) > 5
        assert anchors(ROOT / f"docs/how-to/{name}.md") <= ids


def test_broken_link_and_unlisted_page_are_warnings(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    shutil.copy(ROOT / "docs/conf.py", docs)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (docs / "index.md").write_text("# Title\n\n[there](nowhere.md)\n")
    (docs / "alone.md").write_text("# Alone\n")
    answer = build(docs, tmp_path / "site")
    assert answer.returncode == 1
    assert "'nowhere.md'" in answer.stderr
    assert "isn't included in any toctree" in answer.stderr


def test_the_command_says_how_it_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().err == "usage: python -m support.doc_site FOLDER\n"
