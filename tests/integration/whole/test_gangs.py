"""Gangs on a real control plane: all or nothing, and with a time limit."""

from collections.abc import Iterator
from typing import Any

import pytest

from support.full_stack import Whole
from support.object_history import History, check_gang

PODS = "/api/v1/namespaces/default/pods"
PORT = {"ports": [{"containerPort": 8080, "hostPort": 8080}]}


@pytest.fixture
def history(whole: Whole) -> Iterator[History]:
    with History(str(whole.cluster.kubeconfig), PODS) as made:
        yield made


def submit_gang(whole: Whole, name: str, members: int, seconds: float, believed: float = 60.0, **more: Any) -> None:
    """Submit an all-reduce job; every member trains one batch, which takes less time than its user has estimated."""
    gang: dict[str, Any] = {"data": None, "model": None, "estimatedDuration": f"{believed:g}s"}
    whole.submit(name, chunks=members, seconds=50 * seconds, zone="edge-a", **gang, **more)


def submit_served(whole: Whole) -> None:
    """A chunked job of one worker at edge-b, whose parameter server requests the port of `PORT` at edge-a-1."""
    container = {"name": "ps", "image": "x", "resources": {"requests": {"cpu": "1"}}, **PORT}
    spec = {"containers": [container], "nodeSelector": {"kubernetes.io/hostname": "edge-a-1"}}
    whole.submit("served", seconds=60.0, zone="edge-b", parameterServers={"template": {"spec": spec}})
    whole.until("its pods", lambda: len(whole.pods("served")) == 2)


def pauses(plan: dict[str, Any]) -> bool:
    return not plan.get("workers") and "found no place" in plan["explanation"]


def test_all_members_are_created_from_one_plan(whole: Whole, history: History) -> None:
    submit_gang(whole, "pair", 2, 3.0)
    whole.until_phase("pair", "Succeeded")
    check_gang(history.events[PODS], 2)
    whole.delete("pair")


def test_a_gang_that_does_not_fit_costs_no_pods(whole: Whole) -> None:
    submit_gang(whole, "three", 3, 3.0)
    plan = whole.until("a plan", lambda: whole.status("three").get("plan"))
    assert not plan.get("workers")
    assert not whole.pods("three")
    resources = {"requests": {"cpu": "20", "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    wide: dict[str, Any] = {"data": None, "model": None, "estimatedDuration": "60s"}
    whole.submit("wide", chunks=2, seconds=50.0, zone="edge-b", container={"resources": resources}, **wide)
    plan = whole.until("a plan", lambda: whole.status("wide").get("plan"))
    assert not plan.get("workers")
    assert not whole.pods("wide"), "there are GPUs for both and CPU for one"
    whole.delete("three", "wide")


def test_gang_with_unplaceable_member_releases_all_and_next_runs(whole: Whole) -> None:
    taken = {"containers": [{"name": "c", "image": "x", **PORT}], "nodeName": "edge-a-1"}
    guest = {"metadata": {"name": "guest"}, "spec": taken}
    assert whole.cluster.request("POST", PODS, guest)[0] == 201
    whole.until("the guest runs", lambda: whole.cluster.request("GET", f"{PODS}/guest")[1]["status"].get("phase"))
    try:
        submit_served(whole)
        submit_gang(whole, "stuck", 2, 45.0, 50.0, container=PORT)
        whole.until("one member runs", lambda: whole.status("stuck").get("phase") == "Running")
        assert len(whole.pods("stuck")) == 2
        submit_gang(whole, "next", 2, 5.0)
        assert not whole.pods("next")
        whole.until("it gives up and pauses", lambda: pauses(whole.status("stuck")["plan"]))
        assert whole.until_phase("next", "Succeeded")["plan"]["attempts"] == 2
        assert whole.status("stuck")["progress"]["failures"] == 0
        whole.delete("stuck", "next")
        plan = whole.status("served")["plan"]
        assert not plan.get("parameterServers")
        assert not plan.get("workers"), "without its server it would have held a GPU for nothing"
        whole.cluster.request("DELETE", f"{PODS}/guest", {"gracePeriodSeconds": 0})
        whole.until("its server is tried again", lambda: whole.status("served").get("phase") == "Running", 30.0)
    finally:
        whole.cluster.request("DELETE", f"{PODS}/guest")
        whole.delete("stuck", "next", "served")
