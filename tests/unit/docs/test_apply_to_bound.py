"""docs/explanation/apply-to-bound.md names files and functions that exist, and at most 18 files."""

import re
from pathlib import Path

import pytest

from support.doc_pages import ROOT

PAGE = ROOT / "docs/explanation/apply-to-bound.md"
STEP = re.compile(r"(?m)^\d+\. `([\w/.]+)`: ((?:.+\n?(?!\d+\. |\n|#))+)")
STEPS = STEP.findall(PAGE.read_text(encoding="utf-8"))
ELSEWHERE = {"Controller._status", "filter_nodes", "reconcile", "status.plan", "status.progress"}
"""Words in code that a step mentions and another file defines."""


def source(path: str) -> Path:
    return ROOT / ("operator" if path.startswith("tranche_operator/") else "scheduler") / path


def test_the_walk_opens_at_most_18_files() -> None:
    assert 15 <= len({path for path, _ in STEPS}) == len(STEPS) <= 18


@pytest.mark.parametrize(("path", "text"), STEPS, ids=[path for path, _ in STEPS])
def test_a_step_names_functions_that_its_file_defines(path: str, text: str) -> None:
    code = source(path).read_text(encoding="utf-8")
    named = re.findall(r"`([\w.]+)`", text)
    defined = [word for word in named if re.search(rf"(def|class) {word.rpartition('.')[2]}\b", code)]
    assert defined, named
    functions = [word for word in named if re.fullmatch(r"(\w+\.)?_?[a-z]+(_[a-z]+)*", word)]
    assert set(functions) - set(defined) <= ELSEWHERE
