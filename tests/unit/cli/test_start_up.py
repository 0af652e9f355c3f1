"""The commands import what they need: help and the simulator load no server, no Kubernetes client and no plotting."""

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest

from tranche.auth.report_certificate import renewed
from tranche.cli.api import certificate_times, unready
from tranche.cli.main import COMMANDS, main
from tranche.metrics.scheduler import API, Metrics
from tranche.runtime.server_tls import ServerTls

ROOT = Path(__file__).resolve().parents[3]
HEAVY = (
    "aiohttp",
    "cryptography",
    "distributed",
    "fastapi",
    "highspy",
    "kopf",
    "kubernetes",
    "matplotlib",
    "msgspec",
    "prometheus_client",
    "pydantic",
    "scipy",
    "uvicorn",
    "yaml",
)
"""Packages that cost a tenth of a second or more, or belong to the live product."""
SIMULATE = ["simulate", "data/traces/tiresias_60.csv", "--gpus", "16", "--policy", "srsf"]


def imported(words: list[str], names: tuple[str, ...], program: str = "main") -> str:
    code = (
        f"import sys\nsys.argv[1:] = {words!r}\nfrom tranche.cli.{program} import main\nmain(standalone_mode=False)\n"
        f"print(sorted({set(names)!r} & set(sys.modules)), file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return ran.stderr.splitlines()[-1]


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["policies"], SIMULATE], ids=lambda words: words[0])
def test_command_imports_nothing_of_the_live_product(words: list[str]) -> None:
    assert imported(words, HEAVY) == "[]"


def test_simulation_imports_its_policy_alone() -> None:
    names = tuple(f"tranche.policies.{name}" for name in ("queue.chunk", "queue.srsf", "slot_table.pd_ors"))
    assert imported(SIMULATE, names) == "['tranche.policies.queue.srsf']"


@pytest.mark.parametrize("name", ["extender", "api"])
def test_process_without_planner_does_not_import_one(name: str) -> None:
    assert imported([name, "--help"], ("tranche.planner", "tranche.policies", "tranche.state")) == "[]"


def test_help_of_the_plugin_imports_no_client() -> None:
    assert imported(["--help"], (*HEAVY, "tranche.client", "tranche.planner"), "kubectl") == "[]"


def test_help_of_the_group_imports_no_command() -> None:
    assert imported(["--help"], ("numpy", "rich", "tranche.model", "tranche.policies")) == "[]"


def test_api_without_a_certificate_is_not_ready(tmp_path: Path) -> None:
    tls = ServerTls(tmp_path / "tls.crt", tmp_path / "tls.key")
    assert unready(lambda: ["jobs"], tls)() == ["jobs", "certificate"]
    assert unready(list, None)() == []


def test_certificate_times_are_those_of_the_loaded_one(tmp_path: Path) -> None:
    tls = ServerTls(tmp_path / "tls.crt", tmp_path / "tls.key")
    assert certificate_times(tls) == certificate_times(None) == []
    now = datetime(2026, 11, 28, tzinfo=UTC)
    for name, content in (renewed({}, ["reports"], now) or {}).items():
        (tmp_path / name).write_bytes(content)
    assert tls.reload()
    metrics = Metrics(parts=(API,))
    metrics.set_certificate(lambda: certificate_times(tls))
    text = metrics.render().decode()
    for name, days in (("before", -1), ("after", 90)):
        instant = (now + timedelta(days=days)).timestamp()
        (line,) = re.findall(rf"^tranche_report_certificate_not_{name}_timestamp_seconds (.*)$", text, re.MULTILINE)
        assert float(line) == instant


@pytest.mark.parametrize("name", COMMANDS)
def test_listed_sentence_is_the_first_of_the_command(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.get_short_help_str(limit=200) == COMMANDS[name]
