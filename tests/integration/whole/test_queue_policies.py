"""A preemptive queue policy on a real control plane: the planner of the simulator, live."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from support.full_stack import System, full_stack
from tranche.cli.kubectl_tables import attempts_text
from tranche.client import Client
from tranche.model.attempt_record import unpack


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    with full_stack({"edge-a": {"nodes": 2, "gpus": 2}}, "srsf") as made:
        yield made


def test_job_with_least_work_runs_first_and_victim_resumes(system: System) -> None:
    system.submit("large", chunks=4, seconds=100.0)
    system.until_running("large", 4)
    system.until_trained("large", 1)
    system.submit("small", chunks=2, seconds=1.0)
    system.until_phase("small", "Succeeded")
    system.until("both ends are counted", lambda: counted(system, "large", 2))
    assert system.status("large")["progress"]["preemptions"] == 2
    assert preemptors(system.status("large")) == ["default/small"] * 2
    status = system.complete("large")
    assert status["progress"]["chunks"] == "4/4"
    system.delete("large", "small")


def test_preemption_names_preemptor_reason_and_cost(system: System) -> None:
    system.submit("victim", chunks=4, seconds=100.0)
    system.until_running("victim", 4)
    system.until_trained("victim", 1)
    system.submit("urgent", chunks=2, seconds=1.0)
    try:
        system.until_phase("urgent", "Succeeded")
        progress = system.until("both ends are counted", lambda: counted(system, "victim", 2))
        stopped = [one for one in map(unpack, progress["history"]) if one is not None]
        assert [(one.role, one.reason, one.preempted_by, one.why) for one in stopped] == [
            ("worker", "Preempted", "default/urgent", "which has less work left")
        ] * 2
        for one in stopped:
            assert one.started is not None
            assert one.ended is not None
            assert 0.0 <= one.lost_seconds <= one.ended - one.started
        assert progress["attemptTotals"] == {"Preempted": 2}
        due = [("default/victim", 2)]
        system.until("its cost", lambda: [(one["job"], one["workers"]) for one in victims(system, "urgent")] == due)
        with Client("default", kubeconfig=str(system.cluster.kubeconfig)) as client:
            known = client.history("victim", log_lines=0)
            ended = [one for one in known.attempts if one.outcome == "Preempted"]
            assert all(one.why.startswith("preempted by default/urgent, which has less work left; ") for one in ended)
            assert all("work lost" in one.why and one.started and one.ended for one in ended), "their pods are gone"
            text = attempts_text(client.history("urgent", log_lines=0))
            assert "PREEMPTED" in text
            assert "default/victim" in text
        whys = {one.attempt: one.why.partition("; resumes")[0] for one in ended}
        system.until("the page names the causes", lambda: whys.items() <= texts(system, "victim").items())
        system.until("the victim's event", lambda: any(COST.fullmatch(one) for one in messages(system, "victim")))
        system.until(
            "the preemptor's event", lambda: "Preempted default/victim: 2 workers." in messages(system, "urgent")
        )
    finally:
        system.delete("victim", "urgent")


COST = re.compile(
    r"Preempted by default/urgent, which has less work left: (pod victim-worker-\d-\d has|2 pods have) ended; "
    r"(no work|about \S+ s of work) lost(; resumes at about [\d:Z -]+)?\."
)


def victims(system: System, name: str) -> list[dict[str, Any]]:
    """Return what a job has preempted, which the planner writes later than the ends themselves."""
    return list(system.status(name)["progress"].get("victims", ()))


def counted(system: System, name: str, ends: int) -> dict[str, Any] | None:
    """Return the ledger of a job once it has counted this many ended pods."""
    progress: dict[str, Any] = system.status(name)["progress"]
    return progress if sum(progress.get("attemptTotals", {}).values()) >= ends else None


def texts(system: System, name: str) -> dict[int, str]:
    """Return what the read API says about the ended attempts of a job; it has watches of its own."""
    return {one["attempt"]: one["text"] for one in system.read(f"jobs/default/{name}")["attempts"]}


def messages(system: System, name: str) -> list[str]:
    """Return the messages of the events about a job."""
    path = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name}"
    return [event["message"] for event in system.cluster.request("GET", path)[1]["items"]]


def test_fully_preempted_job_says_when_it_resumes(system: System) -> None:
    system.submit("stopped", chunks=4, seconds=150.0)
    system.until_running("stopped", 4)
    system.until_trained("stopped", 1)
    system.submit("quick", chunks=4, seconds=120.0)
    try:
        with Client("default", kubeconfig=str(system.cluster.kubeconfig)) as client:

            def told() -> set[str]:
                return {
                    one.why for one in client.history("stopped", log_lines=0).attempts if "; resumes at " in one.why
                }

            whys = system.until("the time of its next start", told)
        assert all(why.startswith("preempted by default/quick, which has less work left; ") for why in whys)
        shown = lambda: any("; resumes at about " in text for text in texts(system, "stopped").values())  # noqa: E731
        system.until("the page shows it, too", shown)
    finally:
        system.delete("stopped", "quick")


def test_suspended_and_drained_attempts_name_their_causes(system: System) -> None:
    system.submit("paused", chunks=1, seconds=100.0, node="edge-a-0")
    patch = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob"}
    try:
        system.until("it runs", lambda: system.status("paused").get("phase") == "Running")
        system.until_trained("paused", 1)
        system.cluster.kubectl("patch", "tj", "paused", "--type=merge", "-p", json.dumps(patch | suspended(True)))
        system.until_phase("paused", "Suspended")
        first = unpack(system.until("the end", lambda: counted(system, "paused", 1))["history"][0])
        assert first is not None
        assert (first.why, first.preempted_by) == ("suspended by spec.suspend", "")
        system.cluster.kubectl("patch", "tj", "paused", "--type=merge", "-p", json.dumps(patch | suspended(False)))
        system.until("it runs again", lambda: system.status("paused").get("phase") == "Running")
        system.until_trained("paused", 1)
        system.cluster.kubectl("drain", "edge-a-0", "--ignore-daemonsets", "--force", "--delete-emptydir-data")
        second = unpack(system.until("the end", lambda: counted(system, "paused", 2))["history"][1])
        assert second is not None
        assert (second.why, second.preempted_by) == ("node edge-a-0 is drained", "")
    finally:
        system.delete("paused")  # first: on a free node it would get another pod, which the next test would find
        system.cluster.kubectl("uncordon", "edge-a-0")


def suspended(value: bool) -> dict[str, Any]:
    return {"spec": {"suspend": value}}


def preemptors(status: dict[str, Any]) -> list[str]:
    return [one.get("preemptedBy", "") for one in status["progress"]["attempts"] if one["reason"] == "Preempted"]


def test_killed_planner_restores_queue_and_preemption(system: System) -> None:
    system.submit("long", chunks=4, seconds=2000.0)
    system.until_running("long", 4)
    system.stack.kill("scheduler")
    system.submit("short", chunks=1, seconds=0.5)
    system.stack.start_scheduler()
    system.until_phase("short", "Succeeded")
    system.until("the victim runs again", lambda: (system.status("long").get("plan") or {}).get("attempts") == 5)
    system.until_running("long", 4)
    status = system.status("long")
    assert status["progress"]["preemptions"] == 1, status["progress"]["history"]
    assert preemptors(status) == ["default/short"]
    records = [one for one in map(unpack, status["progress"]["history"]) if one is not None]
    assert [one.why for one in records if one.preempted_by] == ["which has less work left"]
    assert status["progress"]["attemptTotals"] == {"Preempted": 1}
    system.delete("long", "short")
