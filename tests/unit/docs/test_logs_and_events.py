"""The page about logs and events lists all logged decisions, all events, and their limits."""

import re
from pathlib import Path
from typing import get_args

from tranche.kube.api import names
from tranche.live.decision_log import PACE_SECONDS, Decision
from tranche_operator.execute.event_recorder import SERIES
from tranche_operator.reconcile.event_merge import AT_ONCE, OPENED, SPACING_SECONDS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/reference/logs-and-events.md").read_text(encoding="utf-8")
SOURCES = [path.read_text(encoding="utf-8") for path in (ROOT / "operator").rglob("*.py")]
EMITTED = re.compile(r'EmitEvent\(\s*"(?:Normal|Warning)",\s*(?:"(\w+)"|names\.(\w+))')


def first_cells(section: str) -> set[str]:
    """The names in the first column of the table in a section of the page."""
    text = PAGE.partition(f"## {section}\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_every_kind_of_decision_is_in_the_table() -> None:
    assert first_cells("Decisions of the planner") - {"decision"} == set(get_args(Decision))


def test_every_event_is_in_the_table() -> None:
    found = [one for text in SOURCES for one in EMITTED.findall(text)]
    reasons = {literal or getattr(names, constant) for literal, constant in found}
    verdicts = {"TemplateRejected", "PodsNotAdmitted"}
    assert first_cells("Events of a TrainingJob") == reasons | verdicts | set(OPENED.values())


def test_page_states_the_limits() -> None:
    assert f"counted for {PACE_SECONDS:g} s" in PAGE
    assert f"at most every {SPACING_SECONDS:g} s" in PAGE
    assert f"up to {SERIES} for reasons" in PAGE
    assert " and ".join(f"`{reason}`" for reason in sorted(AT_ONCE)) + " are written at once" in PAGE
