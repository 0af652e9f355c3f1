"""The Dockerfile, the locked requirements and the chart say the same."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def pins(name: str) -> set[str]:
    """The locked requirements of a file, each with its hashes."""
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    return {block.strip() for block in re.split(r"(?m)^(?=[A-Za-z0-9])", text) if "==" in block}


@pytest.mark.parametrize("name", ["build.txt", "runtime.txt"])
def test_what_an_image_installs_is_what_is_developed_with(name: str) -> None:
    assert pins(name)
    assert pins(name) <= pins("dev.txt")


def test_every_install_is_checked_by_hash_or_offline() -> None:
    joined = DOCKERFILE.replace("\\\n", " ")
    installs = re.findall(r"pip[^&\n]* (?:install|wheel) [^&\n]*", joined)
    assert len(installs) == 4
    for install in installs:
        assert "--require-hashes" in install or "--no-index" in install or "--no-build-isolation" in install


def test_nothing_runs_as_root() -> None:
    stages = re.split(r"(?m)^FROM ", DOCKERFILE)[1:]
    runtime = next(stage for stage in stages if stage.startswith("python:3.13-slim AS runtime"))
    assert "USER 65532:65532" in runtime
    assert all(stage.startswith("runtime AS ") for stage in stages[2:])
    assert not any("USER" in stage for stage in stages[2:])


def test_the_chart_runs_the_targets_and_their_programs() -> None:
    targets = set(re.findall(r"(?m)^FROM runtime AS (\w+)$", DOCKERFILE))
    values = yaml.safe_load((ROOT / "helm" / "tranche" / "values.yaml").read_text(encoding="utf-8"))
    assert {f"tranche-{target}" for target in targets} == {
        values[target]["image"]["repository"] for target in ("scheduler", "operator")
    }
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert set(re.findall(r'(?m)^ENTRYPOINT \["([\w-]+)"\]$', DOCKERFILE)) <= set(scripts)


def test_the_build_context_holds_what_the_wheel_is_built_from() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*wheel["packages"], *wheel.get("force-include", {}), project["project"]["readme"], "pyproject.toml"}
    needed |= set(project["project"]["license-files"])
    kept = set(re.findall(r"(?m)^!(\S+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8")))
    assert {path.split("/")[0] for path in needed} <= kept
