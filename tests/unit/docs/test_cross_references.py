"""Decisions, pages, sections, pictures, paths and modules that code and pages refer to exist."""

import re
from pathlib import Path

import pytest

from support.cross_references import sources, unresolved
from support.doc_pages import ROOT

MADE_UP = {
    "tests/cross_references.py",
    "tests/unit/docs/test_cross_references.py",
    "tests/unit/docs/test_links.py",
    "tests/unit/docs/test_commands.py",
}
"""Files whose references are samples for tests."""
FILES = [path for path in sources() if str(path.relative_to(ROOT)) not in MADE_UP]
PAGE = """# Title

## The path of a job

The table "costs".
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with one page, one decision, one picture and one module."""
    for name, text in {
        "docs/architecture.md": PAGE,
        "docs/decisions/0001-one.md": "# 1. One\n",
        "docs/decisions/0002-two.md": "# 2. Two\n",
        "docs/pictures/page.png": "",
        "scheduler/tranche/__init__.py": "",
        "scheduler/tranche/planner/__init__.py": "from tranche.planner.core import Planner\n",
        "scheduler/tranche/planner/core.py": "class Planner:\n    def handle(self): ...\n",
    }.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def test_every_reference_of_the_repository_resolves() -> None:
    assert len(FILES) > 500
    found = {str(path.relative_to(ROOT)): unresolved(path) for path in FILES}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize(
    "text",
    [
        "See decision 2, decisions 1 and 2, [decision 1](docs/decisions/0001-one.md).",
        'docs/architecture.md, "The path of a job"; architecture.md#title; `docs/architecture.md`, section "Title"',
        'The table "costs" of [docs/architecture.md](docs/architecture.md).',
        "The picture docs/pictures/page.png and pictures/page.png.",
        "The file scheduler/tranche/planner/core.py.",
        "`tranche.planner`, `tranche.planner.core`, `tranche.planner.Planner`, `tranche.planner.core.Planner.handle`",
        "A decision 0.5 s later; 3 decisions, 10 of them 40 % better; rules 1 to 3 of `tranche.dev`.",
    ],
)
@pytest.mark.parametrize("form", ["page.md", "code.py"])
def test_reference_that_resolves_is_accepted(tree: Path, text: str, form: str) -> None:
    assert unresolved(written(tree, text, form), tree) == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("See decision 7.", ["decision 7: there is none"]),
        ("(decisions 1, 8 and 9)", ["decision 8: there is none", "decision 9: there is none"]),
        ("[decision 2](docs/decisions/0001-one.md)", ["the number is not that of the page"]),
        ("0003-three.md", ["no such decision"]),
        ("policy.md says so", ["policy.md: no such page"]),
        ("docs/other/architecture.md", ["docs/other/architecture.md: no such page"]),
        ('docs/architecture.md, "The planner"', ["no such section"]),
        ("architecture.md#the-planner", ["no such section"]),
        ("docs/architecture.md §4", ["no such section"]),
        ("architecture.md section 1.2", ["no such section"]),
        ('table "prices" of docs/architecture.md', ["no such section or table"]),
        ("docs/pictures/gone.png", ["no such picture"]),
        ("scheduler/tranche/planner/gone.py", ["no such file"]),
        ("`tranche.planner.gone`", ["no such module or name"]),
        ("`tranche.gone.core`", ["no such module or name"]),
        ("as issue 6 requires", ["of no document"]),
        ("(rule 9)", ["of no document"]),
    ],
)
@pytest.mark.parametrize("form", ["page.md", "code.py"])
def test_reference_that_leads_nowhere_is_reported(tree: Path, text: str, wrong: list[str], form: str) -> None:
    found = unresolved(written(tree, text, form), tree)
    assert len(found) == len(wrong), found
    assert all(part in line for part, line in zip(wrong, found, strict=True)), found


def test_reference_over_two_lines_of_a_comment_is_found(tree: Path) -> None:
    file = tree / "scheduler/broken.py"
    file.write_text('x = 1\n# As decided in decision\n# 77, see docs/architecture.md,\n# "Gone".\n')
    assert unresolved(file, tree) == [
        "decision 77: there is none",
        'docs/architecture.md, "Gone": no such section',
    ]


def written(tree: Path, text: str, form: str) -> Path:
    """Put the text into a page, or into a docstring and a comment."""
    file = tree / form
    comment = re.sub(r"(?m)^", "# ", text)
    file.write_text(f'"""Text.\n\n{text}\n"""\n\n{comment}\n' if form == "code.py" else f"{text}\n")
    return file
