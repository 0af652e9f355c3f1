"""A tenant whose objects the API server does not take back, or who writes any status, delays no other tenant."""

from collections.abc import Iterator
from typing import Any

import pytest

from support.full_stack import API, System

EVIL = f"{API}/namespaces/evil/trainingjobs"
LEAST, MOST, STEP = 1_000_000, 1_600_000, 1_000
"""Bytes of variables between which the largest job that can be created is searched."""


def large_job(name: str, size: int) -> dict[str, Any]:
    """Return a job with variables of this size in total."""
    pieces = [size // 20 + (1 if number < size % 20 else 0) for number in range(20)]
    variables = [{"name": f"BIG_{number}", "value": "x" * piece} for number, piece in enumerate(pieces)]
    requests = {"cpu": "1", "nvidia.com/gpu": "1"}
    container = {"name": "t", "image": "x", "env": variables}
    container["resources"] = {"requests": requests, "limits": {"nvidia.com/gpu": "1"}}  # type: ignore[assignment]
    workers = {"maxReplicas": 1, "template": {"spec": {"containers": [container]}}}
    spec = {"workers": workers, "estimatedDuration": "1s"}
    kind = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob"}
    return {**kind, "metadata": {"name": name, "namespace": "evil"}, "spec": spec}


def largest(system: System) -> int:
    """Return the size of the largest job that the API server creates; its status cannot be added any more."""
    fits, fails = LEAST, MOST
    while fails - fits > STEP:
        size = (fits + fails) // 2
        status, _ = system.cluster.request("POST", EVIL, large_job("probe", size))
        if status == 201:
            system.cluster.request("DELETE", f"{EVIL}/probe")
            fits = size
        else:
            fails = size
    return fits


@pytest.fixture
def evil(system: System) -> Iterator[str]:
    """The path of the jobs of a namespace of its own."""
    system.cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": "evil"}})
    yield EVIL
    system.cluster.request("DELETE", EVIL)
    system.until("no jobs of the tenant", lambda: not system.cluster.request("GET", EVIL)[1]["items"])


def status_of(system: System, name: str) -> dict[str, Any]:
    return dict(system.cluster.request("GET", f"{EVIL}/{name}")[1].get("status", {}))


def test_objects_without_room_for_a_status_delay_no_tenant(system: System, evil: str) -> None:
    before, size = system.term(), largest(system)
    for number in range(10):
        status, answer = system.cluster.request("POST", evil, large_job(f"big-{number}", size))
        assert status == 201, answer
    system.submit("small")
    system.until_phase("small", "Succeeded")
    assert system.term() == before, "no leader has ended"
    system.delete("small")


@pytest.mark.parametrize("forged", [(2**31 - 1, 1), (1_000_000, 1), (0, 2**53)])
def test_forged_plan_ends_no_leader_and_is_reported(system: System, evil: str, forged: tuple[int, int]) -> None:
    before = system.term()
    name = f"forged-{forged[0]}"
    system.cluster.request("POST", evil, large_job(name, 100))
    system.until("it has a plan", lambda: status_of(system, name).get("plan"))
    plan = status_of(system, name)["plan"] | {"term": forged[0] or before, "revision": forged[1]}
    patch = {"status": {"plan": plan}}
    path, kind = f"{evil}/{name}/status", "application/merge-patch+json"
    status, answer = system.cluster.request("PATCH", path, patch, kind)
    assert status == 200, answer
    conditions = system.until(
        "the forgery is reported",
        lambda: [
            one
            for one in status_of(system, name).get("conditions", ())
            if (one["type"], one.get("reason")) == ("Planned", "InvalidPlan")
        ],
    )
    assert "delete the job" in conditions[0]["message"]
    system.submit("small")
    system.until_phase("small", "Succeeded")
    assert system.term() == before, "no leader has ended"
    system.delete("small")
    system.cluster.request("DELETE", f"{evil}/{name}")


def test_term_above_the_maximum_is_refused(system: System, evil: str) -> None:
    system.cluster.request("POST", evil, large_job("beyond", 100))
    system.until("it has a plan", lambda: status_of(system, "beyond").get("plan"))
    plan = status_of(system, "beyond")["plan"] | {"term": 2**31}
    path, kind = f"{evil}/beyond/status", "application/merge-patch+json"
    status, answer = system.cluster.request("PATCH", path, {"status": {"plan": plan}}, kind)
    assert (status, "status.plan.term" in str(answer)) == (422, True)
