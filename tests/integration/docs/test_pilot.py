"""docs/how-to/pilot.md, typed as it is written: from read access to a pilot in one namespace, and back."""

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.doc_pages import ROOT
from support.doc_shell import Shell
from support.installed_release import Release
from support.typed_commands import PILOT, SIMULATIONS, commands, typed_by
from support.waiting import WAIT_SECONDS, eventually
from tranche_testcluster import Cluster, free_port

pytestmark = pytest.mark.walkthrough

PAGE = "docs/how-to/pilot.md"
COMMANDS = typed_by(PILOT, PAGE)
INSTALL, UPGRADE = (
    next(i for i, one in enumerate(COMMANDS) if one.startswith(f"helm {verb} ")) for verb in ("install", "upgrade")
)
REMOVE = next(i for i, one in enumerate(COMMANDS) if one.startswith("kubectl delete trainingjobs "))
SHADOW = next(i for i, one in enumerate(COMMANDS) if one.startswith("tranche scheduler --shadow "))


@contextmanager
def shadow(shell: Shell) -> Iterator[int]:
    """Run the shadow scheduler of step 2, which the page leaves running in a terminal; its port."""
    port = free_port()
    command = COMMANDS[SHADOW].replace("10262", str(port))
    words = ["/bin/sh", "-c", f". {shell.variables}\nexec {command}"]
    with (shell.folder / "shadow.log").open("w") as log:
        process = subprocess.Popen(words, cwd=shell.work, env=shell.environment, stdout=log, stderr=log)
    try:
        eventually(lambda: answers(port) or process.poll() is not None, "the shadow scheduler answers")
        assert process.poll() is None, (shell.folder / "shadow.log").read_text()
        yield port
    finally:
        process.terminate()
        process.wait(WAIT_SECONDS)


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/shadow/decisions", timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def test_the_page_has_ten_steps_and_simulates_the_first() -> None:
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    assert [line.split()[1] for line in page.splitlines() if line.startswith("### ")] == [f"{n}." for n in range(1, 11)]
    assert [one.text for one in commands(ROOT / PAGE) if one.typed_by == SIMULATIONS] == ["tranche replay export.json"]


def test_pilot_runs_in_one_namespace_and_goes_back(own: Cluster, shell: Shell) -> None:
    said = {}

    def type_in(first: int, last: int, port: int = 10262) -> None:
        for command in COMMANDS[first:last]:
            here = command.replace("YOUR.REGISTRY", "registry.example.com/ml").replace("10262", str(port))
            said[command] = shell.run(here)

    type_in(0, SHADOW)
    with shadow(shell) as port:
        type_in(SHADOW + 1, INSTALL, port)
    decisions, replay = (said[command] for command in COMMANDS[SHADOW + 1 : SHADOW + 3])
    assert isinstance(json.loads(decisions)["decisions"], list)
    assert isinstance(json.loads(replay), dict)

    type_in(INSTALL, UPGRADE)
    deployments = COMMANDS[INSTALL + 1]
    assert "tranche-scheduler" in said[deployments]
    assert "tranche-operator" not in said[deployments]

    type_in(UPGRADE, UPGRADE + 1)
    with Release(own):
        type_in(UPGRADE + 1, REMOVE)
        assert "tranche-operator" in said[deployments]
        assert said["kubectl tranche history first -n pilot"].count("Succeeded") >= 2
        assert "first" in said["kubectl tranche usage -n pilot"]
        jobs = said[COMMANDS[REMOVE - 1]].splitlines()[1:]
        assert sorted(line.split()[0] for line in jobs) == ["first", "second"]
        suspended = "kubectl -n pilot wait trainingjob/second --for=jsonpath='{.status.phase}'=Suspended --timeout=120s"
        assert "condition met" in shell.run(suspended)
        shell.run("kubectl -n pilot wait quota/no-trainingjobs --for=jsonpath='{.status.hard}' --timeout=180s")
        refused = shell.answer("sed 's/name: first/name: third/' docs/samples/first.yaml | kubectl -n pilot apply -f -")
        assert refused.returncode == 1
        # "exceeded", or "status unknown" until the quota has been counted for the first time
        assert "quota: no-trainingjobs" in refused.stderr
        type_in(REMOVE, REMOVE + 1)
    type_in(REMOVE + 1, len(COMMANDS))
    assert own.kubectl("get", "crd", "-o", "name") == ""
    assert own.request("GET", "/api/v1/namespaces/pilot")[0] == 404
