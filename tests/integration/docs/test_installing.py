"""docs/how-to/installing.md, typed as it is written: installed, tested, upgraded, taken back, removed."""

import os
import re
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.doc_shell import Shell
from support.installed_release import Release
from support.typed_commands import INSTALLING, typed_by
from support.waiting import eventually
from tranche_testcluster import Cluster

pytestmark = pytest.mark.walkthrough

PAGE = "docs/how-to/installing.md"
COMMANDS = typed_by(INSTALLING, PAGE)
SYSTEM = "/api/v1/namespaces/tranche-system"
TEST_POD = f"{SYSTEM}/pods/tranche-test"
KEEP_THE_JOBS, REMOVE_ALL = (i for i, command in enumerate(COMMANDS) if command.startswith("helm uninstall "))


def until(cluster: Cluster, phase: str) -> dict[str, Any]:
    """The pod of ``helm test`` when it is in a phase."""

    def look() -> dict[str, Any] | None:
        status, pod = cluster.request("GET", TEST_POD)
        return dict(pod) if status == 200 and pod["status"]["phase"] == phase else None

    return eventually(look, f"the test pod is {phase}") or {}


def run_test_container(cluster: Cluster, release: Release) -> str:
    """Run the container of ``helm test`` as a process, report its end to the cluster, and return its output."""
    pod = until(cluster, "Running")
    container = pod["spec"]["containers"][0]
    program, *options = container["command"]
    assert program == "python"
    words = [release.address(word) if word.startswith("http") else word for word in container["args"]]
    environment = {**os.environ, "TRANCHE_CA": str(release.report_ca())}
    answer = subprocess.run(
        [sys.executable, *options, *words], capture_output=True, text=True, check=False, timeout=100, env=environment
    )
    phase = "Failed" if answer.returncode else "Succeeded"
    status, told = cluster.request(
        "PATCH", f"{TEST_POD}/status", {"status": {"phase": phase}}, "application/merge-patch+json"
    )
    assert status == 200, told
    return answer.stdout + answer.stderr


def test_the_page_installs_upgrades_and_removes(own: Cluster, shell: Shell) -> None:
    said = {}
    tests = [command for command in COMMANDS if command.startswith("helm test ")]
    assert COMMANDS[0].startswith("helm install ")
    printed = shell.run(COMMANDS[0])
    with Release(own) as release, ThreadPoolExecutor() as pool:
        kubelet = pool.submit(run_test_container, own, release)
        for command in COMMANDS[1:KEEP_THE_JOBS]:
            said[command] = shell.run(command)
        said_in_pod = kubelet.result()
        assert said_in_pod.count("http://127.0.0.1:") == 5
        assert said_in_pod.count("https://localhost:") == 1
    assert [said[command].count("Phase:          Succeeded") for command in tests] == [1]
    assert own.request("GET", SYSTEM)[1]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"

    (job,) = re.findall(r"^  kubectl apply -f - <<EOF\n.*?^  EOF$", printed, re.M | re.S)
    shell.run(textwrap.dedent(job))
    notes = re.findall(r"^  (kubectl (?!apply).*)$", printed, re.M)
    assert len(notes) == 4, "what helm prints to type next"
    for command in notes:
        said[command] = shell.run(command)
    assert re.search(r"edge-a-0 +2\n", said[notes[-1]])
    shell.run(COMMANDS[KEEP_THE_JOBS])
    assert own.kubectl("get", "deployments", "-A", "-o", "name") == ""
    assert own.kubectl("get", "trainingjobs", "-o", "name") == "trainingjob.tranche.dev/hello\n"

    shell.run(COMMANDS[0])
    with Release(own):
        for command in COMMANDS[KEEP_THE_JOBS + 1 : REMOVE_ALL]:
            said[command] = shell.run(command)
    for command in COMMANDS[REMOVE_ALL:]:
        said[command] = shell.run(command)
    assert own.kubectl("get", "crd", "-o", "name") == ""
    assert own.request("GET", SYSTEM)[0] == 404
