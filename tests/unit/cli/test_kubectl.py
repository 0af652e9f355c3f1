"""``kubectl tranche`` without a cluster: what its page says of commands and exit statuses, and its columns."""

import csv
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from support.operator_objects import plan, training_job
from tranche.cli.kubectl import answer, main
from tranche.cli.kubectl_tables import (
    attempts_text,
    columns,
    completion_text,
    plan_text,
    queue_text,
    sites_text,
    usage_csv,
    usage_text,
)
from tranche.cli.main import main as tranche_main
from tranche.client.job_history import Attempt, History
from tranche.client.job_usage import JobUsage, by_namespace
from tranche.web import job_views

PAGE = (Path(__file__).resolve().parents[3] / "docs/how-to/kubectl-plugin.md").read_text()


def test_the_page_has_every_command_and_no_other() -> None:
    assert set(re.findall(r"^\| `kubectl tranche (\w+)", PAGE, re.M)) == set(main.commands)


def test_the_page_and_the_help_agree_on_exit_statuses() -> None:
    numbers = re.findall(r"^ +(\d)  ", CliRunner().invoke(main, ["--help"]).stdout, re.M)
    assert numbers == re.findall(r"^\| (\d) \|", PAGE, re.M)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--context", "edge", "queue"), "No such option '--context'. Options follow the command. Use "),
        (("why",), "Missing argument 'JOB'.\n"),
    ],
)
def test_wrong_command_line_says_in_one_line_what_to_do(words: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert message in result.stderr


@pytest.mark.parametrize("group", [main, tranche_main], ids=["kubectl-tranche", "tranche"])
def test_help_cuts_no_sentence_at_80_columns(group: click.Group) -> None:
    result = CliRunner().invoke(group, ["--help"], terminal_width=80)
    assert result.exit_code == 0
    assert not re.search(r"\.\.\.$", result.stdout.partition("Commands:")[2], re.M)


def test_plan_of_a_waiting_job_says_why_it_has_no_windows() -> None:
    job = training_job(status={"phase": "Waiting", "plan": plan(estimatedStart="2026-11-22T14:00:00Z")})
    why = "no windows yet: a window opens when a worker starts; --chunks prints the forecast of each chunk"
    assert plan_text(job_views.detail(job)).splitlines()[-2:] == ["", why]
    unplannable = training_job(status={"phase": "Waiting", "plan": plan()})
    assert "no windows" not in plan_text(job_views.detail(unplannable))


def test_queue_and_plan_show_the_interval_of_the_completion() -> None:
    interval = {"earliest": "2026-11-22T13:00:00Z", "latest": "2026-11-22T16:00:00Z"}
    expected = plan(estimatedCompletion="2026-11-22T14:00:00Z", completionInterval=interval)
    job = training_job(status={"phase": "Running", "plan": expected})
    sentence = "2026-11-22 14:00:00Z (80 %: 2026-11-22 13:00:00Z to 2026-11-22 16:00:00Z)"
    assert sentence in queue_text([job_views.summary(job)], "ns")
    assert f"\nplanned completion  {sentence}\n" in plan_text(job_views.detail(job))
    assert completion_text(job_views.summary(job)) == f"planned completion {sentence}"
    assert completion_text(job_views.summary(training_job(status={"phase": "Running", "plan": plan()}))) == ""


@pytest.mark.parametrize("phase", ["Running", "Waiting"])
def test_start_of_a_running_job_is_that_of_its_first_pod(phase: str) -> None:
    next_window = plan(estimatedStart="2026-11-22T14:05:00Z")
    job = training_job(status={"phase": phase, "startTime": "2026-11-22T14:00:00Z", "plan": next_window})
    shown = {"Running": "2026-11-22 14:00:00Z", "Waiting": "2026-11-22 14:05:00Z"}
    assert f"  {shown[phase]}  " in queue_text([job_views.summary(job)], "ns")
    assert ("planned start" in plan_text(job_views.detail(job))) == (phase == "Waiting")


def test_queue_shows_when_jobs_have_started_and_completed() -> None:
    times = {"startTime": "2026-11-22T14:00:00Z", "completionTime": "2026-11-22T15:00:00Z"}
    job = training_job(status={"phase": "Succeeded", "plan": plan(), **times})
    assert "2026-11-22 14:00:00Z   2026-11-22 15:00:00Z" in queue_text([job_views.summary(job)], "ns")


def test_queue_and_plan_show_the_trained_share() -> None:
    progress = {"chunks": "0/40", "batches": 5687.3, "trained": "23 %"}
    job = training_job(status={"phase": "Running", "plan": plan(), "progress": progress})
    assert queue_text([job_views.summary(job)], "ns").splitlines()[1].split()[2:5] == ["0/40", "23", "%"]
    assert "\ntrained             23 %\n" in plan_text(job_views.detail(job))


def test_columns_fit_their_widest_cell_without_truncation() -> None:
    text = columns(["NAME", "WHY"], [["a-long-name", "x" * 300], ["b", ""]])
    assert text.splitlines() == ["NAME          WHY", f"a-long-name   {'x' * 300}", "b             -"]


def test_the_use_of_sites_is_a_row_for_each() -> None:
    used = [
        {"site": "cloud", "gpuSeconds": 5400, "chunks": 3, "copiedBytes": 4_500_000_000, "inVainBytes": 1_500_000_000},
        {"site": "edge-a", "gpuSeconds": 90, "chunks": 1, "copiedBytes": 0, "inVainBytes": 0},
    ]
    assert sites_text(used).splitlines() == [
        "",
        "SITE     GPU-HOURS   CHUNKS   COPIED GB   UNUSED GB",
        "cloud    1.50        3        4.50        1.50",
        "edge-a   0.03        1        0.00        0.00",
    ]
    assert sites_text([]) == ""


USED = JobUsage(
    "lab", "cats", "u-1", "Succeeded", 1, None, datetime(2026, 11, 1, 12, tzinfo=UTC), 5400.0, 3600.0, 36.0, 0.0
)


def test_usage_is_a_row_for_each_job_and_the_sum() -> None:
    assert usage_text([USED, USED]).splitlines() == [
        "NAMESPACE   NAME   PHASE       ENDED                  HELD GPU-HOURS   TRAINED   LOST   RUNNING",
        "lab         cats   Succeeded   2026-11-01 12:00:00Z   1.50             1.00      0.01   0.00",
        "lab         cats   Succeeded   2026-11-01 12:00:00Z   1.50             1.00      0.01   0.00",
        "total       -      -           -                      3.00             2.00      0.02   0.00",
    ]
    assert usage_text([]) == "no TrainingJobs\n"


def test_usage_of_a_namespace_has_its_number_of_jobs() -> None:
    assert usage_text(by_namespace([USED, USED])).splitlines()[1:] == [
        "lab         2      3.00             2.00      0.02   0.00",
        "total       2      3.00             2.00      0.02   0.00",
    ]


def test_usage_as_csv_has_seconds_and_the_keys_of_json() -> None:
    (row,) = csv.DictReader(usage_csv([USED]).splitlines())
    assert row == {
        "namespace": "lab", "name": "cats", "uid": "u-1", "phase": "Succeeded", "jobs": "1", "created": "",
        "completed": "2026-11-01T12:00:00Z", "heldGpuSeconds": "5400.000", "trainedGpuSeconds": "3600.000",
        "lostGpuSeconds": "36.000", "runningGpuSeconds": "0.000",
    }  # fmt: skip


def history(count: int, **changes: Any) -> History:
    """A history that lists five attempts of `count`."""
    listed = [Attempt(n, "worker", 0, f"a-worker-0-{n}", "n1", None, None, "Succeeded", "", 0) for n in range(21, 26)]
    totals = {"Succeeded": 12, "Preempted": 13}
    return History("ns", "a", "Running", listed, [], attempt_count=count, attempt_totals=totals, **changes)


def test_truncated_history_says_how_many_it_leaves_out() -> None:
    line = "last 5 of 25 (ended: 13 Preempted, 12 Succeeded)"
    assert attempts_text(history(25)).splitlines()[-1] == line
    assert "last" not in attempts_text(history(5))


def test_history_lists_the_victims_of_a_job() -> None:
    victims = [{"job": "ns/b", "workers": 2, "at": "2026-11-22T14:00:00Z"}]
    text = attempts_text(history(5, victims=victims, preempted_workers=9))
    assert text.splitlines()[-3:] == [
        "PREEMPTED              JOB    WORKERS",
        "2026-11-22 14:00:00Z   ns/b   2",
        "last 2 of 9 workers",
    ]


def test_control_characters_of_a_sentence_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    answer({"output": "table"}, {}, "n1: stat /\x1b[2J\x9b: no such file\nnext \u202eline …")
    assert capsys.readouterr().out == "n1: stat /\\x1b[2J\\x9b: no such file\nnext \\u202eline …\n"


def test_missing_kubeconfig_gives_one_error_line_with_a_remedy() -> None:
    result = CliRunner().invoke(main, ["queue", "--kubeconfig", "/nowhere"])
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert "use --kubeconfig or --context, or set KUBECONFIG" in result.stderr


@pytest.mark.parametrize(
    "content", ["# a page\n**no YAML", "[1, 2]", "clusters: 3\ncurrent-context: a", "\x00", "a: 1"]
)
def test_file_that_is_no_kubeconfig_gives_one_error_line(content: str, tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(content)
    result = CliRunner().invoke(main, ["queue", "--kubeconfig", str(file)])
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1), result.exception
    assert str(file) in result.stderr
    assert "use --kubeconfig or --context, or set KUBECONFIG" in result.stderr


@pytest.mark.parametrize("group", [main, tranche_main], ids=["kubectl-tranche", "tranche"])
@pytest.mark.parametrize("word", ["frobnicate", "--frobnicate", "é"])
def test_unknown_command_or_option_gives_one_error_line(group: click.Group, word: str) -> None:
    result = CliRunner().invoke(group, [word])
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert word in result.stderr
    assert "--help" in result.stderr
