"""The Dockerfile, the locked requirements and the chart say the same."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from support.image_tools import tool, write_sbom
from support.yaml_text import load_yaml

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


def test_the_dockerfile_names_no_architecture() -> None:
    assert not re.search(r"amd64|x86|arm64|aarch64|--platform", DOCKERFILE)


def test_all_base_images_can_be_chosen_by_digest() -> None:
    bases = re.findall(r"(?m)^FROM (\S+) AS (?:build|runtime)$", DOCKERFILE)
    assert bases == 2 * ["${PYTHON_IMAGE}${PYTHON_DIGEST:+@${PYTHON_DIGEST}}"]
    assert {base for base in re.findall(r"(?m)^FROM (\S+)", DOCKERFILE) if base != "runtime"} == set(bases)
    (first,) = re.findall(r"(?ms)\A(.*?)^FROM ", DOCKERFILE)
    assert 'ARG PYTHON_DIGEST=""' in first, "an argument after FROM has no effect on FROM"


def test_nothing_runs_as_root() -> None:
    stages = re.split(r"(?m)^FROM ", DOCKERFILE)[1:]
    runtime = next(stage for stage in stages if stage.partition("\n")[0].endswith(" AS runtime"))
    assert "USER 65532:65532" in runtime
    assert all(stage.startswith("runtime AS ") for stage in stages[2:])
    assert not any("USER" in stage for stage in stages[2:])


def test_the_chart_runs_the_targets_and_their_programs() -> None:
    targets = set(re.findall(r"(?m)^FROM runtime AS (\w+)$", DOCKERFILE))
    values = load_yaml((ROOT / "helm" / "tranche" / "values.yaml").read_text(encoding="utf-8"))
    assert {f"tranche-{target}" for target in targets - {"worker"}} == {
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


def lint(text: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([str(tool("hadolint")), "-"], input=text, capture_output=True, text=True, check=False)


def test_hadolint_has_nothing_to_say() -> None:
    assert (lint(DOCKERFILE).returncode, lint(DOCKERFILE).stdout) == (0, "")
    wrong = lint(DOCKERFILE.replace("WORKDIR /src", "WORKDIR src"))
    assert wrong.returncode == 1
    assert "DL3000" in wrong.stdout


def test_the_version_of_the_images_is_that_of_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert re.findall(r"(?m)^ARG VERSION=(\S+)$", DOCKERFILE) == [version]
    assert set(re.findall(r"-t tranche-\w+:(\S+)", DOCKERFILE)) == {version}


@pytest.mark.slow
def test_the_wheel_is_built_from_what_the_context_lets_through(tmp_path: Path) -> None:
    context = tmp_path / "context"
    context.mkdir()
    for name in re.findall(r"(?m)^!(\S+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8")):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, context / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, context / name)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=context, env=environment, capture_output=True, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl"), "for every architecture"
    packages = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packages == {"tranche", "tranche_operator", "tranche_worker", "tranche_testcluster"}
    for module, word in (("tranche", "simulate"), ("tranche_operator", "--health-port")):
        command = [sys.executable, "-m", module, "--help"]
        inside = {**environment, "PYTHONPATH": str(wheel)}
        answer = subprocess.run(command, cwd=tmp_path, env=inside, capture_output=True, text=True, check=True)
        assert word in answer.stdout


@pytest.mark.slow
def test_sbom_lists_every_pin_and_is_reproducible(tmp_path: Path) -> None:
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    write_sbom(first)
    write_sbom(second)
    assert first.read_bytes() == second.read_bytes()
    bill = json.loads(first.read_text(encoding="utf-8"))
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "tranche")
    listed = {(part["name"], part["version"]) for part in bill["components"]}
    pinned = {tuple(re.match(r"([\w.-]+)==([^\s;\\\\]+)", pin).groups()) for pin in pins("runtime.txt")}  # type: ignore[union-attr]
    assert listed == pinned
