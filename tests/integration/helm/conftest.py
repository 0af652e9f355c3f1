import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.yaml_text import load_all_yaml
from tranche_testcluster import ensure

ROOT = Path(__file__).resolve().parents[3]
Run = Callable[..., "subprocess.CompletedProcess[str]"]
Render = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run helm with a home of its own; the chart is in the working folder as ``tranche``."""
    program = ensure("helm")["helm"]
    home = tmp_path_factory.mktemp("helm")
    folders = {f"HELM_{name}_HOME": str(home / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), **folders}

    def run(*arguments: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        answer = subprocess.run(
            [str(program), *arguments], cwd=ROOT / "helm", env=environment, capture_output=True, text=True, check=False
        )
        assert not check or answer.returncode == 0, answer.stderr
        return answer

    return run


@pytest.fixture(scope="session")
def render(helm: Run) -> Render:
    """The objects that the chart renders, for a namespace and more arguments of ``helm template``."""

    def objects(*arguments: str, namespace: str = "tranche-system") -> list[dict[str, Any]]:
        text = helm("template", "tranche", "tranche", "-n", namespace, *arguments).stdout
        return [document for document in load_all_yaml(text) if document]

    return objects
