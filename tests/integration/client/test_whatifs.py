"""The plan of a what-if is the plan that the job gets when it is submitted at once; and nothing is created."""

import json
import re
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from integration.client.conftest import Run
from support.access_reviews import await_permission
from support.full_stack import API, System
from support.object_history import History
from tranche.model.explanation_text import as_what_if

JOBS = f"{API}/namespaces/default/trainingjobs"
FORECAST = {"estimatedStart", "estimatedCompletion"}
CLOSE_SECONDS = 2.0
"""Tolerance: plans and starts of pods have whole seconds, and the job is planned later than the what-if."""


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def manifest(name: str, chunks: int, seconds: float) -> dict[str, Any]:
    resources = {"limits": {"nvidia.com/gpu": "1", "cpu": "1", "memory": "1Gi"}}
    template = {"spec": {"containers": [{"name": "t", "image": "x", "resources": resources}]}}
    return {
        "apiVersion": "tranche.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "data": {"chunks": chunks, "batchesPerChunk": 50},
            "model": {"stepTime": f"{1000 * seconds / 50:.3f}ms"},
            "workers": {"maxReplicas": chunks, "template": template},
        },
    }


@pytest.mark.parametrize(("chunks", "seconds"), [(2, 600.0), (1, 60.0)], ids=["waits", "preempts"])
def test_whatif_answer_equals_plan_of_submitted_job(system: System, kubectl: Run, chunks: int, seconds: float) -> None:
    system.submit("now", chunks=2, seconds=600.0)
    system.until_running("now", 2)
    asked = manifest("asked", chunks, seconds)
    before = json.loads(kubectl("get", "trainingjobs,pods,leases", "-A", "-o", "json").stdout)
    asked_at = time.monotonic()
    told = kubectl("tranche", "whatif", "-f", "-", "-o", "json", text=json.dumps(asked))
    assert (told.returncode, told.stderr) == (0, "")
    guess = json.loads(told.stdout)
    assert (guess["policy"], guess["note"]) == ("chunk", "")
    try:
        assert not system.job("asked")
        after = json.loads(kubectl("get", "trainingjobs,pods,leases", "-A", "-o", "json").stdout)
        assert names(after) == names(before)
        with History(str(system.cluster.kubeconfig), JOBS) as history:
            assert system.cluster.request("POST", JOBS, asked)[0] == 201
            # Soon: a job preempts no others before its pods have passed admission.
            system.until(
                "the plan of the what-if",
                lambda: any(agrees(guess, plan, later - asked_at) for plan, later in plans(history)),
            )
    finally:
        system.delete("asked", "now")


def plans(history: History) -> Iterator[tuple[dict[str, Any], float]]:
    """Yield the plans of the job with a forecast until it runs, each with the time at which it was seen."""
    for job in history.of(JOBS, "asked"):
        status = job.get("status", {})
        if not status.get("plan", {}).keys() >= FORECAST:
            continue
        if status.get("phase") == "Running":
            return
        yield status["plan"], job["heard"]


def agrees(guess: dict[str, Any], plan: dict[str, Any], later: float) -> bool:
    """Return whether a plan, written some seconds after the what-if, is its answer."""
    times = (("plannedStart", "estimatedStart"), ("plannedCompletion", "estimatedCompletion"))
    return (
        all(abs(moment(guess[mine]) - moment(plan[its])) <= CLOSE_SECONDS + later for mine, its in times)
        and guess["workers"] == len(plan["workers"])
        and unmoved(guess["explanation"]) == unmoved(as_what_if(plan["explanation"], guess["workers"]))
    )


def unmoved(sentence: str) -> str:
    """Return what a sentence says before its time or its share."""
    return re.split(" until | done, ", sentence)[0]


def names(listed: dict[str, Any]) -> set[tuple[str, str]]:
    return {(item["kind"], item["metadata"]["name"]) for item in listed["items"]}


def test_whatif_without_readable_lease_says_policy_is_assumed(system: System, kubectl: Run) -> None:
    text = json.dumps(manifest("asked", 1, 1.0))
    there = kubectl("tranche", "whatif", "-f", "-", "--system-namespace", "elsewhere", text=text)
    assert there.returncode == 0
    assert "policy              chunk\n" in there.stdout
    assert there.stderr == "assuming policy chunk: the Lease elsewhere/tranche-scheduler cannot be read\n"


def test_whatif_without_permission_names_the_missing_right(system: System, kubectl: Run) -> None:
    stranger = system.cluster.service_account_kubeconfig("default", "default")
    text = json.dumps(manifest("asked", 1, 1.0))
    refused = kubectl("tranche", "whatif", "-f", "-", kubeconfig=stranger, text=text)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert refused.stderr.startswith("Error: cannot create TrainingJobs: trainingjobs.tranche.dev is forbidden")
    kubectl("create", "role", "submitter", "--verb=create", "--resource=trainingjobs.tranche.dev", "-n", "default")
    kubectl("create", "rolebinding", "submitter", "--role=submitter", "--serviceaccount=default:default")
    await_permission(system.cluster, "system:serviceaccount:default:default", [], "create trainingjobs.tranche.dev")
    refused = kubectl("tranche", "whatif", "-f", "-", kubeconfig=stranger, text=text)
    assert refused.stderr.startswith("Error: cannot read the whole cluster, which a what-if requires: ")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: Pod", "stdin: is a Pod, not a TrainingJob"),
        ("a: [", "stdin: not valid YAML"),
        ("", "stdin: contains 0 objects: provide exactly one TrainingJob"),
        (json.dumps(manifest("asked", 0, 1.0)), "should be greater than or equal to 1"),
    ],
)
def test_a_file_that_is_no_job_is_one_line_and_exit_status_2(kubectl: Run, text: str, words: str) -> None:
    answer = kubectl("tranche", "whatif", "-f", "-", text=text)
    assert (answer.returncode, answer.stdout, answer.stderr.count("\n")) == (2, "", 1)
    assert words in answer.stderr
