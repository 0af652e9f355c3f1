"""tranche as a whole, and kubectl with our plugin on its PATH."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.full_stack import System, full_stack
from tranche_testcluster.binaries import binary_cache

LOGGED = ("large", "broken")
"""Jobs whose pods print something."""
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    names = [f"{job}-worker-{index}-{attempt}" for job in LOGGED for index in (0, 1) for attempt in (1, 2, 3)]
    logs = {f"default/{name}": f"{name} begins\nloss 0.50\nloss 0.25\n" for name in names}
    with full_stack({"edge-a": {"nodes": 2, "gpus": 1}}, cluster={"pod_logs": logs}) as made:
        yield made


@pytest.fixture(scope="module")
def kubectl(system: System, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run the real kubectl as the cluster's administrator, or with another kubeconfig."""
    folder = tmp_path_factory.mktemp("bin")
    script = folder / "kubectl-tranche"
    script.write_text(f"#!{sys.executable}\nfrom tranche.cli.kubectl import main\nmain()\n")
    script.chmod(0o755)
    program = binary_cache.ensure("kubectl")["kubectl"]

    def run(*words: str, kubeconfig: Path | None = None, text: str = "") -> "subprocess.CompletedProcess[str]":
        environment = {
            **os.environ,
            "PATH": f"{folder}:{os.environ['PATH']}",
            "KUBECONFIG": str(kubeconfig or system.cluster.kubeconfig),
            "PYTHONWARNINGS": "error",
        }
        command = [str(program), *words]
        return subprocess.run(command, capture_output=True, text=True, env=environment, input=text, check=False)

    return run
