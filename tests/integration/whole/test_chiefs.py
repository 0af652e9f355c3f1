"""Gangs with a chief on a real control plane: they start whole, and the chief's end is the end of all their pods."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.full_stack import Whole
from support.object_history import History, check_gang

PODS = "/api/v1/namespaces/default/pods"
CHIEF_SECONDS = 4.0


@pytest.fixture
def history(whole: Whole) -> Iterator[History]:
    with History(str(whole.cluster.kubeconfig), PODS) as made:
        yield made


def part(role: str, gpus: int = 0, **annotations: str) -> dict[str, Any]:
    """A pod template; without annotations the pod serves until it is stopped."""
    requests = {"cpu": "1", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    resources = {"requests": requests, **({"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {})}
    asked = {f"kwok.tranche.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
    spec = {"containers": [{"name": role, "image": "x", "resources": resources}], "terminationGracePeriodSeconds": 5}
    return {
        "metadata": {"annotations": asked},
        "spec": {**spec, "nodeSelector": {"topology.kubernetes.io/zone": "edge-a"}},
    }


def submit(whole: Whole, name: str, *, chief_seconds: float = CHIEF_SECONDS, exit_code: int = 0, **spec: Any) -> None:
    """Submit two workers for the two GPUs of edge-a, a parameter server, and a chief that runs ``chief_seconds``."""
    chief = part("chief", run_seconds=str(chief_seconds), exit_code=str(exit_code))
    gang: dict[str, Any] = {
        "data": None,
        "model": None,
        "workers": {"maxReplicas": 2, "template": part("worker", gpus=1)},
        "parameterServers": {"replicas": 1, "template": part("ps")},
        "chief": {"template": chief},
        "estimatedDuration": "30s",
        **spec,
    }
    whole.submit(name, **gang)


def roles(whole: Whole, name: str, *phases: str) -> list[str]:
    """Return the roles of the job's pods in one of these phases, sorted."""
    pods = [pod for pod in whole.pods(name) if pod["status"].get("phase") in phases]
    return sorted(pod["metadata"]["labels"]["tranche.dev/role"] for pod in pods)


def attempts(whole: Whole, name: str) -> set[int]:
    plan = whole.status(name).get("plan", {})
    entries = [
        *plan.get("workers", []),
        *plan.get("parameterServers", []),
        *([plan["chief"]] if "chief" in plan else []),
    ]
    return {entry["attempt"] for entry in entries if entry["state"] == "Open"}


WHOLE = ["chief", "ps", "worker", "worker"]


def test_gang_with_chief_starts_together_and_ends_with_the_chief(whole: Whole, history: History) -> None:
    submit(whole, "cats")
    whole.until("all run", lambda: roles(whole, "cats", "Running") == WHOLE)
    tasks: dict[tuple[str, int], dict[str, Any]] = {}
    for pod in whole.pods("cats"):
        env = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
        config = json.loads(env["TF_CONFIG"])
        tasks[config["task"]["type"], config["task"]["index"]] = config["cluster"]
        host = f"{pod['spec']['hostname']}.{pod['spec']['subdomain']}.default.svc:2222"
        assert config["cluster"][config["task"]["type"]][config["task"]["index"]] == host
    assert sorted(tasks) == [("chief", 0), ("ps", 0), ("worker", 0), ("worker", 1)]
    assert len({json.dumps(cluster) for cluster in tasks.values()}) == 1
    status = whole.until_phase("cats", "Succeeded")
    assert "chief" not in status["plan"]
    assert status["progress"]["failures"] == 0
    whole.until("workers and servers have gone", lambda: not roles(whole, "cats", "Pending", "Running"))
    check_gang(history.events[PODS], len(WHOLE))
    whole.delete("cats")


def test_failed_chief_restarts_the_gang_until_backoff_limit(whole: Whole) -> None:
    submit(whole, "cats", chief_seconds=1.0, exit_code=3, runPolicy={"backoffLimit": 1})
    first = whole.until("all are planned", lambda: (found := attempts(whole, "cats")) and len(found) == 4 and found)
    whole.until("it has failed", lambda: whole.status("cats").get("progress", {}).get("failures") == 1)
    second = whole.until(
        "all are planned again",
        lambda: (found := attempts(whole, "cats")) and len(found) == 4 and not (found & first) and found,
    )
    assert min(second) > max(first)
    status = whole.until_phase("cats", "Failed")
    assert status["progress"]["failures"] == 2
    assert status["progress"]["attempts"]
    whole.until("all have gone", lambda: not roles(whole, "cats", "Pending", "Running"))
    whole.delete("cats")


def test_preempted_gang_with_chief_and_server_restarts_whole(whole: Whole) -> None:
    submit(whole, "cats", chief_seconds=30.0, estimatedDuration="2h")
    whole.until("all run", lambda: roles(whole, "cats", "Running") == WHOLE)
    before = attempts(whole, "cats")
    short: dict[str, Any] = {"data": None, "model": None, "estimatedDuration": "3s"}
    whole.submit("dogs", chunks=2, seconds=100.0, zone="edge-a", priorityClassName="tranche-high", **short)
    whole.until("all of it has gone", lambda: not roles(whole, "cats", "Pending", "Running"))
    whole.until("the other one runs", lambda: whole.status("dogs").get("phase") == "Running")
    assert whole.status("cats")["progress"]["failures"] == 0
    whole.until_phase("dogs", "Succeeded")
    whole.until("all run again", lambda: roles(whole, "cats", "Running") == WHOLE)
    assert min(attempts(whole, "cats")) > max(before)
    whole.delete("cats", "dogs")
