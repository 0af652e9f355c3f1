"""benchmarks/sizing.py at its smallest size, on a real control plane."""

import dataclasses
import json
import subprocess
import sys

import pytest

from sizing import Result, Size, table
from support.doc_pages import ROOT


@pytest.mark.walkthrough
def test_smallest_size_has_every_figure() -> None:
    script = ROOT / "benchmarks/sizing.py"
    answer = subprocess.run(
        [sys.executable, str(script), "--sizes", "1:2:3", "--json"],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    (found,) = json.loads(answer.stdout)
    assert found["size"] == {"nodes": 1, "jobs": 2, "chunks": 3}
    assert found["seconds"] >= 5.0, "a chunk takes ten mini-batches of half a second"
    programs = {"scheduler: planner", "scheduler: extender", "scheduler: api", "operator", "kube-scheduler", "etcd"}
    assert programs <= set(found["peak_bytes"])
    assert min(found["peak_bytes"].values()) > 2**20
    assert sum(found["cpu_seconds"].values()) > 0
    assert found["requests"]["POST"] >= 2 + 2, "the jobs and their pods"
    assert found["largest_job_bytes"] >= found["ended_job_bytes"] > 500


def test_table_has_rows_of_sizes_and_columns_of_figures() -> None:
    one = Result(
        Size(1, 2, 3), 0.5, 9.0, {"operator": 1.25}, {"operator": 3 * 2**20, "etcd": 2**20}, {"POST": 4}, 900, 850.4
    )
    other = Result(Size(10, 2, 3), 0.5, 9.0, {}, {"operator": 2**20}, {"PATCH": 7000}, 901, 850.6)
    head, rule, first, second = table([one, dataclasses.replace(other, peak_bytes=one.peak_bytes)]).splitlines()
    assert head == (
        "| nodes | jobs | chunks | s | operator, CPU s; MiB | etcd, CPU s; MiB | POST | PATCH "
        "| largest job, bytes | ended job, bytes |"
    )
    assert rule.count("--:") == head.count("|") - 1
    assert first == "| 1 | 2 | 3 | 9.0 | 1.2; 3 | 0.0; 1 | 4 | 0 | 900 | 850 |"
    assert second == "| 10 | 2 | 3 | 9.0 | 0.0; 3 | 0.0; 1 | 0 | 7,000 | 901 | 851 |"


@pytest.mark.parametrize("size", ["1:2", "1:2:x", "1:0:3"])
def test_wrong_size_is_one_line_with_an_example(size: str) -> None:
    script = ROOT / "benchmarks/sizing.py"
    answer = subprocess.run([sys.executable, str(script), "--sizes", size], capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert f"'{size}' is not NODES:JOBS:CHUNKS, such as 100:100:20" in answer.stderr
