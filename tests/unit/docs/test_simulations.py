"""The commands with which README and docs simulate, run as they are written."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.doc_pages import ROOT
from support.typed_commands import SIMULATIONS, every_command, simulations

ROWS = ROOT / "scheduler/tranche/demo/data/elasticflow_cluster06_rows_1650_1689.csv"
T0 = 1_800_000_000
JOBS = 12
"""In the log, and in place of the number that a command asks for: else a test would take a minute."""


def smaller(arguments: list[str]) -> list[str]:
    """The same with fewer jobs, where their number is said."""
    at = arguments.index("--jobs") + 1 if "--jobs" in arguments else None
    return [str(JOBS) if i == at else word for i, word in enumerate(arguments)]


def log() -> str:
    """Real rows, again and again."""
    head, *rows = [line for line in ROWS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    parts = [rows[i % len(rows)].split(",") for i in range(JOBS)]
    lines = [f"{i},{int(p[1]) + 90_000 * (i // len(rows))},{p[2]},{p[3]}" for i, p in enumerate(parts)]
    return "\n".join([head, *lines, ""])


def jobs() -> str:
    """Return the output of kubectl for jobs whose durations are known."""
    listed = json.loads((ROOT / "tests/data/trainingjobs.json").read_text(encoding="utf-8"))
    known = [item for item in listed["items"] if "stepTime" in item["spec"].get("model", {})]
    assert len(known) > 3
    return json.dumps({**listed, "items": known})


def export() -> str:
    """A node, and pods that have had its GPU."""

    def stamp(second: int) -> str:
        return datetime.fromtimestamp(T0 + second, UTC).isoformat()

    def pod(name: str, created: int, started: int, ended: int) -> dict[str, Any]:
        state = {"terminated": {"startedAt": stamp(started), "finishedAt": stamp(ended)}}
        resources = {"limits": {"nvidia.com/gpu": "1"}}
        return {
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "team", "creationTimestamp": stamp(created)},
            "spec": {"containers": [{"name": "t", "resources": resources}], "nodeName": "n1"},
            "status": {"phase": "Succeeded", "containerStatuses": [{"name": "t", "state": state}]},
        }

    allocatable = {"cpu": "8", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "1"}
    node = {"kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": allocatable}}
    items = [pod("long", 0, 0, 1000), pod("short", 10, 1000, 1100), node]
    return json.dumps({"kind": "List", "items": items})


def test_there_are_commands_to_try() -> None:
    assert {one[1] for one in simulations()} == {"simulate", "compare", "replay", "policies"}
    simulated = {one.page for one in every_command() if one.typed_by == SIMULATIONS}
    assert {"README.md", "docs/reference/presets.md"} <= simulated


@pytest.mark.slow
@pytest.mark.parametrize("command", simulations(), ids=" ".join)
def test_a_command_runs_as_it_is_written(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    for name, text in {"LOG.csv": log(), "jobs.json": jobs(), "export.json": export()}.items():
        (tmp_path / name).write_text(text)
    answer = subprocess.run(
        [sys.executable, "-m", "tranche", *smaller(command[1:])],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout
    if "--out" in command:
        assert list((tmp_path / command[command.index("--out") + 1]).iterdir())
