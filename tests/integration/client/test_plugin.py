"""The real kubectl with our plugin, on a real control plane."""

import csv
import json
import re
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from integration.client.conftest import Run
from support.access_reviews import await_permission
from support.full_stack import System
from tranche.kube.client.leader_election import LEASE, leases_path


def test_kubectl_lists_the_plugin(kubectl: Run) -> None:
    found = kubectl("plugin", "list")
    assert "kubectl-tranche" in found.stdout


def test_queue_and_why_match_status_and_name_the_constraint(system: System, kubectl: Run) -> None:
    system.submit("ahead", chunks=2, seconds=1200.0)
    system.until_phase("ahead", "Running")
    system.submit("behind", chunks=2, seconds=4000.0)
    try:
        system.until("planned", lambda: system.status("behind").get("plan", {}).get("estimatedStart"))
        sentence = system.status("behind")["plan"]["explanation"]
        assert "behind default/ahead, which has less work left" in sentence

        def agrees() -> bool:  # unless the sentence was written again in between
            before = kubectl("tranche", "why", "behind")
            assert before.returncode == 0
            assert re.fullmatch(r"planned completion .*Z \(80 %: .*Z to .*Z\)\n", before.stderr)
            return bool(before.stdout.strip() == system.status("behind")["plan"]["explanation"])

        system.until("the command shows the sentence of the plan", agrees)
        system.until_phase("behind", "Waiting")
        table = kubectl("tranche", "queue").stdout.splitlines()
        assert table[0].split() == ["NAME", "PHASE", "DONE", "TRAINED", "START", "COMPLETION", "WHY"]
        assert [line.split()[:3] for line in table[1:]] == [["ahead", "Running", "0/2"], ["behind", "Waiting", "0/2"]]
        everywhere = json.loads(kubectl("tranche", "queue", "-A", "-o", "json").stdout)
        assert [(job["namespace"], job["name"]) for job in everywhere] == [("default", "ahead"), ("default", "behind")]
        assert kubectl("tranche", "queue", "-n", "kube-system").stdout == (
            "no running or waiting TrainingJobs in namespace kube-system\n"
        )
    finally:
        system.delete("behind", "ahead")


