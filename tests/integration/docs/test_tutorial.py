"""docs/tutorial.md, typed as it is written, to the first finished job and beyond."""

import re

import pytest

from pages import ROOT, blocks
from releases import Release
from shells import Shell
from tranche_testcluster import Cluster

PAGE = ROOT / "docs/tutorial.md"
NOT_HERE = {
    "make demo KEEP=1": "tests/integration and `make demo` itself: it starts a cluster of its own",
    "export PATH=$PWD/.venv/bin:$PATH": "the programs of this checkout are on the PATH",
}
COMMANDS = [line for block in blocks(PAGE) for line in block.commands]


def test_the_tutorial_leads_to_finished_jobs(own: Cluster, shell: Shell) -> None:
    assert COMMANDS[: len(NOT_HERE)] == list(NOT_HERE)
    install, *rest = COMMANDS[len(NOT_HERE) :]
    assert install.startswith("helm install ")
    assert "is installed in the namespace tranche-system" in shell.run(install)
    with Release(own):
        said = {command: shell.run(command) for command in rest}
    assert "planned completion" in said["kubectl tranche whatif -f docs/samples/first.yaml"]
    assert "trainingjob.tranche.dev/first created" in said["kubectl apply -f docs/samples/first.yaml"]
    assert re.search(r"waits|worker|chunks|planned", said["kubectl tranche why first"])
    assert said["kubectl get trainingjob first -o jsonpath='{.status.progress.chunks}'"] == "4/4"
    assert said["kubectl tranche history first"].count("Succeeded") >= 2
    waits = [text for command, text in said.items() if command.startswith("kubectl wait")]
    assert [text.count("condition met") for text in waits] == [1, 4]
    assert said[rest[-1]].count("deleted") == 4
    assert own.kubectl("get", "trainingjobs", "-A", "-o", "name") == ""


def test_the_page_has_no_command_that_nobody_typed() -> None:
    assert set(NOT_HERE) <= set(COMMANDS)
    assert len(COMMANDS) - len(NOT_HERE) >= 15


def test_a_command_that_fails_is_seen(shell: Shell) -> None:
    with pytest.raises(AssertionError, match="nobody"):
        shell.run("kubectl get trainingjob nobody")
