"""``tranche compare``: ratios, reproducibility, and where it runs."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tranche.cli.main import main
from tranche.simulation import scenario as scenarios
from tranche.simulation_report.table import columns_of, shown_cells

HEADER = "job_id,submit_time,num_gpu,duration\n"
LOG = HEADER + "".join(f"{i},{20 * i},{1 + i % 4},{40 + 60 * (i % 5)}\n" for i in range(20))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    return path


def run(*words: object) -> Result:
    return CliRunner().invoke(main, ["compare", *map(str, words)])


def answered(*words: object) -> dict[str, Any]:
    result = run(*words, "--processes", 1, "--format", "json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def refused(*words: object) -> str:
    result = run(*words)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_ratios_are_to_the_first_policy_within_a_load(log: Path) -> None:
    found = answered(log, "--gpus", 4, "--policies", "fifo,srsf", "--loads", "0.7,1.1")
    rows = [(row["load"], row["policy"]) for row in found["comparisons"]]
    assert rows == [(0.7, "fifo"), (0.7, "srsf"), (1.1, "fifo"), (1.1, "srsf")]
    fifo, srsf = found["comparisons"][2:]
    ratio = srsf["ratios"]["average_jct_seconds"]
    assert ratio["mean"] == pytest.approx(srsf["average_jct_seconds"] / fifo["average_jct_seconds"])
    assert ratio["half_width_95"] is None
    assert fifo["ratios"]["average_jct_seconds"]["mean"] == 1.0
    assert 0 < srsf["lower_bound_seconds"] == fifo["lower_bound_seconds"] <= srsf["average_jct_seconds"]


def test_another_baseline(log: Path) -> None:
    found = answered(log, "--gpus", 4, "--policies", "fifo,srsf", "--baseline", "srsf")
    assert found["comparisons"][1]["ratios"]["average_jct_seconds"]["mean"] == 1.0
    assert found["comparisons"][0]["ratios"]["average_jct_seconds"]["mean"] > 1.0


def test_a_figure_is_the_one_that_simulate_gives(log: Path) -> None:
    found = answered(log, "--gpus", 4, "--policies", "srsf", "--loads", "0.9")["comparisons"][0]
    words = ["simulate", str(log), "--gpus", "4", "--policy", "srsf", "--load", "0.9", "--format", "json"]
    single = json.loads(CliRunner().invoke(main, words).stdout)
    assert {key: found[key] for key in ("average_jct_seconds", "p99_jct_seconds", "lower_bound_seconds")} == {
        key: single[key] for key in ("average_jct_seconds", "p99_jct_seconds", "lower_bound_seconds")
    }


def test_printed_command_repeats_figures_for_any_process_count(log: Path) -> None:
    words = (log, "--gpus", 4, "--policies", "fifo,srsf", "--loads", "0.8", "--seeds", 3, "--resample")
    first = answered(*words)
    result = run(*first["command"].split()[2:], "--processes", 2, "--format", "json")
    assert json.loads(result.stdout) == first


def test_resampling_gives_an_interval(log: Path) -> None:
    found = answered(log, "--gpus", 4, "--policies", "fifo,srsf", "--seeds", 3, "--resample")
    ratio = found["comparisons"][1]["ratios"]["average_jct_seconds"]
    assert ratio["seeds"] == 3
    assert ratio["half_width_95"] > 0


def test_seeds_that_draw_nothing_are_said_to(log: Path) -> None:
    result = run(log, "--gpus", 4, "--policies", "fifo,srsf", "--seeds", 3, "--processes", 1)
    assert result.exit_code == 0
    assert "fifo, srsf: no confidence interval" in result.stderr
    assert result.stdout.startswith("Simulated; ratios to fifo")
    assert "±" not in result.stdout


def test_the_table_shows_both_policies_and_what_they_depend_on(log: Path) -> None:
    result = run(log, "--gpus", 4, "--policies", "fifo,srsf", "--period", 30, "--processes", 1)
    assert "fifo" in result.stdout
    assert "srsf" in result.stdout
    assert "decisions every 30 s" in result.stdout
    assert "tranche compare" in result.stderr


def test_the_confidence_interval_is_named_where_there_is_one(log: Path) -> None:
    result = run(log, "--gpus", 4, "--policies", "fifo,srsf", "--seeds", 3, "--resample", "--processes", 1)
    assert result.stdout.startswith("Simulated, means over seeds; ratios to fifo within a seed, ± 95 % confidence")


def test_the_cost_of_the_cloud_is_a_column_of_each_policy(log: Path, tmp_path: Path) -> None:
    cluster = tmp_path / "two.yaml"
    cluster.write_text(
        "sites:\n- {name: edge, nodes: [{count: 1, gpus: 1}]}\n- {name: cloud, tier: Cloud, unlimited: true}\n"
    )
    words = (log, "--cluster", cluster, "--policies", "least-loaded,chunk-faithful", "--mode", "elastic")
    assert "cloud GPU h" in run(*words, "--processes", 1).stdout
    found = json.loads(run(*words, "--processes", 1, "--format", "json").stdout)
    hours = {one["policy"]: one["cloud_gpu_seconds"] for one in found["comparisons"]}
    assert hours["chunk-faithful"] > 0.0


def test_csv_has_a_row_a_simulation(log: Path) -> None:
    result = run(log, "--gpus", 4, "--policies", "fifo,srsf", "--loads", "0.7,0.9", "--processes", 1, "--format", "csv")
    rows = list(csv.DictReader(result.stdout.splitlines()))
    assert [(row["policy"], row["load"]) for row in rows] == [
        ("fifo", "0.7"),
        ("srsf", "0.7"),
        ("fifo", "0.9"),
        ("srsf", "0.9"),
    ]


def test_a_report_holds_every_simulation(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "report"
    words = ("--policies", "fifo,srsf", "--seeds", 2, "--resample", "--out", out, "--processes", 1)
    result = run(log, "--gpus", 4, *words)
    assert result.exit_code == 0, result.output
    assert len((out / "simulations.csv").read_text().splitlines()) == 5
    facts = json.loads((out / "comparison.json").read_text())
    assert facts["baseline"] == "fifo"
    page = (out / "report.html").read_text()
    assert "the table has means over the seeds; pictures, use of sites, summary and jobs are for seed 1" in page
    assert re.search(r'<th scope="row">srsf</th><td>0\.\d+ ± [0-9.]+</td>', page), "the ratio, as in the terminal"
    means = facts["comparisons"]
    bounds = [one["lower_bound_seconds"] for one in means]
    for one in means:
        cells = shown_cells(one, columns_of(means, bounds=bounds), one["lower_bound_seconds"])
        assert "".join(f"<td>{cell}</td>" for cell in cells) in page, "the means, as in the terminal"
    assert f" --out {out}\n" in result.stderr, "the command repeats the report"


def test_policies_that_ignore_transfers_are_noted(log: Path) -> None:
    words = ("--preset", "jsac-cloud10", "--arrivals", log, "--jobs", 3)
    found = answered(*words, "--policies", "srsf,chunk,srtf:uploads=held,fifo")
    assert found["notes"][:2] == [
        "srsf, fifo: all data of a job are uploaded to every site from its arrival on; chunk plans transfers",
        "srtf:uploads=held: a worker holds its GPU while the data of its chunks are uploaded; chunk plans transfers",
    ]
    assert not any("transfers" in note for note in answered(log, "--gpus", 4, "--policies", "srsf")["notes"])


def test_a_job_that_never_fits_is_named_once_for_each_policy(log: Path) -> None:
    log.write_text(LOG + "huge,500,64,10\n")
    result = run(log, "--gpus", 4, "--policies", "fifo-skip,srsf", "--loads", "0.7,0.9", "--processes", 1)
    assert result.exit_code == 0
    assert [line.partition(":")[0] for line in result.stderr.splitlines() if "huge" in line] == [
        "fifo-skip",
        "srsf",
    ]
    assert "huge" in refused(log, "--gpus", 4, "--policies", "srsf", "--strict-fit")


def test_policy_that_rejects_jobs_is_noted_and_has_no_ratio(log: Path) -> None:
    """A binding policy does not plan gangs."""
    log.write_text(HEADER + "a,0,1,100\nb,0,4,100\n")
    cluster = log.parent / "cluster.yaml"
    cluster.write_text(TWO_NODES)
    found = answered(log, "--cluster", cluster, "--policies", "srsf,chunk-faithful")
    assert found["comparisons"][1]["unfinished"] == 1
    assert found["comparisons"][1]["ratios"] == {}
    assert any("chunk-faithful" in note and "b" in note for note in found["notes"])


def test_bound_is_left_out_for_other_completed_jobs(log: Path, tmp_path: Path) -> None:
    """The jobs that a policy leaves out may be the longest: the others may be below the bound of all."""
    log.write_text(HEADER + "a,0,1,100\nb,0,4,100000\n")
    cluster, out = log.parent / "cluster.yaml", tmp_path / "report"
    cluster.write_text(TWO_NODES)
    found = answered(log, "--cluster", cluster, "--policies", "srsf,chunk-faithful", "--out", out)
    srsf, other = found["comparisons"]
    assert other["average_jct_seconds"] < srsf["lower_bound_seconds"]
    assert other["lower_bound_seconds"] is None
    assert [run["bound_seconds"] is None for run in json.loads((out / "summary.json").read_text())["runs"]] == [
        False,
        True,
    ]
    assert any("no lower bound" in note for note in found["notes"])


TWO_NODES = """
sites:
  - name: edge
    nodes:
      - {count: 2, gpus: 2}
