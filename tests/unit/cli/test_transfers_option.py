"""Option ``--transfers``: start rules of transfers, which outputs name and which need gangs and the network model."""

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tranche.cli.main import main

LOG = "job_id,submit_time,num_gpu,duration\na,0,3,100\nb,0,3,100\n"
CLUSTER = "sites:\n- {name: edge, nodes: [{count: 3, gpus: 2}]}\n"
"""Two gangs of three members share one node."""
WORDS = ("--network", "--member-gpus", "1", "--seed", "3")


@pytest.fixture
def given(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "log.csv").write_text(LOG)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    return str(tmp_path / "log.csv"), "--cluster", str(tmp_path / "cluster.yaml")


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def test_start_rule_changes_the_result_and_the_default_does_not(given: tuple[str, ...]) -> None:
    chosen: dict[str, tuple[()] | tuple[str, str]] = {"": ()}
    chosen |= {name: ("--transfers", name) for name in ("shared", "srsf-1", "at-once")}
    found = {
        name: json.loads(run("simulate", *given, *WORDS, "--policy", "fifo", *words, "--format", "json").stdout)
        for name, words in chosen.items()
    }
    jct = {name: one["average_jct_seconds"] for name, one in found.items()}
    assert jct[""] == jct["shared"]
    assert len(set(jct.values())) == 3
    assert "start rule" not in found["shared"]["network"]
    assert found["srsf-1"]["network"].endswith("; start rule of transfers srsf-1)")


def test_each_output_names_the_start_rule(given: tuple[str, ...], tmp_path: Path) -> None:
    words = ("--policies", "fifo,lwf", "--processes", "1", "--out", str(tmp_path / "out"))
    result = run("compare", *given, *WORDS, "--transfers", "adadual", *words)
    assert result.exit_code == 0, result.output
    assert "start rule of transfers adadual" in " ".join(result.stdout.split())
    assert "network model on, start rule of transfers adadual" in (tmp_path / "out/report.html").read_text()
    with (tmp_path / "out/simulations.csv").open(newline="") as rows:
        assert all("start rule of transfers adadual" in row["network"] for row in csv.DictReader(rows))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--no-network",), "--transfers applies to the network model: add --network"),
        (("--network", "--mode", "elastic"), "--transfers adadual applies to gangs, not to elastic jobs"),
    ],
)
def test_start_rule_without_shared_links_is_refused(given: tuple[str, ...], words: tuple[str, ...], why: str) -> None:
    result = run("simulate", *given, "--transfers", "adadual", *words)
    assert (result.exit_code, result.stderr) == (2, f"Error: {why}\n")
