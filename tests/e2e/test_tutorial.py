"""docs/tutorial/real-containers.md, typed as it is written on the nodes that `make containers` starts."""

from pathlib import Path

from support.doc_shell import Shell
from support.real_lab import Installed
from support.typed_commands import CONTAINERS, typed_by

PAGE = "docs/tutorial/real-containers.md"


def test_tutorial_stops_and_resumes_workers(installed: Installed, tmp_path: Path) -> None:
    shell = Shell(installed.cluster, tmp_path)
    shell.run("export PATH=$PWD/.venv/bin:$PATH")  # the line that `make containers` prints
    said = {command: shell.run(command) for command in typed_by(CONTAINERS, PAGE)}
    assert said["kubectl get nodes"].count(" Ready ") == 3
    assert "batch" in next(text for command, text in said.items() if "kubectl logs" in command)
    history = said["kubectl tranche history containers"]
    assert history.count(" 143 ") == 2, history
    assert history.count("Succeeded") >= 2, history