"""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--policies", "no-such"), "no-such"),
        (("--policies", "fifo,fifo"), "twice"),
        (("--policies", ""), "''"),
        (("--policies", "fifo", "--baseline", "srsf"), "--baseline"),
        (("--policies", "fifo", "--loads", "0.9,0.9"), "twice"),
        (("--policies", "fifo", "--loads", "x"), "--loads"),
        (("--policies", "fifo", "--loads", "-1"), "--loads"),
        (("--policies", "fifo", "--seeds", "0"), "--seeds"),
        (("--policies", "fifo", "--processes", "0"), "--processes"),
        (("--policies", "fifo", "--processes", "2", "--dask", "tcp://127.0.0.1:1"), "mutually exclusive"),
        (("--policies", "fifo", "--figures", "svg"), "--figures needs --out DIR"),
        ((), "--policies"),
    ],
)
def test_options_that_cannot_be_meant_are_one_line(log: Path, words: tuple[str, ...], says: str) -> None:
    assert says in refused(log, "--gpus", 4, *words)


def test_a_failed_simulation_is_named_and_the_exit_status_is_one(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(scenario: Any, on_progress: Any = None) -> Any:
        if scenario.policy == "fifo":
            raise RuntimeError("out of luck")
        return scenarios.run(scenario, on_progress)

    monkeypatch.setattr("tranche.simulation.study.run", fails)
    result = run(log, "--gpus", 4, "--policies", "srsf,fifo", "--processes", 1, "--format", "json")
    assert result.exit_code == 1
    assert "Error: fifo (seed 1) failed: RuntimeError: out of luck" in result.stderr
    assert [row["policy"] for row in json.loads(result.stdout)["comparisons"]] == ["srsf"]


def test_a_dask_cluster_that_is_not_there_is_one_line(log: Path) -> None:
    assert "no Dask scheduler responded" in refused(
        log, "--gpus", 4, "--policies", "fifo", "--dask", "tcp://127.0.0.1:9"
    )
    assert "--dask" in refused(log, "--gpus", 4, "--policies", "fifo", "--dask", "nonsense://x")


@pytest.mark.filterwarnings("default")
def test_a_dask_cluster_gives_the_same_figures(log: Path) -> None:
    from distributed import LocalCluster

    words = (log, "--gpus", 4, "--policies", "fifo,srsf", "--seeds", 2, "--resample")
    here = answered(*words)
    options = {"processes": False, "n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options) as cluster:  # type: ignore[no-untyped-call]
        result = run(*words, "--dask", cluster.scheduler_address, "--format", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == here


@pytest.mark.parametrize(("chosen", "said"), [((), "on"), (("--no-network",), "off")])
def test_each_output_says_whether_the_network_is_modelled(
    log: Path, tmp_path: Path, chosen: tuple[str, ...], said: str
) -> None:
    words = ("--arrivals", log, "--preset", "edge-cloud", "--jobs", 2, "--chunk-scale", 0.02, "--loads", 0.9, *chosen)
    words = (*words, "--policies", "fifo", "--processes", 1)
    table = " ".join(run(*words, "--out", tmp_path).stdout.split())
    assert f"network model {said}" in table
    assert f"on edge-cloud, network model {said}" in (tmp_path / "report.html").read_text()
    found = json.loads((tmp_path / "comparison.json").read_text())
    assert found["network"].partition(" ")[0] == said
    with (tmp_path / "simulations.csv").open(newline="") as rows:
        assert [row["network"] for row in csv.DictReader(rows)] == [found["network"]]
