"""``tranche batch-size``."""

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from support.doc_pages import ROOT, blocks
from support.typed_commands import BATCH_SIZE, typed_by
from tranche.cli.main import main

WORKED = ["--rate", "2", "--places", "8", "--base-time", "1", "--item-time", "0.2"]
MEMORY = ["--base-memory", "2Gi", "--item-memory", "1Gi", "--memory-limit", "6Gi"]


def asked(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["batch-size", *arguments])


def test_table_has_the_best_limits_and_the_comparators() -> None:
    rows = [line.split() for line in asked(*WORKED, *MEMORY).stdout.splitlines()]
    assert [row[:4] for row in rows[1:]] == [
        ["best", "2", "4", "3.1328"],
        ["single", "1", "1", "10.231"],
        ["fixed", "4", "4", "3.3511"],
        ["greedy", "1", "8", "2.7448"],
    ]
    assert " ".join(rows[4]).endswith("10 (over the limit)")
    assert "over" not in rows[1]


def test_command_of_the_page_prints_what_the_page_shows() -> None:
    page = "docs/reference/systems/batopt.md"
    (command,) = typed_by(BATCH_SIZE, page)
    shown = [block.text for block in blocks(ROOT / page) if block.text.startswith("choice")]
    assert [CliRunner().invoke(main, shlex.split(command)[1:]).stdout] == shown


def test_json_names_units_and_memory() -> None:
    (best, *_) = json.loads(asked(*WORKED, *MEMORY, "--format", "json").stdout)["choices"]
    assert (best["choice"], best["least"], best["most"]) == ("best", 2, 4)
    assert best["memory_bytes"] == 6 * 2**30
    assert best["loss"] == pytest.approx(0.033, abs=1e-4)


def test_csv_has_one_line_for_each_choice() -> None:
    lines = asked(*WORKED, "--format", "csv").stdout.splitlines()
    assert lines[0].startswith("choice,least,most,delay_seconds,loss,")
    assert [line.partition(",")[0] for line in lines[1:]] == ["best", "single", "fixed", "greedy"]


def test_measured_times_take_the_place_of_the_formula(tmp_path: Path) -> None:
    file = tmp_path / "times.csv"
    file.write_text("size,seconds\n" + "".join(f"{size},{1 + 0.2 * size}\n" for size in range(1, 9)))
    sampled = asked("--rate", "2", "--places", "8", "--samples", str(file))
    assert sampled.stdout == asked(*WORKED).stdout
    file.write_text("size,seconds\n1,1.2\nx,2\n")
    wrong = asked("--rate", "2", "--places", "8", "--samples", str(file))
    assert (wrong.exit_code, wrong.stderr.count("\n")) == (2, 1)
    assert "line 3: expected numbers in the columns size and seconds" in wrong.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rate", "2", "--places", "8"], "either --samples, or --base-time and --item-time"),
        ([*WORKED, "--base-memory", "9Gi", "--memory-limit", "8Gi"], "no batch keeps both limits"),
        (["--rate", "2", "--places", "8", "--base-time", "0"], "service times above 0"),
        ([*WORKED, "--item-memory", "-1Gi"], "'-1Gi' is negative"),
    ],
    ids=["no times", "no memory", "zero times", "negative size"],
)
def test_impossible_options_are_one_line(arguments: list[str], message: str) -> None:
    result = asked(*arguments)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert message in result.stderr


def test_server_that_loses_nearly_all_requests_has_a_delay() -> None:
    overloaded = ["--rate", "1e9", "--places", "4", "--base-time", "1e9", "--item-time", "0", "--format", "json"]
    result = asked(*overloaded)
    assert result.exit_code == 0, result.exception
