"""A shell in which README and docs are typed: kubectl, helm, the programs of this checkout, one cluster."""

import os
import subprocess
import sys
from pathlib import Path

from pages import ROOT
from tranche_testcluster import Cluster, ensure

PROGRAMS = {"tranche": "tranche.cli.main", "kubectl-tranche": "tranche.cli.kubectl"}


class Shell:
    """Runs command lines in the top folder of the checkout, against a cluster."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.folder = folder
        tools = folder / "bin"
        tools.mkdir()
        for name, path in ensure("kubectl", "helm").items():
            (tools / name).symlink_to(path)
        for name, module in PROGRAMS.items():
            (tools / name).write_text(f"#!{sys.executable}\nfrom {module} import main\nmain()\n")
            (tools / name).chmod(0o755)
        helm = {f"HELM_{name}_HOME": str(folder / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
        self.environment = {
            **os.environ,
            **helm,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "scheduler"), str(ROOT / "operator")]),
            "KUBECONFIG": str(cluster.kubeconfig),
        }
        self.work = folder / "checkout"
        self.work.mkdir()
        for one in ("docs", "helm", "manifests"):
            (self.work / one).symlink_to(ROOT / one)

    def run(self, command: str, *, check: bool = True) -> str:
        """What it prints; fail with what it says if it fails."""
        answer = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=self.work, env=self.environment, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert not check or answer.returncode == 0, f"{command}\n{answer.stdout}{answer.stderr}"
        return answer.stdout
