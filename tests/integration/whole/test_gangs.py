"""Gangs on a real control plane: all or nothing, with a time limit, and with a chief whose end is the end of all."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.full_stack import API, System
from support.object_history import History, check_gang

PODS = "/api/v1/namespaces/default/pods"
JOBS = f"{API}/namespaces/default/trainingjobs"
PORT = {"ports": [{"containerPort": 8080, "hostPort": 8080}]}
CHIEF_SECONDS = 600.0
"""Time for which a chief runs that the test ends, or that another gang preempts."""


@pytest.fixture
def history(system: System) -> Iterator[History]:
    with History(str(system.cluster.kubeconfig), PODS, JOBS) as made:
        yield made


def submit_gang(system: System, name: str, members: int, seconds: float, believed: float = 60.0, **more: Any) -> None:
    """Submit an all-reduce job; every member trains one batch, which takes less time than its user has estimated."""
    gang: dict[str, Any] = {"data": None, "model": None, "estimatedDuration": f"{believed:g}s"}
    system.submit(name, chunks=members, seconds=50 * seconds, zone="edge-a", **gang, **more)


def submit_served(system: System) -> None:
    """A chunked job of one worker at edge-b, whose parameter server requests the port of `PORT` at edge-a-1."""
    container = {"name": "ps", "image": "x", "resources": {"requests": {"cpu": "1"}}, **PORT}
    spec = {"containers": [container], "nodeSelector": {"kubernetes.io/hostname": "edge-a-1"}}
    system.submit("served", seconds=60.0, zone="edge-b", parameterServers={"template": {"spec": spec}})
    system.until("its pods", lambda: len(system.pods("served")) == 2)


def plans(history: History, name: str) -> list[dict[str, Any]]:
    """Return all plans that a job has had: a pause may end before somebody reads the last one."""
    statuses = (job.get("status", {}) for job in history.of(JOBS, name))
    return [status["plan"] for status in statuses if "plan" in status]


def pauses(plan: dict[str, Any]) -> bool:
    explanation = plan["explanation"]
    return not plan.get("workers") and explanation.startswith("held until") and "found no place" in explanation


def unplanned(system: System, name: str) -> bool:
    """Return whether a job has no window; a worker without its parameter server would hold a GPU for nothing."""
    plan = system.status(name)["plan"]
    return not plan.get("parameterServers") and not plan.get("workers")


def test_all_members_are_created_from_one_plan(system: System, history: History) -> None:
    submit_gang(system, "pair", 2, 3.0)
    system.until_phase("pair", "Succeeded")
    check_gang(history.events[PODS], 2)
    system.delete("pair")


def test_a_gang_that_does_not_fit_costs_no_pods(system: System) -> None:
    submit_gang(system, "three", 3, 3.0)
    plan = system.until("a plan", lambda: system.status("three").get("plan"))
    assert not plan.get("workers")
    assert not system.pods("three")
    resources = {"requests": {"cpu": "20", "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    wide: dict[str, Any] = {"data": None, "model": None, "estimatedDuration": "60s"}
    system.submit("wide", chunks=2, seconds=50.0, zone="edge-b", container={"resources": resources}, **wide)
    plan = system.until("a plan", lambda: system.status("wide").get("plan"))
    assert not plan.get("workers")
    assert not system.pods("wide"), "there are GPUs for both and CPU for one"
    system.delete("three", "wide")


def test_gang_with_unplaceable_member_releases_all_and_next_runs(system: System, history: History) -> None:
    taken = {"containers": [{"name": "c", "image": "x", **PORT}], "nodeName": "edge-a-1"}
    guest = {"metadata": {"name": "guest"}, "spec": taken}
    assert system.cluster.request("POST", PODS, guest)[0] == 201
    running = lambda: system.cluster.request("GET", f"{PODS}/guest")[1]["status"]["phase"] == "Running"  # noqa: E731
    system.until("the guest runs", running)
    try:
        submit_served(system)
        submit_gang(system, "stuck", 2, 400.0, 500.0, container=PORT)
        system.until("one member runs", lambda: system.status("stuck").get("phase") == "Running")
        assert len(system.pods("stuck")) == 2
        submit_gang(system, "next", 2, 5.0, 600.0)
        assert not system.pods("next")
        system.until("it gives up and pauses", lambda: any(map(pauses, plans(history, "stuck"))))
        assert system.until_phase("next", "Succeeded")["plan"]["attempts"] == 2
        assert system.status("stuck")["progress"]["failures"] == 0
        system.delete("stuck", "next")
        system.until("neither server nor worker is planned between two tries", lambda: unplanned(system, "served"))
        system.cluster.request("DELETE", f"{PODS}/guest", {"gracePeriodSeconds": 0})
        system.until_phase("served", "Running")
    finally:
        system.cluster.request("DELETE", f"{PODS}/guest")
        system.delete("stuck", "next", "served")


def part_template(role: str, gpus: int = 0, **annotations: str) -> dict[str, Any]:
    """A pod template; without annotations the pod serves until it is stopped."""
    requests = {"cpu": "1", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    resources = {"requests": requests, **({"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {})}
    asked = {f"kwok.tranche.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
    spec = {"containers": [{"name": role, "image": "x", "resources": resources}], "terminationGracePeriodSeconds": 5}
    return {
        "metadata": {"annotations": asked},
        "spec": {**spec, "nodeSelector": {"topology.kubernetes.io/zone": "edge-a"}},
    }


def submit_with_chief(
    system: System, name: str, *, chief_seconds: float = CHIEF_SECONDS, exit_code: int = 0, **spec: Any
) -> None:
    """Submit two workers for the two GPUs of edge-a, a parameter server, and a chief that runs ``chief_seconds``."""
    chief = part_template("chief", run_seconds=str(chief_seconds), exit_code=str(exit_code))
    gang: dict[str, Any] = {
        "data": None,
        "model": None,
        "workers": {"maxReplicas": 2, "template": part_template("worker", gpus=1)},
        "parameterServers": {"replicas": 1, "template": part_template("ps")},
        "chief": {"template": chief},
        "estimatedDuration": "30s",
        **spec,
    }
    system.submit(name, **gang)


def roles(system: System, name: str, *phases: str) -> list[str]:
    """Return the roles of the job's pods in one of these phases, sorted."""
    pods = [pod for pod in system.pods(name) if pod["status"].get("phase") in phases]
    return sorted(pod["metadata"]["labels"]["tranche.dev/role"] for pod in pods)


