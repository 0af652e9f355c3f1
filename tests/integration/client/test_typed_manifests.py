"""Manifests with the errors and claims of users, and the commands that they type next: the outputs are the answers."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.client.conftest import Run
from support.full_stack import System
from support.installed_cluster import installed_cluster
from tranche.client import Client, ManifestError
from tranche.demo.local_stack import Stack

INPUTS = Path(__file__).parent / "inputs"
GPUS = 12


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    with installed_cluster() as cluster:
        cluster.add_site("edge-a", nodes=2, gpus=4)
        cluster.add_site("cloud", nodes=1, gpus=4)
        with Stack(cluster, scheduler_options=["--validate"]) as stack:
            yield System(cluster, stack)


def path(name: str) -> str:
    return str(INPUTS / f"{name}.yaml")


def said(kubectl: Run, *words: str) -> str:
    answer = kubectl(*words)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def refused(system: System, name: str) -> dict[str, Any]:
    """Return the condition Planned of a job if it is False."""
    conditions = system.status(name).get("conditions", ())
    return next((one for one in conditions if (one["type"], one["status"]) == ("Planned", "False")), {})


def warned(system: System, name: str) -> str:
    """Return the message of the Warning event about a job; "" if there is none."""
    query = f"fieldSelector=type=Warning,involvedObject.name={name}"
    events = system.cluster.request("GET", f"/api/v1/namespaces/default/events?{query}")[1]["items"]
    return str(events[0]["message"]) if events else ""


@pytest.mark.parametrize(
    ("name", "field"), [("misspelt", "spec.data.batchPerChunk"), ("misspelt-required", "spec.workers.maxReplica")]
)
def test_misspelt_field_is_named_in_every_way(system: System, kubectl: Run, name: str, field: str) -> None:
    words = f'unknown field "{field}"'
    applied = kubectl("apply", "-f", path(name))
    assert (applied.returncode, words in applied.stderr) == (1, True)
    asked = kubectl("tranche", "whatif", "-f", path(name))
    assert (asked.returncode, asked.stderr.count("\n"), words in asked.stderr) == (2, 1, True)
    with (
        Client(kubeconfig=str(system.cluster.kubeconfig)) as client,
        pytest.raises(ManifestError, match=re.escape(words)),
    ):
        client.submit(path(name))


UNPLANNABLE = {
    "memory": "no node has 900 GiB of memory for a worker (the largest has 128 GiB of memory)",
    "many-gpus": "no node has 64 GPUs for a worker (the largest has 4 GPUs)",
    "node-selector": "no node takes a worker: 3 of 3 nodes do not match the node selector gpu=a100",
    "large-gang": "needs 30 workers of 1 GPU at once, more than the cluster can hold (12 GPUs in all)",
    "no-gpu": "the worker template requests no GPU: add nvidia.com/gpu to the limits of a container",
    "amd": "requests amd.com/gpu, which is not one of the GPU resources of this installation (nvidia.com/gpu): request "
    "one of these, or let an administrator add it to the chart's gpuResources",
}


def test_job_that_cannot_be_planned_says_why_everywhere(system: System, kubectl: Run) -> None:
    said(kubectl, "apply", "-f", str(INPUTS / "unplannable"))
    try:
        for name, words in UNPLANNABLE.items():
            refusal = system.until(f"{name} is judged", lambda name=name: refused(system, name))  # type: ignore[misc]
            assert refusal["message"].startswith(words)
        queue = said(kubectl, "tranche", "queue").splitlines()
        assert {line.split()[0] for line in queue[1:]} == UNPLANNABLE.keys()
        assert all(UNPLANNABLE[line.split()[0]] in line for line in queue[1:])

        for name, words in UNPLANNABLE.items():
            warning = system.until(f"an event for {name}", lambda name=name: warned(system, name))  # type: ignore[misc]
            assert warning.startswith(words)
    finally:
        said(kubectl, "delete", "-f", str(INPUTS / "unplannable"))
    asked = said(kubectl, "tranche", "whatif", "-f", path("unplannable/memory"))
    assert "planned completion  never\n" in asked
    assert UNPLANNABLE["memory"] in asked


def test_unknown_site_is_told_before_and_after_submission(system: System, kubectl: Run) -> None:
    words = "spec.data.site edge-z is not the name of a Site"
    assert words in said(kubectl, "tranche", "whatif", "-f", path("unknown-site"))
    said(kubectl, "apply", "-f", path("unknown-site"))
    refusal = system.until("it is judged", lambda: refused(system, "unknown-site"))
    assert (refusal["reason"], refusal["message"].endswith(words)) == ("Unschedulable", True)
    assert said(kubectl, "tranche", "why", "unknown-site") == f"{refusal['message']}\n"
    assert refusal["message"].startswith("no node takes a worker: 3 of 3 nodes are not at edge-z")
    system.delete("unknown-site")


def test_queue_preemption_and_suspension_are_explained(system: System, kubectl: Run) -> None:
    said(kubectl, "apply", "-f", path("long"))
    system.until_running("long", GPUS)
    system.until_phase("long", "Running")
    silent = [one["type"] for one in system.status("long")["conditions"] if not one.get("message")]
    assert silent == [], "each condition says what it means"
    said(kubectl, "apply", "-f", path("gang"))
    system.until("the gang waits", lambda: "behind" in system.status("gang").get("plan", {}).get("explanation", ""))
    assert re.fullmatch(
        r"waits for 8 GPUs at once \(0 are free\) until [-\d: ]+Z, behind default/long, which has less work left; "
        r"its duration is unknown, and 1 h is assumed: set spec\.estimatedDuration\n",
        said(kubectl, "tranche", "why", "gang"),
    )
    assert "\nno windows yet: " in said(kubectl, "tranche", "plan", "gang")
    said(kubectl, "apply", "-f", path("urgent"))
    system.until_running("urgent", 4)
    cause = "reempted by default/urgent, which has the higher priority class tranche-high"
    stops = re.escape(f"P{cause}: ") + r"4 pods \(.*\) stop within 5 s \(grace period\)\."

    def history() -> list[str]:
        """Return the history with all ends, which the planner counts, and the operator's event about them."""
        lines = said(kubectl, "tranche", "history", "long").splitlines()
        return lines if any(re.search(stops, line) for line in lines) and len(ends(lines)) == 4 else []

    def ends(lines: list[str]) -> list[str]:
        return [line for line in lines if f"p{cause}" in line]

    lines = system.until("four ends and their event", history)
    stopped = ends(lines)
    unread = {line.partition(": ")[2]: line for line in lines if line.startswith("no log of ")}
    assert unread['no logs found for container "train"'].count("long-worker-") == 5, "pods of one reason are one line"
    assert all(re.search(r"Preempted +143 +p.*; (no work|about \S+ s of work) lost", line) for line in stopped)
    said(kubectl, "patch", "trainingjob", "long", "--type=merge", "-p", '{"spec": {"suspend": true}}')
    system.until_phase("long", "Suspended")
    suspended = r"suspended by spec\.suspend; \d+ of 40 chunks done, [\d.]+ % trained\n"
    assert re.fullmatch(suspended, said(kubectl, "tranche", "why", "long"))

    def attempts_of_long() -> list[list[str]]:
        rows = [line.split() for line in said(kubectl, "tranche", "history", "long").splitlines()]
        return [row for row in rows if row[1:] and row[1].startswith("long-worker-")]

    # The phase is written when the pods are to stop; each end is counted later.
    system.until(
        "each end is counted", lambda: sum("spec.suspend" in " ".join(row) for row in attempts_of_long()) == GPUS - 4
    )
    attempts = attempts_of_long()
    assert len(attempts) >= GPUS
    assert [int(row[0]) for row in attempts] == list(range(1, len(attempts) + 1)), "attempts begin with 1"
    system.delete("urgent", "gang", "long")
