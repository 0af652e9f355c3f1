"""The questions of newcomers in CONTRIBUTING.md name files that exist, as few as decision 23 states."""

import re

import pytest

from support.doc_pages import ROOT

PATH = re.compile(r"`([\w/.-]+/[\w.-]+\.(?:py|md))`")
ROW = re.compile(r"(?m)^\| ([A-Z][^|]*\?) \| ([^|]*?) \|(?: (\d+) \|)?$")
QUESTIONS = {found[0]: found[1] for found in ROW.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))}
DECISION = (ROOT / "docs/decisions/0023-code-layout.md").read_text(encoding="utf-8")
NOW = {found[0]: int(found[2]) for found in ROW.findall(DECISION)}
WALK = "docs/explanation/apply-to-bound.md"
TOP = ("docs", "operator", "worker", "testcluster", "tests")


def files(question: str) -> list[str]:
    """Return the files to open after CONTRIBUTING.md, relative to the repository."""
    named = [
        name if name.startswith(TOP) else f"scheduler/tranche/{name}" for name in PATH.findall(QUESTIONS[question])
    ]
    if WALK in named:
        steps = re.findall(r"(?m)^\d+\. `([\w/.]+)`:", (ROOT / WALK).read_text(encoding="utf-8"))
        named += [("operator/" if step.startswith("tranche_operator/") else "scheduler/") + step for step in steps]
    return named


def test_decision_23_counts_the_same_seven_questions() -> None:
    assert list(NOW) == list(QUESTIONS)
    assert len(NOW) == 7


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_opens_as_many_files_as_counted(question: str) -> None:
    named = files(question)
    assert [name for name in named if not (ROOT / name).is_file()] == []
    assert 1 + len(set(named)) == NOW[question] <= (20 if "kubectl apply" in question else 4)
