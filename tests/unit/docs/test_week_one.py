"""The table of the first week names tests and faults that exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from chaos.faults.catalog import FAULTS, OPEN
from support.doc_pages import ROOT

PAGE = ROOT / "docs/how-to/week-one.md"
Row = tuple[str, str, str, str]


def rows(text: str) -> list[Row]:
    """Event, behavior, tests and faults of each row of the tables of a page."""
    cells = [tuple(cell.strip() for cell in line[1:-1].split("|")) for line in text.splitlines() if line[:1] == "|"]
    return [(a, b, c, d) for a, b, c, d in cells if a != "event" and not a.startswith("---")]


ROWS = rows(PAGE.read_text(encoding="utf-8"))


@cache
def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def missing(row: Row) -> list[str]:
    """Return the names in a row that do not exist, and a complaint if it has no test."""
    _event, behaviour, tests, faults = row
    found = [] if behaviour and words(tests) else ["no behaviour or no test"]
    for name in words(tests):
        file, _, function = name.partition("::")
        path = ROOT / "tests" / file
        if not function.startswith("test_") or not path.is_file() or function not in functions(path):
            found.append(name)
    return found + [name for name in words(faults) if name not in FAULTS or name in OPEN]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_every_row_names_tests_and_faults_that_exist(row: Row) -> None:
    assert missing(row) == []


def test_each_event_is_listed_once() -> None:
    assert len({row[0] for row in ROWS}) == len(ROWS) > 15


@pytest.mark.parametrize(
    "cells",
    [
        ("", "`kill etcd`"),
        ("`unit/docs/test_week_one.py::test_gone`", ""),
        ("`unit/docs/test_week_one.py`", ""),
        ("`unit/docs/gone.py::test_gone`", ""),
        ("`unit/docs/test_week_one.py::test_each_event_is_listed_once`", "`no such fault`"),
    ],
)
def test_row_that_names_nothing_or_something_gone_is_found(cells: tuple[str, str]) -> None:
    assert missing(("event", "behaviour", *cells))
