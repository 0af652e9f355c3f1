"""The page of conditions has every condition and its reasons."""

import re
from pathlib import Path

import pytest

from tranche.kube.api import names
from tranche.kube.convert.node_condition import CONDITION_NODES_EXCLUDED
from tranche.kube.convert.scheduler_condition import CONDITION_SCHEDULER_SILENT
from tranche.kube.convert.site_membership import CONDITION_NODES_SHARED

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/reference/conditions.md").read_text(encoding="utf-8")
CONDITIONS = {value for name, value in vars(names).items() if name.startswith("CONDITION_")}
LISTED = [re.findall(r"`(\w+)`", cell) for cell in re.findall(r"^\| (`[^|]+) \|", PAGE, re.MULTILINE)]


def test_every_condition_is_in_the_table() -> None:
    assert {one for cell in LISTED for one in cell} == CONDITIONS | {
        CONDITION_NODES_EXCLUDED,
        CONDITION_SCHEDULER_SILENT,
        CONDITION_NODES_SHARED,
    }


REASONS = sorted(set(re.findall(r"`([A-Z][a-zA-Z]+)`", PAGE.partition("## Site")[0])) - CONDITIONS)
CODE = [path.read_text(encoding="utf-8") for part in ("scheduler", "operator") for path in (ROOT / part).rglob("*.py")]


@pytest.mark.parametrize("reason", REASONS)
def test_every_named_reason_is_in_the_code(reason: str) -> None:
    assert any(f'"{reason}"' in text for text in CODE)
