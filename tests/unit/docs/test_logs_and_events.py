"""The page about logs and events lists all decisions that are logged."""

import re
from pathlib import Path
from typing import get_args

from tranche.live.decision_log import PACE_SECONDS, Decision

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/reference/logs-and-events.md").read_text(encoding="utf-8")


def first_cells(section: str) -> set[str]:
    """The names in the first column of the table in a section of the page."""
    text = PAGE.partition(f"## {section}\n")[2].partition("\n## ")[0]
    return {
        name for cell in re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE) for name in re.findall(r"`([^`]+)`", cell)
    }


def test_every_kind_of_decision_is_in_the_table() -> None:
    assert first_cells("Decisions of the planner") - {"decision"} == set(get_args(Decision))


def test_page_states_the_pace_of_lines() -> None:
    assert f"counted for {PACE_SECONDS:g} s" in PAGE