def _shown(plan: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a written plan that the plugin shows; its revision changes with the progress of the job."""
    workers = [
        ["worker", str(w["index"]), str(w["attempt"]), w["state"], w["site"], w["node"], str(w["chunks"][0])]
        for w in plan["workers"]
    ]
    fields = ("explanation", "estimatedCompletion", "completionInterval")
    return {"workers": workers} | {field: plan.get(field) for field in fields}


def _plan_and_text(system: System, kubectl: Run) -> tuple[dict[str, Any], str] | None:
    """The written plan of the job `steady`, as far as the plugin shows it, and what the plugin prints.

    None if it has no forecast yet, or was changed in between.
    """
    plan = system.status("steady")["plan"]
    if "completionInterval" not in plan:
        return None
    text = kubectl("tranche", "plan", "steady").stdout
    return (_shown(plan), text) if _shown(system.status("steady")["plan"]) == _shown(plan) else None


def test_plan_shows_windows_with_their_nodes_and_what_is_planned(system: System, kubectl: Run) -> None:
    system.submit("steady", chunks=2, seconds=3000.0)
    try:
        system.until_phase("steady", "Running")
        plan, text = system.until(
            "a plan with a forecast that is not renewed meanwhile", partial(_plan_and_text, system, kubectl)
        )
        assert f"why                 {plan['explanation']}" in text
        end = plan["estimatedCompletion"].replace("T", " ")
        latest = plan["completionInterval"]["latest"].replace("T", " ")
        assert re.search(f"planned completion  {end} \\(80 %: .*Z to {latest}\\)", text)
        rows = [line.split() for line in text.splitlines() if line.startswith("worker")]
        assert [row[:7] for row in rows] == plan["workers"]
        detail = json.loads(kubectl("tranche", "plan", "steady", "-o", "json").stdout)
        assert detail["windows"][0]["node"] == plan["workers"][0][5]
    finally:
        system.delete("steady")


def test_plan_lists_the_place_and_window_of_each_chunk(system: System, kubectl: Run) -> None:
    system.submit("wide", chunks=5, seconds=900.0)
    try:
        system.until_phase("wide", "Running")
        system.until_running("wide", 2)
        told = kubectl("tranche", "plan", "wide", "--chunks", "-o", "json")
        assert (told.returncode, told.stderr) == (0, "")
        plan = json.loads(told.stdout)
        assert (plan["policy"], plan["note"]) == ("chunk", "")
        assert [one["chunk"] for one in plan["chunks"]] == list(range(5))
        places = {c: (w["site"], w["node"]) for w in workers(system, "wide") for c in w["chunks"]}
        running = {one["chunk"]: (one["site"], one["node"]) for one in plan["chunks"] if one["state"] == "Running"}
        assert running == places
        assert all(one["start"] < one["end"] for one in plan["chunks"])
        table = kubectl("tranche", "plan", "wide", "--chunks").stdout.splitlines()
        assert table[0].split() == ["CHUNK", "STATE", "SITE", "NODE", "SLOT", "START", "END"]
        reader = system.cluster.service_account_kubeconfig("default", "default")
        refused = kubectl("tranche", "plan", "wide", "--chunks", "-n", "default", kubeconfig=reader)
        assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    finally:
        system.delete("wide")


def workers(system: System, job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = system.status(job)["plan"]["workers"]
    return found


def test_history_shows_preempted_and_resumed_attempts(system: System, kubectl: Run) -> None:
    system.submit("large", chunks=2, seconds=600.0)
    system.until_running("large", 2)
    system.until_trained("large", 0.1)
    system.submit("small", chunks=1, seconds=1.0)
    try:
        system.until_phase("small", "Succeeded")
        system.until_running("large", 2)
        system.until_trained("large", 0.1)  # its start and its end have whole seconds
        system.complete("large")
        system.until("the last event", lambda: "Completed" in known_events(kubectl, "large"))
        known = json.loads(kubectl("tranche", "history", "large", "-o", "json").stdout)
        ledger = system.status("large")["progress"]["attempts"]
        assert {one["attempt"] for one in known["attempts"]} == {one["attempt"] for one in ledger}
        ended = {one["attempt"]: one for one in known["attempts"]}
        stopped = next(one for one in ledger if one["reason"] == "Preempted")
        told = ended[stopped["attempt"]]
        assert (told["outcome"], told["node"], told["exitCode"]) == ("Preempted", stopped["node"], 143)
        cause = "reempted by default/small, which has less work left"
        assert told["preemptedBy"] == "default/small"
        assert re.fullmatch(f"p{cause}; (no work|about .* of work) lost", told["why"])
        assert told["started"] < told["ended"], "its pod is gone"
        assert known["attemptCount"] == len(known["attempts"])
        notices = [event["message"] for event in known["events"] if event["reason"] == "Preempting"]
        assert any(f"P{cause}: pod " in message for message in notices)
        last = known["attempts"][-1]
        assert (last["outcome"], last["exitCode"]) == ("Succeeded", 0)
        assert last["started"] < last["ended"]
        assert {"Completed", "WindowOpened"} <= {event["reason"] for event in known["events"]}
        text = system.until("the log is read", lambda: with_log(kubectl, last["pod"]))
        assert text.splitlines()[0].split() == ["ATTEMPT", "POD", "NODE", "STARTED", "ENDED", "OUTCOME", "EXIT", "WHY"]
        assert (told.get("log"), told["noLog"]) == (None, "the pod no longer exists")
        assert f"no log of {told['pod']}: the pod no longer exists\n" in text
        short = f"log of {last['pod']}:\n  loss 0.25\n"
        system.until("one line", lambda: short in kubectl("tranche", "history", "large", "--log-lines", "1").stdout)
        assert "log of" not in kubectl("tranche", "history", "large", "--log-lines", "0").stdout
    finally:
        system.delete("large", "small")


def with_log(kubectl: Run, pod: str) -> str:
    """Return the history of the job, which has the log of this pod; the kubelet's port may be busy for a moment."""
    text = kubectl("tranche", "history", "large").stdout
    assert f"log of {pod}:\n  {pod} begins\n  loss 0.50\n  loss 0.25\n" in text, text[-1000:]
    return text


def first_with_log(kubectl: Run, job: str) -> dict[str, Any]:
    """Return the first attempt of a job, of which the log has been read."""
    (first, *_) = json.loads(kubectl("tranche", "history", job, "-o", "json").stdout)["attempts"]
    assert first.get("log"), first
    return dict(first)


def known_events(kubectl: Run, job: str) -> set[str]:
    """Return the reasons of the events in the history of a job; the operator writes them after the status."""
    return {event["reason"] for event in json.loads(kubectl("tranche", "history", job, "-o", "json").stdout)["events"]}


def test_history_shows_failed_attempt_log_or_why_it_is_missing(system: System, kubectl: Run) -> None:
    system.submit("broken", seconds=0.5, exit_code=3, runPolicy={"backoffLimit": 0})  # a third attempt would remove it
    try:
        system.until("a failure", lambda: system.status("broken").get("progress", {}).get("failures"))
        first = system.until("its log is read", lambda: first_with_log(kubectl, "broken"))
        assert (first["outcome"], first["exitCode"]) == ("Failed", 3)
        assert first["log"] == [f"{first['pod']} begins", "loss 0.50", "loss 0.25"]
        rules = ("--verb=get,list", "--resource=trainingjobs.tranche.dev,pods,events")
        system.cluster.kubectl("create", "serviceaccount", "reader")
        system.cluster.kubectl("create", "role", "reader", *rules)
        system.cluster.kubectl("create", "rolebinding", "reader", "--role=reader", "--serviceaccount=default:reader")
        await_permission(system.cluster, "system:serviceaccount:default:reader", [], "list pods")
        reader = system.cluster.service_account_kubeconfig("default", "reader")
        refused = kubectl("tranche", "history", "broken", "-n", "default", kubeconfig=reader).stdout
        assert f'no log of {first["pod"]}: pods "{first["pod"]}" is forbidden' in refused
    finally:
        system.delete("broken")


def test_queue_says_that_no_scheduler_leads(system: System, kubectl: Run) -> None:
    system.until("the scheduler leads", lambda: not kubectl("tranche", "queue").stderr)
    spec = {"holderIdentity": "gone", "leaseDurationSeconds": 8, "renewTime": "2026-01-01T00:00:00.000000Z"}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEASE}, "spec": spec}
    status, _ = system.cluster.request("POST", leases_path("default"), lease)
    assert status == 201
    system.submit("asked", seconds=600.0)
    try:
        system.until("a plan", lambda: system.status("asked").get("plan"))
        since = "no scheduler has led since 2026-01-01 00:00:00Z"
        assert since in kubectl("tranche", "queue", "--system-namespace", "default").stderr
        assert since in kubectl("tranche", "why", "asked", "--system-namespace", "default").stderr
        # A busy machine may renew the real Lease late.
        system.until("the scheduler leads", lambda: not kubectl("tranche", "queue").stderr)
        system.until("it leads", lambda: "no scheduler" not in kubectl("tranche", "why", "asked").stderr)
    finally:
        system.delete("asked")