def attempts(job: dict[str, Any]) -> set[int]:
    """Return the attempts of the open entries of a job's plan."""
    plan = job.get("status", {}).get("plan", {})
    entries = [
        *plan.get("workers", []),
        *plan.get("parameterServers", []),
        *([plan["chief"]] if "chief" in plan else []),
    ]
    return {entry["attempt"] for entry in entries if entry["state"] == "Open"}


WHOLE = ["chief", "ps", "worker", "worker"]


def test_gang_with_chief_starts_together_and_ends_with_the_chief(system: System, history: History) -> None:
    submit_with_chief(system, "cats")
    system.until("all run", lambda: roles(system, "cats", "Running") == WHOLE)
    tasks: dict[tuple[str, int], dict[str, Any]] = {}
    for pod in system.pods("cats"):
        env = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
        config = json.loads(env["TF_CONFIG"])
        tasks[config["task"]["type"], config["task"]["index"]] = config["cluster"]
        host = f"{pod['spec']['hostname']}.{pod['spec']['subdomain']}.default.svc:2222"
        assert config["cluster"][config["task"]["type"]][config["task"]["index"]] == host
    assert sorted(tasks) == [("chief", 0), ("ps", 0), ("worker", 0), ("worker", 1)]
    assert len({json.dumps(cluster) for cluster in tasks.values()}) == 1
    (chief,) = [pod for pod in system.pods("cats") if pod["metadata"]["labels"]["tranche.dev/role"] == "chief"]
    system.end_worker(chief)
    status = system.until_phase("cats", "Succeeded")
    assert "chief" not in status["plan"]
    assert status["progress"]["failures"] == 0
    system.until("workers and servers have gone", lambda: not roles(system, "cats", "Pending", "Running"))
    check_gang(history.events[PODS], len(WHOLE))
    system.delete("cats")


def test_failed_chief_restarts_the_gang_until_backoff_limit(system: System, history: History) -> None:
    submit_with_chief(system, "cats", chief_seconds=1.0, exit_code=3, runPolicy={"backoffLimit": 1})
    status = system.until_phase("cats", "Failed")
    assert status["progress"]["failures"] == 2
    planned = [found for found in map(attempts, history.events[JOBS]) if len(found) == len(WHOLE)]
    first, *_, second = planned
    assert min(second) > max(first)
    assert {frozenset(found) for found in planned} == {frozenset(first), frozenset(second)}
    assert status["progress"]["attempts"]
    system.until("all have gone", lambda: not roles(system, "cats", "Pending", "Running"))
    system.delete("cats")


def test_preempted_gang_with_chief_and_server_restarts_whole(system: System) -> None:
    submit_with_chief(system, "cats", estimatedDuration="2h")
    system.until("all run", lambda: roles(system, "cats", "Running") == WHOLE)
    before = attempts(system.job("cats"))
    short: dict[str, Any] = {"data": None, "model": None, "estimatedDuration": "10s"}
    seconds = 50 * CHIEF_SECONDS  # until the test ends them: meanwhile, the others are gone
    system.submit("dogs", chunks=2, seconds=seconds, zone="edge-a", priorityClassName="tranche-high", **short)
    system.until("all of it has gone", lambda: not roles(system, "cats", "Pending", "Running"))
    system.until("the other one runs", lambda: system.status("dogs").get("phase") == "Running")
    assert system.status("cats")["progress"]["failures"] == 0
    system.complete("dogs")
    system.until("all run again", lambda: roles(system, "cats", "Running") == WHOLE)
    assert min(attempts(system.job("cats"))) > max(before)
    system.delete("cats", "dogs")
