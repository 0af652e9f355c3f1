"""Packages stay small enough to be read as a list, and functions to be read at once."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAX_MODULES = 20
"""Limit of the number of modules in one package, ``__init__`` included."""
MAX_LINES = 60
PRODUCTS = ("scheduler", "operator", "worker", "testcluster", "observability", "tools")
TOPS = (*PRODUCTS, "benchmarks", "tests")
FOLDERS = sorted(str(file.parent.relative_to(ROOT)) for top in PRODUCTS for file in (ROOT / top).rglob("__init__.py"))


def test_the_folders_contain_every_product() -> None:
    assert {"scheduler/tranche", "operator/tranche_operator", "worker/tranche_worker"} < set(FOLDERS)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_package_has_at_most_20_modules(folder: str) -> None:
    modules = sorted(file.name for file in (ROOT / folder).glob("*.py"))
    assert len(modules) <= MAX_MODULES, modules


@pytest.mark.parametrize("top", TOPS)
def test_a_function_has_at_most_60_lines(top: str) -> None:
    long = [
        f"{path.relative_to(ROOT)}: {node.name} has {lines} lines"
        for path in sorted((ROOT / top).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > MAX_LINES
    ]
    assert long == []
