"""``tranche simulate``: what it prints where, and how it refuses."""

import csv
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tranche.cli.main import main

HISTORY = Path(__file__).resolve().parents[2] / "data/trainingjobs.json"
HEADER = "job_id,submit_time,num_gpu,duration\n"
LOG = HEADER + "a,0,2,100\nb,10,4,50\nc,20,1,400\nd,30,2,30\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return written(tmp_path, LOG)


def written(folder: Path, text: str | bytes, name: str = "log.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def run(*words: object) -> Result:
    return CliRunner().invoke(main, ["simulate", *map(str, words)])


def answered(*words: object) -> dict[str, Any]:
    result = run(*words, "--format", "json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def refused(*words: object) -> str:
    """The one line of a refusal."""
    result = run(*words)
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_json_output_has_stable_keys_and_settings(log: Path) -> None:
    found = answered(log, "--gpus", 4, "--policy", "fifo", "--mode", "gang")
    assert found["average_jct_seconds"] == pytest.approx((100 + 140 + 530 + 150) / 4)
    assert {"median_jct_seconds", "p99_jct_seconds", "makespan_seconds", "preemptions"} <= found.keys()
    assert found["jobs"] == 4
    assert (found["policy"], found["mode"], found["seed"], found["period_seconds"]) == ("fifo", "gang", 1, 0.0)
    assert (found["restart_seconds"], found["never_fit"], found["skipped_rows"]) == (0.0, [], [])
    assert found["trace"] == str(log)
    assert 0 < found["lower_bound_seconds"] <= found["average_jct_seconds"]


def test_speed_factor_shortens_work_and_leaves_arrivals(log: Path) -> None:
    found = answered(log, "--gpus", 4, "--policy", "fifo", "--speed-factor", 2)
    assert found["speed_factor"] == 2.0
    assert found["average_jct_seconds"] == pytest.approx((50 + 65 + 255 + 60) / 4)
    assert "'--speed-factor'" in refused(log, "--gpus", 4, "--policy", "fifo", "--speed-factor", 0)


def test_the_printed_command_gives_the_same_result(log: Path) -> None:
    first = answered(log, "--gpus", 4, "--policy", "srsf", "--restart-seconds", 2.5, "--load", 0.7, "--quiet")
    assert first["command"] == f"tranche simulate {log} --gpus 4 --restart-seconds 2.5 --policy srsf --load 0.7"
    assert answered(*first["command"].split()[2:]) == first


def test_the_table_is_alone_on_stdout_and_the_notes_on_stderr(tmp_path: Path) -> None:
    log = written(tmp_path, LOG + "huge,40,64,10\n")
    result = run(log, "--gpus", 4, "--policy", "fifo-skip", "--period", 60)
    assert result.exit_code == 0
    assert "decisions every 60 s" in result.stdout
    assert "restart cost 0 s" in result.stdout
    assert "huge" in result.stderr
    assert "huge" not in result.stdout
    assert "tranche simulate" in result.stderr


def test_quiet_leaves_only_the_result(log: Path) -> None:
    assert run(log, "--gpus", 4, "--quiet").stderr == ""


def test_csv_is_one_row_under_a_header(log: Path) -> None:
    result = run(log, "--gpus", 4, "--policy", "fifo", "--format", "csv")
    header, row = result.stdout.splitlines()
    values = dict(zip(header.split(","), row.split(","), strict=False))
    assert float(values["average_jct_seconds"]) == pytest.approx(230)


def test_a_job_that_can_never_fit_is_named_and_stops_no_other(tmp_path: Path) -> None:
    log = written(tmp_path, LOG + "huge,40,64,10\n")
    found = answered(log, "--gpus", 4, "--policy", "srsf")
    assert found["never_fit"] == ["huge"]
    assert found["jobs"] == 4
    assert list(found["reasons"]) == found["never_fit"]


def test_strict_fit_refuses_before_the_run(tmp_path: Path) -> None:
    log = written(tmp_path, LOG + "huge,40,64,10\n")
    line = refused(log, "--gpus", 4, "--strict-fit")
    assert "huge" in line
    assert "1 of 5 jobs" in line


def test_many_jobs_that_never_fit_are_counted_beyond_the_tenth(tmp_path: Path) -> None:
    log = written(tmp_path, LOG + "".join(f"huge{i},40,64,10\n" for i in range(25)))
    result = run(log, "--gpus", 4)
    assert "25 jobs never ran" in result.stderr
    assert "and 15 more" in result.stderr


def test_nothing_that_could_run_is_an_error(tmp_path: Path) -> None:
    assert "huge" in refused(written(tmp_path, HEADER + "huge,0,64,10\n"), "--gpus", 4)


def test_skipped_rows_are_reported_and_the_run_goes_on(tmp_path: Path) -> None:
    log = written(tmp_path, LOG + "bad,40,two,10\n")
    assert "line 6" in refused(log, "--gpus", 4)
    found = answered(log, "--gpus", 4, "--on-error", "skip")
    assert found["jobs"] == 4
    assert len(found["skipped_rows"]) == 1
    assert "line 6" in found["skipped_rows"][0]


def test_limit_takes_the_first_jobs(log: Path) -> None:
    assert answered(log, "--gpus", 4, "--limit", 2)["jobs"] == 2


def test_restart_costs_are_charged(log: Path) -> None:
    free = answered(log, "--gpus", 4, "--policy", "fifo")
    charged = answered(log, "--gpus", 4, "--policy", "fifo", "--restart-seconds", 30)
    assert charged["average_jct_seconds"] > free["average_jct_seconds"] + 29


def test_elastic_jobs_use_what_is_free(tmp_path: Path) -> None:
    log = written(tmp_path, HEADER + "a,0,4,100\n")
    assert answered(log, "--gpus", 2, "--policy", "srsf", "--mode", "elastic")["average_jct_seconds"] == pytest.approx(
        200
    )


def test_the_seed_draws_speeds(log: Path) -> None:
    words = (log, "--gpus", 4, "--speed-sigma", 0.5, "--policy", "fifo")
    one, again, other = (answered(*words, "--seed", seed) for seed in (1, 1, 2))
    assert one == again
    assert one["average_jct_seconds"] != other["average_jct_seconds"]
    assert one["lower_bound_seconds"] is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        (HEADER, "no job"),
        ("job_id,submit_time,num_gpu\na,0,1\n", "duration"),
        (HEADER + "a,0,1,-5\n", "line 2"),
        (HEADER + "a,0,1,nan\n", "line 2"),
        (HEADER + "a,0,1,10\na,1,1,10\n", "line 3"),
        (b"\xff\xfe\x00" * 100, "UTF-8"),
        (b"{", "log.csv"),
        (b"[1, 2]", "log.csv"),
    ],
)
def test_a_log_that_cannot_be_used_is_one_line(tmp_path: Path, text: str | bytes, says: str) -> None:
    assert says in refused(written(tmp_path, text), "--gpus", 4)