def counted(system: System) -> float:
    """GPU-seconds that the live planner has counted for the namespace default."""
    with urllib.request.urlopen(f"{system.stack.planner_url}/metrics") as answer:
        text = answer.read().decode()
    found = re.search(r'(?m)^tranche_namespace_gpu_seconds_total\{namespace="default"\} (\S+)$', text)
    return float(found[1]) if found else 0.0


def test_usage_exports_what_jobs_held_by_job_and_namespace(system: System, kubectl: Run) -> None:
    before = counted(system)
    system.submit("billed", chunks=2, seconds=1.0)
    try:
        system.until_phase("billed", "Succeeded")
        system.until("both counted", lambda: system.status("billed")["progress"]["chunks"] == "2/2")
        progress = system.status("billed")["progress"]
        told = kubectl("tranche", "usage", "-o", "json")
        assert (told.returncode, told.stderr) == (0, "")
        (job,) = json.loads(told.stdout)
        assert (job["name"], job["phase"], job["uid"]) == (
            "billed",
            "Succeeded",
            system.job("billed")["metadata"]["uid"],
        )
        assert job["trainedGpuSeconds"] == progress["attainedSeconds"] > 0
        held = sum(site["gpuSeconds"] for site in progress["sites"])
        assert job["heldGpuSeconds"] == max(held, progress["attainedSeconds"])
        (row,) = csv.DictReader(kubectl("tranche", "usage", "-o", "csv").stdout.splitlines())
        assert (row["uid"], float(row["trainedGpuSeconds"])) == (job["uid"], job["trainedGpuSeconds"])
        by_namespace = kubectl("tranche", "usage", "-A", "--by", "namespace").stdout.splitlines()
        assert [line.split()[:2] for line in by_namespace[1:]] == [["default", "1"], ["total", "1"]]
        assert kubectl("tranche", "usage", "--since", "2999-01-01").stdout == "no TrainingJobs\n"
        assert json.loads(kubectl("tranche", "usage", "--until", "2026-01-01", "-o", "json").stdout) == []
        wrong = kubectl("tranche", "usage", "--since", "yesterday")
        assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
        added = counted(system) - before
        assert added == pytest.approx(job["heldGpuSeconds"], abs=1.0), "a status has whole seconds"
    finally:
        system.delete("billed")
    assert counted(system) - before == pytest.approx(added), "the counter includes deleted jobs"


@pytest.mark.parametrize("command", ["why", "plan", "history", "plan --chunks"])
def test_an_unknown_job_is_one_line_and_exit_status_3(kubectl: Run, command: str) -> None:
    verb, *flags = command.split()
    answer = kubectl("tranche", verb, "ghost", *flags, "-n", "default")
    assert (answer.returncode, answer.stdout) == (3, "")
    assert answer.stderr == "Error: no TrainingJob ghost in namespace default\n"
    for other in ("", "tj/ghost"):
        answer = kubectl("tranche", verb, other, *flags, "-n", "default")
        assert (answer.returncode, answer.stdout, answer.stderr.count("\n")) == (3, "", 1)


def test_bad_flags_credentials_or_rights_give_one_error_line(system: System, kubectl: Run, tmp_path: Path) -> None:
    wrong = kubectl("tranche", "queue", "--colour")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    absent = kubectl("tranche", "queue", "--context", "elsewhere")
    assert absent.returncode == 1
    assert "use --kubeconfig or --context" in absent.stderr
    stranger = system.cluster.service_account_kubeconfig("default", "default")
    refused = kubectl("tranche", "queue", kubeconfig=stranger)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert refused.stderr.startswith("Error: cannot list TrainingJobs: trainingjobs.tranche.dev is forbidden")
    config = json.loads(system.cluster.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    away = tmp_path / "away"
    away.write_text(json.dumps(config))
    unreachable = kubectl("tranche", "queue", kubeconfig=away)
    assert unreachable.returncode == 1
    assert "the API server cannot be reached" in unreachable.stderr
