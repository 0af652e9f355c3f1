"""Targets of references in README and docs exist: links, anchors, pictures, files."""

import re
from pathlib import Path

import pytest

from support.cross_references import sources
from support.doc_pages import ROOT, anchors, pages, targets, words_in_code

FOLDERS = tuple(f"{one.name}/" for one in ROOT.iterdir() if one.is_dir() and not one.name.startswith("."))
TESTS = ("unit/", "integration/", "property/", "contract/", "chaos/")
"""Below tests, where tables leave that out."""
MADE = ("build/", "dist/", "report/")
"""Folders that commands make."""
OTHERS = re.compile(r"[<>*…{}$A-Z ]|^helm/tranche$")
"""No path of this repository alone: a pattern, or a name to fill in."""
MODULES = tuple(f"/{path.relative_to(ROOT)}" for path in sources() if path.suffix == ".py")
"""Python files, of which pages name the last parts of the path."""


def broken(page: Path) -> list[str]:
    """The links of a page that lead nowhere in this repository."""
    found = []
    for target in targets(page):
        if re.match(r"(https?|mailto):", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or not file.is_relative_to(ROOT) or (anchor and anchor not in anchors(file)):
            found.append(target)
    return found


def missing(page: Path) -> list[str]:
    """Paths in code, below a folder of this repository, that do not exist and that the page does not have created."""
    found = []
    created = re.findall(r"\bCreate `([^`]+)`", page.read_text(encoding="utf-8"))
    for text in words_in_code(page):
        path = re.sub(r"(::[\w\[\]-]+|:\d+)$", "", text)
        if path.startswith(TESTS):
            path = f"tests/{path}"
        ours = path.startswith(FOLDERS) and not path.startswith(MADE) and not OTHERS.search(path)
        exists = path in created or (ROOT / path).exists() or any(one.endswith(f"/{path}") for one in MODULES)
        if not exists and (ours or re.fullmatch(r"\w+(/\w+)+\.py", path)):
            found.append(text)
    return found


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_files_exist(page: Path) -> None:
    assert broken(page) == []
    assert missing(page) == []


def test_what_does_not_exist_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A title\n\n[a](#a-title) [b](#b) [c](nowhere.md)"
        " `docs/nowhere.md` `docs/reference/metrics.md` `unit/nowhere.py` `queue/nowhere.py` `queue/chunk.py`\n"
    )
    assert broken(page) == ["#a-title", "#b", "nowhere.md"], "outside of the repository nothing counts"
    assert missing(page) == ["docs/nowhere.md", "unit/nowhere.py", "queue/nowhere.py"]
    assert anchors(page) == {"a-title"}


def test_every_picture_is_shown_somewhere() -> None:
    shown = {(page.parent / target).resolve() for page in pages() for target in targets(page)}
    assert {picture for picture in (ROOT / "docs/pictures").iterdir() if picture not in shown} == set()
