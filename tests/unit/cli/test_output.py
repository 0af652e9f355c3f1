"""Tables that never lose a figure, and lists that never grow without end."""

import io

import click
import pytest
from rich.console import Console
from rich.table import Table

from tranche.cli.errors import InputError
from tranche.cli.option_types import LOAD
from tranche.cli.output import csv_of, full_width, json_of, named, never_ran, print_table, progress_bar, transposed


def table(columns: int) -> Table:
    made = Table(box=None)
    for number in range(columns):
        made.add_column(f"heading {number}")
    made.add_row(*(f"value {number}" for number in range(columns)))
    return made


def test_too_wide_table_is_transposed_and_keeps_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(table(40), "what it depends on")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[1:40]] == [["heading", str(n), "value", str(n)] for n in range(1, 40)]
    assert lines[-1] == "what it depends on"


def test_a_table_that_fits_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(table(3), "below")
    assert capsys.readouterr().out.splitlines()[1].split() == ["value", "0", "value", "1", "value", "2"]


def test_turning_narrows() -> None:
    console = Console(file=io.StringIO(), width=80)
    assert full_width(console, transposed(table(30))) < 80 < full_width(console, table(30))


def test_progress_bar_is_absent_on_a_pipe() -> None:
    with progress_bar("jobs", quiet=False) as on_progress:
        assert on_progress is None


def test_ten_are_named_and_the_rest_counted() -> None:
    items = [str(number) for number in range(1234)]
    assert named(items) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, and 1,224 more"
    assert named(items[:2]) == "0, 1"


def test_jobs_with_one_reason_share_it() -> None:
    reasons = [("a", "too large"), ("b", "no such site"), ("c", "too large")]
    assert never_ran(reasons, 3) == "3 jobs never ran: a, c (too large); b (no such site)"
    assert never_ran(reasons[:1], 1) == "1 job never ran: a (too large)"
    assert never_ran(reasons[:1], 5).endswith("; and 4 more")


def test_what_is_not_a_number_is_null_in_json_and_empty_in_csv() -> None:
    assert json_of({"a": float("nan")}) == '{\n  "a": null\n}'
    assert csv_of([{"a": float("nan"), "b": ["x", "y"]}, {"b": None, "c": 1}]) == "a,b,c\n,x y,\n,,1\n"


def test_an_input_error_is_one_line_and_exit_status_two() -> None:
    error = InputError("first\n  second")
    assert (error.format_message(), error.exit_code) == ("first second", 2)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999", "0", "x", ""])
def test_numbers_are_finite_and_in_range(text: str) -> None:
    with pytest.raises(click.BadParameter):
        LOAD.convert(text, None, None)
