"""A shell in which README and docs are typed: kubectl, helm, the programs of this checkout, one cluster."""

import os
import subprocess
import sys
from pathlib import Path

from support.doc_pages import ROOT
from tranche_testcluster import Cluster, ensure

PROGRAMS = {"tranche": "tranche.cli.main", "kubectl-tranche": "tranche.cli.kubectl"}


class Shell:
    """Runs command lines in the top folder of a checkout, against a cluster; it remembers what is exported.

    On its PATH are kubectl and helm; our own programs are in .venv/bin, as after ``make setup``.
    """

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.folder = folder
        tools = folder / "bin"
        tools.mkdir()
        for name, path in ensure("kubectl", "helm").items():
            (tools / name).symlink_to(path)
        helm = {f"HELM_{name}_HOME": str(folder / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
        elsewhere = [one for one in os.environ["PATH"].split(os.pathsep) if Path(one) != Path(sys.executable).parent]
        self.environment = {
            **os.environ,
            **helm,
            "PATH": os.pathsep.join([str(tools), *elsewhere]),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "scheduler"), str(ROOT / "operator")]),
            "KUBECONFIG": str(cluster.kubeconfig),
        }
        self.work = folder / "checkout"
        self.work.mkdir()
        for one in ("docs", "helm", "manifests"):
            (self.work / one).symlink_to(ROOT / one)
        ours = self.work / ".venv" / "bin"
        ours.mkdir(parents=True)
        for name, module in PROGRAMS.items():
            (ours / name).write_text(f"#!{sys.executable}\nfrom {module} import main\nmain()\n")
            (ours / name).chmod(0o755)
        self.variables = folder / "variables"
        self.variables.touch()

    def run(self, command: str) -> str:
        """Return the output of the command; fail with its output if it fails."""
        answer = self.answer(command)
        assert answer.returncode == 0, f"{command}\n{answer.stdout}{answer.stderr}"
        return answer.stdout

    def run_until(self, text: str, command: str) -> None:
        """Run what does not end by itself, and end it when it has said this; fail if it ends before."""
        with subprocess.Popen(
            ["/bin/sh", "-c", f"exec {command}"],
            cwd=self.work, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            said = ""
            while text not in said and (line := process.stdout.readline()):
                said += line
            process.terminate()
        assert text in said, f"{command}\n{said}"

    def answer(self, command: str) -> "subprocess.CompletedProcess[str]":
        """Run the command and return its result, whatever its exit code."""
        script = f". {self.variables}\nset -a\n{command}\ncode=$?\nexport -p > {self.variables}\nexit $code"
        return subprocess.run(
            ["/bin/sh", "-c", script],
            cwd=self.work, env=self.environment, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
