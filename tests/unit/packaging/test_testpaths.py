"""Folders of tests that pytest runs without arguments."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_pytest_runs_all_folders_of_tests_but_e2e() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    folders = {str(file.relative_to(ROOT).parents[-3]) for file in (ROOT / "tests").rglob("test_*.py")}
    assert set(settings["testpaths"]) == folders - {"tests/e2e"}
