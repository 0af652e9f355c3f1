"""Modules that `make native` compiles, which takes minutes: here, mypyc only translates them to C."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import native_package

TRANSLATE = "import sys; from mypyc.build import mypycify; mypycify(sys.argv[2:], target_dir=sys.argv[1])"


def translated(folder: Path, *modules: str) -> subprocess.CompletedProcess[str]:
    files = ["--config-file", str(native_package.ROOT / "pyproject.toml"), *(f"tranche/{name}" for name in modules)]
    command = [sys.executable, "-c", TRANSLATE, str(folder), *files]
    return subprocess.run(command, cwd=native_package.SOURCE.parent, capture_output=True, text=True, check=False)


def names_in(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}


def differs_in_native_code(node: ast.AST) -> bool:
    """Return whether mypyc evaluates the expression in another order than Python (decision 1, Native code)."""
    if isinstance(node, ast.YieldFrom):
        return isinstance(node.value, ast.GeneratorExp)
    if isinstance(node, ast.Compare):
        later = [one for right in node.comparators for one in ast.walk(right) if isinstance(one, ast.NamedExpr)]
        return bool(names_in(node.left) & {one.target.id for one in later})
    return isinstance(node, ast.Attribute) and ast.unparse(node) == "object.__new__"


@pytest.mark.slow
def test_modules_of_the_native_package_can_be_compiled(tmp_path: Path) -> None:
    modules = native_package.native_modules()
    assert {"planner/planner.py", "simulation/engine/simulation.py", "state/job.py"} <= set(modules)
    done = translated(tmp_path, *modules)
    assert done.returncode == 0, f"name the module in native_package.INTERPRETED: {done.stdout}{done.stderr}"
    assert list(tmp_path.rglob("*.c"))


def test_modules_that_are_not_compiled_exist() -> None:
    assert all((native_package.SOURCE / name).exists() for name in native_package.INTERPRETED)


@pytest.mark.parametrize(
    "source", ["yield from (f(x) for x in a)", "while a != (a := b): pass", "object.__new__(kind)"]
)
def test_expression_that_mypyc_evaluates_otherwise_is_found(source: str) -> None:
    assert any(map(differs_in_native_code, ast.walk(ast.parse(source))))


def test_modules_have_no_such_expression() -> None:
    sources = {name: (native_package.SOURCE / name).read_text() for name in native_package.native_modules()}
    found = [
        f"{name}: {ast.unparse(node)}"
        for name, source in sources.items()
        for node in ast.walk(ast.parse(source))
        if differs_in_native_code(node)
    ]
    assert not found


@pytest.mark.parametrize(
    ("frozen", "copied"),
    [
        ("frozen=True", "unsafe_hash=True"),
        ("frozen=True, slots=True", "unsafe_hash=True, slots=True"),
        ("frozen=True, slots=True, eq=False", "frozen=True, slots=True, eq=False"),
    ],
)
def test_copied_dataclass_keeps_its_hash(frozen: str, copied: str) -> None:
    source = "@dataclass({})\nclass Point: ...\n@dataclass(slots=True, eq=False)\nclass State: ..."
    assert native_package.picklable(source.format(frozen)) == source.format(copied)
