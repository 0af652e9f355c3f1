"""Options of the presets after JSAC'22 on the command line: what they change, print, and do not go with."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tranche.cli.main import main

LOG = "job_id,submit_time,num_gpu,duration\n" + "".join(f"j{at},{at * at},1,60\n" for at in range(12))
CLUSTER = """
gpuKinds: {A100: 1.0}
sites:
  - name: here
    nodes: [{count: 2, gpus: 2, gpu: A100}]
  - name: there
    nodes: [{count: 1, gpus: 2, gpu: A100}]
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    return path


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [*map(str, words)])


def answered(*words: object) -> dict[str, Any]:
    result = run(*words, "--format", "json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def drawn(log: Path, *words: object, preset: str = "jsac-cloud") -> dict[str, Any]:
    usual = ("--preset", preset, "--arrivals", log, "--jobs", 4, "--chunk-scale", 0.1, "--policy", "chunk-faithful")
    return answered("simulate", *usual, *words)


def test_jsac_is_jsac_edge_and_a_warning_says_so(log: Path) -> None:
    words = ("--arrivals", log, "--jobs", 3, "--chunk-scale", 0.1, "--policy", "fifo", "--format", "csv")
    old, new = (run("simulate", "--preset", preset, *words) for preset in ("jsac", "jsac-edge"))
    assert old.stderr == "Warning: preset jsac is now called jsac-edge: use --preset jsac-edge\n"
    assert new.stderr == ""
    assert old.stdout.replace("--preset jsac ", "--preset jsac-edge ") == new.stdout


def test_the_result_names_load_and_options(log: Path) -> None:
    usual = drawn(log)
    assert usual["options"] == "delay outside, draw log-uniform, chunk scale 0.1"
    assert usual["command"].endswith(" --load 0.9")
    options = ("--delay", "home", "--draw", "uniform", "--speeds", "mixed", "--epochs", 20, "--delay-scale", 0.5)
    other = drawn(log, *options, "--cloud-delay-scale", 4, "--load", 0.7)
    assert other["options"] == (
        "delay home, draw uniform, speeds mixed, epochs 20, edge delay scale 0.5, cloud delay scale 2, chunk scale 0.1"
    )
    table = run("simulate", *other["command"].split()[2:])
    assert f"jsac-cloud ({other['options']})" in table.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("--draw", "uniform"),
        ("--delay", "outside"),
        ("--speeds", "mixed"),
        ("--ps-hosts", 1, "--workers-per-edge", 9),
        ("--edges", 3),
        ("--workers-per-edge", 1),
        ("--epochs", 60),
        ("--delay-scale", 2),
        ("--edge-delay-scale", 0.5),
        ("--bandwidth-scale", 0.1),
        ("--gradient-scale", 10),
    ],
)
def test_every_option_changes_figures_and_command_repeats_them(log: Path, words: tuple[object, ...]) -> None:
    changed = drawn(log, *words, preset="jsac-edge")
    assert changed["average_jct_seconds"] != drawn(log, preset="jsac-edge")["average_jct_seconds"]
    assert answered(*changed["command"].split()[1:]) == changed


def test_command_repeats_a_run_without_the_network_model(log: Path) -> None:
    words = ("--preset", "edge-cloud", "--arrivals", log, "--jobs", 2, "--chunk-scale", 0.1, "--no-network")
    first = answered("simulate", *words, "--policy", "fifo")
    assert " --no-network " in first["command"]
    assert answered(*first["command"].split()[1:]) == first


def test_compare_takes_the_options_and_names_the_load(log: Path) -> None:
    words = ("--preset", "jsac-cloud", "--arrivals", log, "--jobs", 3, "--chunk-scale", 0.1, "--cloud-delay-scale", 0)
    found = answered("compare", *words, "--policies", "chunk-faithful", "--processes", 1)
    assert found["command"].endswith(" --cloud-delay-scale 0 --policies chunk-faithful --loads 0.9")
    single = drawn(log, "--cloud-delay-scale", 0, "--jobs", 3)
    assert found["comparisons"][0]["average_jct_seconds"] == single["average_jct_seconds"]
    assert found["options"] == single["options"]


def test_jobs_are_drawn_for_a_cluster_file(log: Path, tmp_path: Path) -> None:
    cluster = tmp_path / "jsac-cloud.yaml"
    cluster.write_text(CLUSTER)
    words = ("--cluster", cluster, "--arrivals", log, "--jobs", 3, "--chunk-scale", 0.1, "--policy", "chunk-faithful")
    home, outside = answered("simulate", *words), answered("simulate", *words, "--delay", "outside")
    assert (home["jobs"], home["options"]) == (3, "delay home, draw log-uniform, chunk scale 0.1")
    assert outside["average_jct_seconds"] != home["average_jct_seconds"]


def test_a_log_runs_on_a_preset_with_other_workers(log: Path) -> None:
    found = answered("simulate", log, "--preset", "jsac-edge", "--edges", 2, "--workers-per-edge", 5)
    assert (found["capacity_gpus"], found["options"]) == (10, "edges 2, workers per edge 5")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ("LOG", "--preset", "jsac-cloud", "--draw", "uniform"),
            "--draw applies to drawn jobs: add --preset and --arr",
        ),
        (
            ("LOG", "--preset", "jsac-cloud", "--delay", "home", "--epochs", 9),
            "--delay and --epochs apply to drawn jobs",
        ),
        (("LOG", "--preset", "jsac-cloud", "--ps-hosts", 1), "--ps-hosts applies to drawn jobs"),
        (("LOG", "--gpus", 4, "--jobs", 9), "--jobs applies to drawn jobs: add --arrivals"),
        (("LOG", "--gpus", 4, "--speeds", "mixed"), "--speeds applies to the jsac presets"),
        (("--arrivals", "LOG", "--preset", "edge-cloud", "--edges", 3), "--edges applies to the jsac presets"),
        (("--arrivals", "LOG", "--preset", "edge-cloud", "--delay-scale", 2), "can be scaled only with delay=outside"),
        (("--arrivals", "LOG", "--preset", "jsac-cloud", "--edges", 0), "--edges"),
        (("--arrivals", "LOG", "--preset", "jsac-cloud", "--draw", "normal"), "--draw"),
        (("--arrivals", "LOG", "--preset", "jsac-cloud", "--bandwidth-scale", 0), "--bandwidth-scale"),
        (("--arrivals", "LOG", "--preset", "jsac-cloud", "--delay-scale", "nan"), "--delay-scale"),
        (
            ("--arrivals", "LOG", "--preset", "jsac-cloud", "--delay-scale", 1000, "--cloud-delay-scale", 1000),
            "cloud_delay_scale is 1000000.0: it must be 0 or more, at most 1000",
        ),
    ],
)
def test_options_that_do_not_apply_are_one_line(log: Path, words: tuple[object, ...], says: str) -> None:
    result = run("simulate", *(log if word == "LOG" else word for word in words))
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr
    assert result.stderr.count("\n") == 1
