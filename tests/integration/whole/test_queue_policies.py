"""A preemptive queue policy on a real control plane: the planner of the simulator, live."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from support.full_stack import Whole, full_stack
from tranche.cli.kubectl_tables import attempts_text
from tranche.client import Client
from tranche.model.attempt_record import unpack


@pytest.fixture(scope="module")
def whole() -> Iterator[Whole]:
    with full_stack({"edge-a": {"nodes": 2, "gpus": 2}}, "srsf") as made:
        yield made


def test_job_with_least_work_runs_first_and_victim_resumes(whole: Whole) -> None:
    whole.submit("large", chunks=4, seconds=100.0)
    whole.until_running("large", 4)
    whole.until_trained("large", 1)
    whole.submit("small", chunks=2, seconds=1.0)
    whole.until_phase("small", "Succeeded")
    whole.until("both ends are counted", lambda: counted(whole, "large", 2))
    assert whole.status("large")["progress"]["preemptions"] == 2
    assert preemptors(whole.status("large")) == ["default/small"] * 2
    status = whole.complete("large")
    assert status["progress"]["chunks"] == "4/4"
    whole.delete("large", "small")


def test_preemption_names_preemptor_reason_and_cost(whole: Whole) -> None:
    whole.submit("victim", chunks=4, seconds=100.0)
    whole.until_running("victim", 4)
    whole.until_trained("victim", 1)
    whole.submit("urgent", chunks=2, seconds=1.0)
    try:
        whole.until_phase("urgent", "Succeeded")
        progress = whole.until("both ends are counted", lambda: counted(whole, "victim", 2))
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
        whole.until("its cost", lambda: [(one["job"], one["workers"]) for one in victims(whole, "urgent")] == due)
        with Client("default", kubeconfig=str(whole.cluster.kubeconfig)) as client:
            known = client.history("victim", log_lines=0)
            ended = [one for one in known.attempts if one.outcome == "Preempted"]
            assert all(one.why.startswith("preempted by default/urgent, which has less work left; ") for one in ended)
            assert all("work lost" in one.why and one.started and one.ended for one in ended), "their pods are gone"
            text = attempts_text(client.history("urgent", log_lines=0))
            assert "PREEMPTED" in text
            assert "default/victim" in text
        whys = {one.attempt: one.why.partition("; resumes")[0] for one in ended}
        whole.until("the page names the causes", lambda: whys.items() <= texts(whole, "victim").items())
        whole.until("the victim's event", lambda: any(COST.fullmatch(one) for one in messages(whole, "victim")))
        whole.until(
            "the preemptor's event", lambda: "Preempted default/victim: 2 workers." in messages(whole, "urgent")
        )
    finally:
        whole.delete("victim", "urgent")


COST = re.compile(
    r"Preempted by default/urgent, which has less work left: (pod victim-worker-\d-\d has|2 pods have) ended; "
    r"(no work|about \S+ s of work) lost(; resumes at about [\d:Z -]+)?\."
)


def victims(whole: Whole, name: str) -> list[dict[str, Any]]:
    """Return what a job has preempted, which the planner writes later than the ends themselves."""
    return list(whole.status(name)["progress"].get("victims", ()))


def counted(whole: Whole, name: str, ends: int) -> dict[str, Any] | None:
    """Return the ledger of a job once it has counted this many ended pods."""
    progress: dict[str, Any] = whole.status(name)["progress"]
    return progress if sum(progress.get("attemptTotals", {}).values()) >= ends else None


def texts(whole: Whole, name: str) -> dict[int, str]:
    """Return what the read API says about the ended attempts of a job; it has watches of its own."""
    return {one["attempt"]: one["text"] for one in whole.read(f"jobs/default/{name}")["attempts"]}


def messages(whole: Whole, name: str) -> list[str]:
    """Return the messages of the events about a job."""
    path = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name}"
    return [event["message"] for event in whole.cluster.request("GET", path)[1]["items"]]


def test_fully_preempted_job_says_when_it_resumes(whole: Whole) -> None:
    whole.submit("stopped", chunks=4, seconds=150.0)
    whole.until_running("stopped", 4)
    whole.until_trained("stopped", 1)
    whole.submit("quick", chunks=4, seconds=120.0)
    try:
        with Client("default", kubeconfig=str(whole.cluster.kubeconfig)) as client:

            def told() -> set[str]:
                return {
                    one.why for one in client.history("stopped", log_lines=0).attempts if "; resumes at " in one.why
                }

            whys = whole.until("the time of its next start", told)
        assert all(why.startswith("preempted by default/quick, which has less work left; ") for why in whys)
        shown = lambda: any("; resumes at about " in text for text in texts(whole, "stopped").values())  # noqa: E731
        whole.until("the page shows it, too", shown)
    finally:
        whole.delete("stopped", "quick")


def test_suspended_and_drained_attempts_name_their_causes(whole: Whole) -> None:
    whole.submit("paused", chunks=1, seconds=100.0, node="edge-a-0")
    patch = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob"}
    try:
        whole.until("it runs", lambda: whole.status("paused").get("phase") == "Running")
        whole.until_trained("paused", 1)
        whole.cluster.kubectl("patch", "tj", "paused", "--type=merge", "-p", json.dumps(patch | suspended(True)))
        whole.until_phase("paused", "Suspended")
        first = unpack(whole.until("the end", lambda: counted(whole, "paused", 1))["history"][0])
        assert first is not None
        assert (first.why, first.preempted_by) == ("suspended by spec.suspend", "")
        whole.cluster.kubectl("patch", "tj", "paused", "--type=merge", "-p", json.dumps(patch | suspended(False)))
        whole.until("it runs again", lambda: whole.status("paused").get("phase") == "Running")
        whole.until_trained("paused", 1)
        whole.cluster.kubectl("drain", "edge-a-0", "--ignore-daemonsets", "--force", "--delete-emptydir-data")
        second = unpack(whole.until("the end", lambda: counted(whole, "paused", 2))["history"][1])
        assert second is not None
        assert (second.why, second.preempted_by) == ("node edge-a-0 is drained", "")
    finally:
        whole.delete("paused")  # first: on a free node it would get another pod, which the next test would find
        whole.cluster.kubectl("uncordon", "edge-a-0")


def suspended(value: bool) -> dict[str, Any]:
    return {"spec": {"suspend": value}}


def preemptors(status: dict[str, Any]) -> list[str]:
    return [one.get("preemptedBy", "") for one in status["progress"]["attempts"] if one["reason"] == "Preempted"]


def test_killed_planner_restores_queue_and_preemption(whole: Whole) -> None:
    whole.submit("long", chunks=4, seconds=2000.0)
    whole.until_running("long", 4)
    whole.stack.kill("scheduler")
    whole.submit("short", chunks=1, seconds=0.5)
    whole.stack.start_scheduler()
    whole.until_phase("short", "Succeeded")
    whole.until("the victim runs again", lambda: (whole.status("long").get("plan") or {}).get("attempts") == 5)
    whole.until_running("long", 4)
    status = whole.status("long")
    assert status["progress"]["preemptions"] == 1, status["progress"]["history"]
    assert preemptors(status) == ["default/short"]
    records = [one for one in map(unpack, status["progress"]["history"]) if one is not None]
    assert [one.why for one in records if one.preempted_by] == ["which has less work left"]
    assert status["progress"]["attemptTotals"] == {"Preempted": 1}
    whole.delete("long", "short")
