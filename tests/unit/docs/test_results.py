"""The commands of docs/reference/results are those that their generator runs, on files of this repository."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from results import Table, shown, tables
from support.constraint_trials import POLICIES
from support.doc_pages import ROOT, blocks
from support.policy_groups import DISTRIBUTING

HUB = ROOT / "docs/reference/results.md"
PAGES = [HUB, *sorted((ROOT / "docs/reference/results").glob("*.md"))]


@pytest.mark.parametrize("table", tables(), ids=lambda table: table.name)
def test_table_stands_below_the_commands_that_make_it(table: Table) -> None:
    assert table.pages
    for page in table.pages:
        rest = page.read_text(encoding="utf-8").partition(f"<!-- table {table.name} -->\n")[2]
        commands = rest.partition("```sh\n")[2].partition("\n```")[0]
        assert commands.splitlines() == [shown(command) for command in table.commands]


def test_commands_of_the_page_name_files_that_exist() -> None:
    commands = [command for page in PAGES for block in blocks(page) for command in block.commands]
    files = {word for one in commands for word in shlex.split(one) if re.search(r"\.(csv|csv\.gz|py|json|yaml)$", word)}
    assert len(files) > 10
    assert {name for name in files if not (ROOT / name).is_file()} == set()


def test_explanations_are_measured_under_every_live_policy() -> None:
    page = (ROOT / "docs/reference/results/default-policy.md").read_text(encoding="utf-8")
    table = page.partition("<!-- table explanations -->")[2].partition("<!-- end")[0]
    few = page.partition("<!-- table explanations-of-distributions -->")[2].partition("<!-- end")[0]
    expected = [name for name in POLICIES if name not in DISTRIBUTING]
    assert re.findall(r"(?m)^\| (\S+) \| \d+ / 1000 \|", table) == expected
    assert re.findall(r"(?m)^\| (\S+) \| \d+ / 50 \|", few) == list(DISTRIBUTING)


def test_page_lists_every_benchmark_that_make_runs() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    listed = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    programs = set(re.findall(r"benchmarks/\w+\.py", makefile))
    assert len(programs) > 30
    assert {program for program in programs if program not in listed} == set()


def recipe(target: str) -> list[str]:
    """Return the commands that a target of the Makefile passes to tools/run_in_turn.py."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    lines = makefile.partition(f"\n{target}:")[2].partition("\n\n")[0]
    return re.findall(r'^\t\t"(.*)"', lines, re.MULTILINE)


def test_page_lists_the_commands_of_make_systems() -> None:
    table = HUB.read_text(encoding="utf-8").partition("| system | command | draws |")[2].partition("\n\n")[0]
    listed = re.findall(r"`python ([^`]*)`", table)
    assert len(listed) > 10
    assert sorted(listed) == sorted(recipe("systems"))


@pytest.mark.parametrize("page", sorted((ROOT / "docs/reference/systems").glob("*.md")), ids=lambda page: page.stem)
def test_make_runs_the_programs_that_a_page_names(page: Path) -> None:
    programs = set(re.findall(r"benchmarks/\w+\.py", page.read_text(encoding="utf-8")))
    run = {command.split()[0] for target in ("systems", "bench") for command in recipe(target)}
    assert programs <= run


@pytest.mark.parametrize("page", sorted((ROOT / "docs/reference/systems").glob("*.md")), ids=lambda page: page.stem)
def test_make_runs_the_measurements_of_a_page(page: Path) -> None:
    """A part of a program (`--only`), a picture or more output may be left out, and no other option."""

    def measured(command: str) -> str:
        return re.sub(r" --(only \S+|pictures?( \S+\.png)?|pairs)", "", command).strip()

    text = page.read_text(encoding="utf-8")
    commands = re.findall(r"(?:python |`)(benchmarks/\w+\.py[^`\n|]*)", text)
    commands += [f"-m tranche {one}" for one in re.findall(r"(?m)^tranche (compare --preset.*)", text)]
    run = {measured(command) for target in ("systems", "bench") for command in recipe(target)}
    assert {measured(command) for command in commands} <= run


@pytest.mark.parametrize("page", sorted((ROOT / "docs/reference/systems").glob("*.md")), ids=lambda page: page.stem)
def test_make_runs_the_parts_that_a_page_names(page: Path) -> None:
    parts = re.findall(r"benchmarks/utility_policies\.py (\w+)", page.read_text(encoding="utf-8"))
    run = {command.split()[1] for command in recipe("systems") if "utility_policies" in command}
    assert set(parts) <= run


def documented_options() -> dict[str, set[str]]:
    """Return the options of each benchmark on any page."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    found: dict[str, set[str]] = {}
    for page in pages:
        for program, rest in re.findall(r"python (benchmarks/[\w/]+\.py)([^`\n|]*)", page.read_text(encoding="utf-8")):
            if options := re.findall(r"--[\w-]+", rest):
                found.setdefault(program, set()).update(options)
    return found


@pytest.mark.parametrize(("program", "options"), sorted(documented_options().items()))
def test_benchmark_has_the_options_that_pages_name(program: str, options: set[str]) -> None:
    completed = subprocess.run(
        [sys.executable, program, "--help"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    assert options <= set(re.findall(r"--[\w-]+", completed.stdout))
