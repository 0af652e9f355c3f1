"""The steps of docs/how-to/add-a-policy.md, followed in a copy of the repository."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.doc_pages import ROOT, blocks
from support.typed_commands import typed_by

PAGE = ROOT / "docs/how-to/add-a-policy.md"
MODULE, REGISTRATION, TEST = (block.text for block in blocks(PAGE) if block.language == "python")
LIST, GENERATE, RUN_TESTS = typed_by("tests/unit/docs/test_add_a_policy.py", "docs/how-to/add-a-policy.md")
CODE = ("scheduler", "operator", "worker", "testcluster", "observability", "tools", "tests")
"""Folders on the path of the programs."""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository in which the policy is written and registered as the page says."""
    copy = tmp_path_factory.mktemp("checkout") / "tranche"
    shutil.copytree(
        ROOT, copy, ignore=shutil.ignore_patterns(".*", "build", "dist", "report", "__pycache__", "pictures")
    )
    (copy / ".venv").symlink_to(Path(sys.executable).parent.parent)
    page = PAGE.read_text(encoding="utf-8")
    for name, text in {
        "scheduler/tranche/policies/queue/wsjf.py": MODULE,
        "tests/unit/policies/test_wsjf.py": TEST,
    }.items():
        assert f"Create `{name}`" in page
        (copy / name).write_text(text, encoding="utf-8")
    registry = copy / "scheduler/tranche/policies/registry.py"
    assert str(registry.relative_to(copy)) in page
    (entry,) = [line for line in REGISTRATION.splitlines() if "sjf" in line]
    before, after = registry.read_text(encoding="utf-8").split("\n}\n", 1)
    assert "_CLASSES = {" in before
    registry.write_text(f"{before}\n{entry}\n}}\n{after}", encoding="utf-8")
    return copy


def typed(checkout: Path, command: str) -> str:
    """Type a command of the page in the copy and return what it prints; the copy's code comes before the installed."""
    command = command.replace("PYTHONPATH=tools ", "")
    path = os.pathsep.join(str(checkout / name) for name in CODE)
    answer = subprocess.run(
        ["/bin/sh", "-c", command], cwd=checkout, env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


def test_the_example_is_a_module_of_24_lines() -> None:
    assert len(MODULE.splitlines()) == 24


def test_the_page_lists_the_commands_in_the_order_of_its_steps() -> None:
    assert "tranche policies" in LIST
    assert "tranche_codegen.reference" in GENERATE
    assert "pytest" in RUN_TESTS


def test_the_policy_is_listed_after_its_registration(checkout: Path) -> None:
    lines = [line.split() for line in typed(checkout, LIST).splitlines()]
    assert ["wsjf", "live,"] in [words[:2] for words in lines]
    assert "weights: yes" in typed(checkout, f"{LIST} wsjf"), "it divides by the weight"


@pytest.mark.slow
def test_the_reference_page_and_the_tests_of_the_page_succeed(checkout: Path) -> None:
    reference = checkout / "docs/reference/policies.md"
    assert "## wsjf" not in reference.read_text(encoding="utf-8")
    typed(checkout, GENERATE)
    assert "## wsjf\n\nShortest remaining time over weight first" in reference.read_text(encoding="utf-8")
    assert " passed" in typed(checkout, RUN_TESTS)


@pytest.mark.slow
def test_the_example_fails_if_its_rank_ignores_the_weight(checkout: Path) -> None:
    module = checkout / "scheduler/tranche/policies/queue/wsjf.py"
    module.write_text(MODULE.replace(" / state.job.weight", ""), encoding="utf-8")
    try:
        with pytest.raises(AssertionError, match="default/heavy"):
            typed(checkout, RUN_TESTS.replace(" tests/unit/docs/test_references.py", ""))
    finally:
        module.write_text(MODULE, encoding="utf-8")


def test_the_example_passes_ruff(checkout: Path) -> None:
    names = ("scheduler/tranche/policies", "tests/unit/policies/test_wsjf.py")
    subprocess.run([sys.executable, "-m", "ruff", "check", *names], cwd=checkout, check=True)