def test_a_huge_file_is_refused_without_reading_it(tmp_path: Path) -> None:
    path = written(tmp_path, LOG)
    os.truncate(path, 10 * 2**30)
    assert "log.csv" in refused(path, "--gpus", 4)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "no cluster"),
        (("--gpus", 0), "--gpus"),
        (("--gpus", -1), "--gpus"),
        (("--gpus", "many"), "--gpus"),
        (("--gpus", 4, "--preset", "jsac-edge"), "mutually exclusive"),
        (("--preset", "no-such"), "no-such"),
        (("--gpus", 4, "--policy", "no-such"), "no-such"),
        (("--gpus", 4, "--layout", "no-such"), "no-such"),
        (("--gpus", 4, "--mode", "both"), "both"),
        (("--gpus", 4, "--load", "nan"), "--load"),
        (("--gpus", 4, "--load", "0"), "--load"),
        (("--gpus", 4, "--restart-seconds", "-1"), "--restart-seconds"),
        (("--gpus", 4, "--period", "inf"), "--period"),
        (("--gpus", 4, "--limit", 0), "--limit"),
        (("--gpus", 4, "--jobs", 5), "--arrivals"),
        (("--gpus", 4, "--chunks-per-gpu", 2), "elastic"),
        (("--gpus", 4, "--gpu-resource", "amd.com/gpu"), "applies to the export of a cluster"),
        (("--gpus", 4, "--no-such-option"), "--no-such-option"),
        (("--gpus", 4, "second.csv"), "second.csv"),
    ],
)
def test_options_that_cannot_be_meant_are_one_line(log: Path, words: tuple[object, ...], says: str) -> None:
    assert says in refused(log, *words)


