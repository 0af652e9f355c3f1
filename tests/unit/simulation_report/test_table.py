"""Runs as text: for people, for programs."""

import csv
import json
from dataclasses import replace

import pytest
from rich.console import Console

from support.simulated_results import full_result, job_result, report_run
from tranche.simulation.analysis.summary import summarize
from tranche.simulation.engine.result import SimulationResult
from tranche.simulation_report import format_csv, format_table, job_rows
from tranche.simulation_report.formatting import format_duration
from tranche.simulation_report.table import runs_json

EMPTY = summarize(SimulationResult((), {"default/giant": "never fits"}))


def printed(rows: list[tuple[str, object]]) -> str:
    console = Console(width=250, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        console.print(format_table(rows))  # type: ignore[arg-type]
    return console.export_text()


def test_the_table_has_units_and_one_row_a_run() -> None:
    text = printed([("fifo", summarize(full_result())), ("srsf", summarize(full_result()))])
    assert "fifo" in text
    assert "srsf" in text
    assert "average (s)" in text
    assert " 50 " in text  # the average
    assert "46.9 %" in text
    assert "unfinished" in text


def test_each_time_column_has_one_unit_of_its_own() -> None:
    long = full_result()
    days = replace(summarize(long), average_jct_seconds=5 * 86_400.0, median_jct_seconds=7_200.0)
    hours = replace(summarize(long), average_jct_seconds=3 * 86_400.0, median_jct_seconds=90_000.0)
    text = printed([("fifo", days), ("srsf", hours)])
    assert "average (d)" in text
    assert "median (h)" in text
    assert [line.split()[:3] for line in text.splitlines()[-2:]] == [["fifo", "5", "2"], ["srsf", "3", "25"]]


def test_the_table_shows_what_is_undefined_as_a_dash() -> None:
    assert "–" in printed([("fifo", EMPTY)])
    assert "nan" not in printed([("fifo", EMPTY)])


def test_labels_are_no_markup() -> None:
    assert "[red]las:order=x[/nothing]" in printed([("[red]las:order=x[/nothing]", summarize(full_result()))])


def test_only_runs_that_left_jobs_have_the_column_for_them() -> None:
    finished = SimulationResult((job_result("a"),))
    assert "unfinished" not in printed([("fifo", summarize(finished))])


def test_json_keeps_full_precision_and_the_keys_of_the_summary() -> None:
    (run,) = json.loads(runs_json("t", [report_run(bound=1 / 3)], ()))["runs"]
    assert run["average_jct_seconds"] == 50.0
    assert {"median_jct_seconds", "p99_jct_seconds", "makespan_seconds", "preemptions", "jobs"} <= run.keys()
    assert (run["run"], run["bound_seconds"]) == ("srsf", 1 / 3)


def test_json_says_null_where_a_figure_is_undefined() -> None:
    text = runs_json("t", [report_run(result=SimulationResult(()), bound=float("inf"))], ())
    (run,) = json.loads(text, parse_constant=pytest.fail)["runs"]
    assert run["average_jct_seconds"] is None
    assert run["bound_seconds"] is None
    assert run["jobs"] == 0


def test_csv_reads_back_with_all_keys() -> None:
    summary = summarize(full_result())
    rows = list(csv.DictReader(format_csv([('a "quoted", label', summary), ("none", EMPTY)]).splitlines()))
    assert rows[0]["run"] == 'a "quoted", label'
    assert {key: float(value) for key, value in rows[0].items() if key != "run"} == summary.as_dict()
    assert rows[1]["average_jct_seconds"] == ""


def test_job_rows_list_every_job_and_reason_of_unfinished_ones() -> None:
    header, *rows = job_rows(full_result())
    assert {len(row) for row in rows} == {len(header)}
    named = [dict(zip(header, row, strict=True)) for row in rows]
    assert [row["job"] for row in named] == ["default/small", "default/large", "default/moved", "default/giant"]
    assert named[1]["slowdown"] == pytest.approx(1.5)
    assert (named[3]["state"], named[3]["reason"]) == ("unfinished", "needs 64 GPUs, the largest node has 4")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (0.00001, "<0.001 s"),
        (0.25, "0.25 s"),
        (59.0, "59 s"),
        (60.0, "1 min"),
        (5400.0, "1.5 h"),
        (266400.0, "3.08 d"),
        (1e9, "11,574 d"),
        (float("nan"), "–"),
        (float("inf"), "–"),
    ],
)
def test_durations_have_the_unit_that_suits_them(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_a_run_knows_its_distance_to_the_bound() -> None:
    assert report_run(bound=40.0).over_bound == pytest.approx(1.25)
    assert report_run(bound=None).over_bound is None
