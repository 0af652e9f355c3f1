"""The commands that ``make demo KEEP=1`` prints work when typed in a bare shell."""

import io
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from support.full_stack import System
from support.installed_cluster import installed_cluster
from support.waiting import WAIT_SECONDS
from tranche.demo.local_stack import Stack
from tranche.demo.page_account import create_visitor
from tranche.demo.run import create_sites, look_around, report_ended
from tranche.demo.submission import journal_of

pytestmark = pytest.mark.walkthrough


def test_an_empty_shell_gets_all_it_needs(tmp_path: Path) -> None:
    with installed_cluster() as cluster:
        create_sites(cluster)
        create_visitor(cluster)
        with Stack(cluster, scheduler_options=["--journal", str(journal_of(cluster))]) as ours:
            system = System(cluster, ours)
            lines = look_around(cluster, ours)
            (described,) = [line for line in lines if line.startswith("kubectl describe trainingjob ")]
            system.submit(described.split()[-1])
            system.until_phase(described.split()[-1], "Succeeded")
            completed = "/api/v1/namespaces/default/events?fieldSelector=reason=Completed"
            system.until("its last event", lambda: cluster.request("GET", completed)[1]["items"])
            said = typed(lines, tmp_path)
            ours.signal("scheduler", signal.SIGKILL)
            restart = printed_restart(system)
            with restarted(restart, lines):
                system.submit("later")
                system.until_phase("later", "Succeeded")
    assert said["kubectl get trainingjobs -o wide"].count("Succeeded") == 1
    assert said["kubectl get sites"].count("\n") == 5
    assert "no running or waiting TrainingJobs" in said["kubectl tranche queue"]
    assert "Completed" in said[described]
    jobs, metrics, decisions, facts, logs = list(said.values())[-5:]
    assert json.loads(jobs)["jobs"][0]["phase"] == "Succeeded"
    assert "tranche_leader" in metrics
    assert "has succeeded" in decisions
    assert {json.loads(line)["kind"] for line in facts.splitlines()} >= {"started", "ended"}
    assert "restored" in logs


def printed_restart(system: System) -> str:
    """Return the command that the demo prints after its scheduler was killed."""
    console, reported = Console(file=io.StringIO(), width=80), set[str]()

    def output() -> str:
        report_ended(console, system.stack, reported)
        return str(console.file.getvalue())  # type: ignore[attr-defined]

    told = system.until("the end is reported", output).splitlines()
    assert told[1] == "scheduler was killed by signal 9. To start it again, type in another terminal:"
    assert len(told) == 3, told
    return str(told[2])


@contextmanager
def restarted(command: str, lines: list[str]) -> Iterator[None]:
    """Run the command in a shell with the exported variables of the demo."""
    exports = [line for line in lines if line.startswith("export ")]
    with subprocess.Popen(
        ["/bin/sh", "-c", "\n".join([*exports, f"exec {command}"])], env={"PATH": os.defpath}
    ) as process:
        yield
        process.terminate()


def typed(lines: list[str], home: Path) -> dict[str, str]:
    """Return the output of each line in a shell with a bare environment; its programs are those of the system."""
    system = {"HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin", "PAGER": "cat"}
    exports = [line for line in lines if line.startswith("export ")]
    said = {}
    for line in lines[len(exports) :]:
        script = "\n".join(["set -e", *exports, line.replace("less ", "cat ")])
        answer = subprocess.run(
            ["/bin/sh", "-c", script],
            env=system,
            cwd=os.sep,
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_SECONDS,
        )
        assert answer.returncode == 0, f"{line}\n{answer.stderr}"
        said[line] = answer.stdout
    return said
