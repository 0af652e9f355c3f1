"""Preemption on a real control plane: evictions that are refused, vain or slow, and what they cost."""

import logging
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

from support.full_stack import API, System
from support.object_history import History
from support.stopped_process import stopped
from support.waiting import WAIT_SECONDS, stays
from tranche.demo.local_stack import KUBE_SCHEDULER

logger = logging.getLogger(__name__)
JOBS = f"{API}/namespaces/default/trainingjobs"
PODS = "/api/v1/namespaces/default/pods"
SAVING_SECONDS = 3.0
TURNAROUND_SECONDS = WAIT_SECONDS
"""From the victim's end to the other worker's start, on a machine that runs other tests; alone less than a second."""
GRACE_SECONDS = 2 * int(TURNAROUND_SECONDS)
"""Grace period of the victim; its rest is longer than that time."""
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
VICTIMS = ("victim-0", "victim-1")
SILENCE_SECONDS = 40.0
"""Longer than kube-scheduler may leave a pod without a verdict before preemption pauses."""
EVICTIONS_SECONDS = 75.0
"""Longer than the time after which a pod without a node was planned on the next node, twice."""


def change(history: History, job: str, what: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """Return the first state of the job's only pod of which a condition is true."""
    pods = (pod for pod in history.events[PODS] if pod["metadata"]["labels"]["tranche.dev/job"] == job)
    return next(pod for pod in pods if what(pod))


def saving_seconds(pod: dict[str, Any]) -> float:
    """Return for how long a pod ran after its deletion; both times have whole seconds."""
    metadata, (container,) = pod["metadata"], pod["status"]["containerStatuses"]
    ended = datetime.fromisoformat(container["state"]["terminated"]["finishedAt"])
    limit = datetime.fromisoformat(metadata["deletionTimestamp"])
    return float(metadata["deletionGracePeriodSeconds"] - (limit - ended).total_seconds())


def test_beneficiary_starts_when_victim_saved_before_grace_ends(system: System) -> None:
    with History(str(system.cluster.kubeconfig), PODS) as history:
        pod = {"terminationGracePeriodSeconds": GRACE_SECONDS}
        system.submit("saving", seconds=450.0, zone="edge-a", checkpoint_seconds=SAVING_SECONDS, pod=pod)
        system.submit("beside", seconds=600.0, zone="edge-a", preemption={"policy": "Never"})  # the most work left
        system.until("both run", lambda: {system.status(j).get("phase") for j in ("saving", "beside")} == {"Running"})
        system.submit("urgent", seconds=1.0, zone="edge-a")
        system.until_phase("urgent", "Succeeded")
    victim = change(history, "saving", lambda pod: pod["status"].get("phase") == "Failed")
    started = change(history, "urgent", lambda pod: pod["status"].get("phase") == "Running")["heard"]
    logger.info("saved after %.0f s, started %.2f s later", saving_seconds(victim), started - victim["heard"])
    assert saving_seconds(victim) >= SAVING_SECONDS
    assert 0 < started - victim["heard"] <= TURNAROUND_SECONDS
    assert system.status("beside")["progress"]["preemptions"] == 0
    system.delete("saving", "beside", "urgent")


def test_victim_with_cost_above_gain_is_not_preempted(system: System) -> None:
    system.submit("costly", seconds=300.0, zone="edge-a", preemption={"restartOverhead": "50m"})
    system.submit("beside", seconds=600.0, zone="edge-a", preemption={"policy": "Never"})
    system.until("both run", lambda: {system.status(j).get("phase") for j in ("costly", "beside")} == {"Running"})
    system.submit("quick", seconds=1.0, zone="edge-a")
    system.until("a planned start", lambda: system.status("quick").get("plan", {}).get("estimatedStart"))
    assert not system.pods("quick")
    assert [window["state"] for window in system.status("costly")["plan"]["workers"]] == ["Open"]
    system.delete("quick", "costly", "beside")


def protect_by_budget(system: System, job: str) -> None:
    selector = {"matchLabels": {"tranche.dev/job": job}}
    spec = {"minAvailable": 1, "selector": selector}
    assert system.cluster.request("POST", BUDGETS, {"metadata": {"name": job}, "spec": spec})[0] == 201
    status = f"{BUDGETS}/{job}"
    system.until("a budget", lambda: system.cluster.request("GET", status)[1].get("status", {}).get("currentHealthy"))


def refusals(history: History, job: str) -> list[dict[str, str]]:
    """Return each state of the condition EvictionsRefused of a job: True may be over before a request reads it."""
    found: list[dict[str, str]] = []
    for version in history.events[JOBS]:
        for one in version.get("status", {}).get("conditions", ()) if version["metadata"]["name"] == job else ():
            if one["type"] == "EvictionsRefused" and one not in found:
                found.append(one)
    return found


def test_victim_protected_by_budget_runs_on_and_another_stops(system: System) -> None:
    system.submit("protected", seconds=600.0, zone="edge-a")  # the most work left: the first whom anybody would stop
    system.until_phase("protected", "Running")
    protect_by_budget(system, "protected")
    system.submit("open", seconds=300.0, zone="edge-a")
    system.until_phase("open", "Running")
    (pod,) = system.pods("protected")
    try:
        with History(str(system.cluster.kubeconfig), JOBS) as history:
            system.submit("small", seconds=1.0, zone="edge-a")
            status = system.until_phase("small", "Succeeded")
            system.until(
                "it is taken back", lambda: [c["status"] for c in refusals(history, "protected")[-1:]] == ["False"]
            )
        told = refusals(history, "protected")[0]
        assert (told["status"], told["reason"]) == ("True", "DisruptionBudget")
        assert "protected-worker-0-1" in told["message"]
        assert status["plan"]["attempts"] == 2, "the first window was given up at once, not after a timeout"
        assert system.status("open")["progress"]["preemptions"] == 1
        (same,) = system.pods("protected")
        assert same["metadata"]["uid"] == pod["metadata"]["uid"]
        assert "deletionTimestamp" not in same["metadata"]
        assert system.status("protected")["progress"]["preemptions"] == 0
    finally:
        system.cluster.request("DELETE", f"{BUDGETS}/protected")
        system.delete("protected", "open", "small")


@pytest.fixture
def full_site(system: System) -> Iterator[System]:
    """Each GPU of edge-a trains a long job that may be preempted."""
    for number, name in enumerate(VICTIMS):
        system.submit(name, seconds=900.0, node=f"edge-a-{number}")
    for name in VICTIMS:
        system.until_phase(name, "Running")
    yield system
    system.delete("better", *VICTIMS)


def preemptions(system: System) -> int:
    return sum(system.status(name).get("progress", {}).get("preemptions", 0) for name in VICTIMS)


def test_missing_claim_evicts_one_worker_at_most(full_site: System) -> None:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "nowhere"}}
    container = {"name": "t", "image": "x", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    full_site.submit("better", seconds=1.0, zone="edge-a", container=container, pod={"volumes": [volume]})
    stays(lambda: preemptions(full_site) <= 1, "one eviction at most", seconds=EVICTIONS_SECONDS)
    full_site.until("the reason", lambda: "not found" in full_site.status("better")["plan"]["explanation"])


def test_missing_resource_claim_does_not_stop_preemption(system: System) -> None:
    """kube-scheduler gives no verdict about a pod before its resource claims exist."""
    system.submit("victim-0", seconds=900.0, node="edge-a-0")
    system.until_phase("victim-0", "Running")
    claims = [{"name": "nic", "resourceClaimName": "nowhere"}]
    system.submit("claims", seconds=900.0, node="edge-a-1", pod={"resourceClaims": claims})
    system.until("its pod", lambda: system.pods("claims"))
    stays(lambda: not system.pods("claims")[0]["spec"].get("nodeName"), "it has no node", seconds=SILENCE_SECONDS)
    assert "PodScheduled" not in {one["type"] for one in system.pods("claims")[0]["status"].get("conditions", ())}
    system.submit("better", seconds=1.0, node="edge-a-0")
    system.until_phase("better", "Succeeded")
    system.delete("better", "claims", "victim-0")


def test_stopped_kube_scheduler_costs_one_eviction_at_most(full_site: System) -> None:
    with stopped(full_site.cluster.pid(KUBE_SCHEDULER)):
        full_site.submit("better", seconds=1.0, zone="edge-a")
        stays(lambda: preemptions(full_site) <= 1, "one eviction at most", seconds=EVICTIONS_SECONDS)
    full_site.until_phase("better", "Succeeded")
    assert preemptions(full_site) <= 1
