"""Packages stay small enough to be read as a list, and functions to be read at once; constants are assigned once."""

import ast
from collections import Counter
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


def assigned_twice(tree: ast.Module) -> list[str]:
    names = (
        name.id
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        for name in ast.walk(target)
        if isinstance(name, ast.Name) and name.id.isupper()
    )
    return [name for name, count in Counter(names).items() if count > 1]


@pytest.mark.parametrize("top", TOPS)
def test_a_module_assigns_each_constant_once(top: str) -> None:
    found = {
        str(path.relative_to(ROOT)): names
        for path in sorted((ROOT / top).rglob("*.py"))
        if (names := assigned_twice(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert found == {}


def test_constant_that_is_assigned_twice_is_found() -> None:
    assert assigned_twice(ast.parse("LEAST, MOST = 24, 300\nSTEP, MOST = 1, 10_000")) == ["MOST"]