def test_a_missing_log_is_one_line(tmp_path: Path) -> None:
    assert "nowhere.csv" in refused(tmp_path / "nowhere.csv", "--gpus", 4)
    assert "no job log" in refused("--gpus", 4)
    assert "directory" in refused(tmp_path, "--gpus", 4)


def test_broken_yaml_is_one_line(log: Path, tmp_path: Path) -> None:
    assert "cluster.yaml" in refused(log, "--cluster", written(tmp_path, "sites: [\n  - {", "cluster.yaml"))
    assert "cluster.yaml" in refused(log, "--cluster", written(tmp_path, "", "cluster.yaml"))
    assert "cluster.yaml" in refused(log, "--cluster", written(tmp_path, b"\x00\xff", "cluster.yaml"))


def test_a_report_folder_that_is_a_file_is_one_line(log: Path) -> None:
    assert "not a directory" in refused(log, "--gpus", 4, "--out", log)
    assert "not a directory" in refused(log, "--gpus", 4, "--out", log / "below")


def test_a_report_is_written_with_every_job(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "report"
    result = run(log, "--gpus", 4, "--policy", "srsf", "--out", out)
    assert result.exit_code == 0, result.output
    assert {path.suffix for path in out.iterdir()} >= {".csv", ".html"}
    assert str(out) in result.stderr


@pytest.mark.parametrize("policy", ["chunk-faithful", "chunk"])
def test_a_report_has_every_window_of_every_chunk(log: Path, tmp_path: Path, policy: str) -> None:
    words = ("--preset", "jsac-edge", "--arrivals", log, "--jobs", 4, "--policy", policy, "--chunk-scale", 0.1)
    result = run(*words, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    with (tmp_path / f"chunks-{policy}.csv").open() as file:
        rows = list(csv.DictReader(file))
    bound = policy == "chunk-faithful"
    assert len({(row["job"], row["chunk"]) for row in rows}) > 4
    for row in rows:
        assert row["state"] == "done"
        assert float(row["start_seconds"]) < float(row["end_seconds"])
        filled = [row[name] != "" for name in ("slots", "planned_start_seconds", "planned_end_seconds", "q_seconds")]
        assert filled == [bound] * 4
    assert Counter(row["outcome"] for row in rows)["Succeeded"] == len({(row["job"], row["chunk"]) for row in rows})
    assert "chunks-….csv" in (tmp_path / "report.html").read_text()


def test_jobs_of_the_papers_setting_are_drawn_from_the_seed(log: Path) -> None:
    log.write_text(LOG + "e,90,1,1\nf,91,1,1\n")
    words = (
        "--preset",
        "jsac-edge",
        "--arrivals",
        log,
        "--jobs",
        5,
        "--policy",
        "chunk-faithful",
        "--chunk-scale",
        0.1,
    )
    one, again, other = (answered(*words, "--seed", seed) for seed in (1, 1, 2))
    assert one == again
    assert (one["jobs"], one["mode"], one["load"], one["cluster"]) == (5, "elastic", 0.9, "jsac-edge")
    assert one["average_jct_seconds"] != other["average_jct_seconds"]


TWO_SITES = """
sites:
- {name: edge, nodes: [{count: 1, gpus: 1}]}
- {name: cloud, tier: Cloud, unlimited: true}
"""


def test_sites_are_in_the_table_and_in_json(log: Path, tmp_path: Path) -> None:
    cluster = written(tmp_path, TWO_SITES, "two.yaml")
    words = (log, "--cluster", cluster, "--policy", "chunk-faithful", "--mode", "elastic")
    found = answered(*words)
    assert [(one["site"], one["unlimited"]) for one in found["sites"]] == [("cloud", True), ("edge", False)]
    held = sum(one["gpu_seconds"] for one in found["sites"])
    assert held == pytest.approx(found["gpu_seconds"])
    assert found["cloud_gpu_seconds"] == pytest.approx(found["sites"][0]["gpu_seconds"])
    table = run(*words).stdout
    assert "Use of sites" in table
    assert "Cloud, unlimited" in table
    assert "sites" not in run(*words, "--format", "csv").stdout.splitlines()[0].split(",")


def test_a_clusters_history_is_recognised_by_its_content() -> None:
    message = refused(HISTORY, "--gpus", 16)
    assert "team-b/smallest" in message
    assert "or leave it out with --on-error skip" in message
    found = answered(HISTORY, "--gpus", 16, "--policy", "fifo", "--on-error", "skip")
    assert (found["jobs"], found["mode"]) == (7, "recorded")
    assert "team-b/smallest" in found["skipped_rows"][0]


@pytest.mark.parametrize(
    "words",
    [("--mode", "gang"), ("--chunks-per-gpu", 2, "--mode", "elastic"), ("--resample",), ("--member-gpus", 1)],
)
def test_a_clusters_history_is_replayed_as_it_was(words: tuple[object, ...]) -> None:
    assert "history" in refused(HISTORY, "--gpus", 16, "--on-error", "skip", *words)


def test_exit_status_and_streams_of_the_real_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tranche", "simulate", str(written(tmp_path, LOG)), "--policy", "srsf"]
    good = subprocess.run([*command, "--gpus", "4", "--format", "json"], capture_output=True, text=True, check=False)
    assert (good.returncode, good.stderr) == (0, "")
    assert json.loads(good.stdout)["jobs"] == 4
    bad = subprocess.run([*command, "--gpus", "none"], capture_output=True, text=True, check=False)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr.startswith("Error: ")
    assert bad.stderr.count("\n") == 1


WORDS = st.one_of(
    st.sampled_from(["--gpus", "--policy", "--mode", "--load", "--seed", "--preset", "--period", "--limit", "--jobs"]),
    st.sampled_from(["--cluster", "--arrivals", "--layout", "--chunks-per-gpu", "--speed-sigma", "--estimate-sigma"]),
    st.sampled_from(
        ["4", "0", "-1", "nan", "1e308", "0.9", "gang", "elastic", "srsf", "fifo", "jsac-edge", "auto", "LOG", ""]
    ),
    st.text(max_size=8).filter(lambda text: "\0" not in text and text not in ("-h", "--help")),
)


def assert_orderly(result: Result) -> None:
    """A result or one line."""
    assert result.exit_code in (0, 2), (result.output, result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    if result.exit_code == 2:
        assert result.stderr.startswith("Error: ")
        assert result.stderr.count("\n") == 1


@given(words=st.lists(WORDS, max_size=8))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_words_give_a_traceback(log: Path, words: list[str]) -> None:
    assert_orderly(run(log, *(str(log) if word == "LOG" else word for word in words)))


CELLS = st.one_of(
    st.sampled_from(["", "0", "1", "8", "-1", "nan", "inf", "1e9", '"', "a", "#", "{"]), st.text(max_size=4)
)
ROWS = st.lists(st.lists(CELLS, max_size=5).map(",".join), max_size=6).map("\n".join)


@given(content=st.one_of(st.binary(max_size=200), ROWS.map(lambda rows: (HEADER + rows).encode("utf-8", "replace"))))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_give_a_traceback(tmp_path: Path, content: bytes) -> None:
    log = written(tmp_path, content)
    for words in (("--mode", "gang"), ("--mode", "elastic", "--on-error", "skip")):
        assert_orderly(run(log, "--gpus", 8, "--policy", "srsf", *words))
