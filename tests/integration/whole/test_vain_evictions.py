"""Nothing is evicted for a job that cannot start: because of its own template, or without a kube-scheduler."""

import os
import signal
from collections.abc import Iterator

import pytest

from support.full_stack import Whole
from support.waiting import stays
from tranche.demo.local_stack import KUBE_SCHEDULER

VICTIMS = ("victim-0", "victim-1")
EVICTIONS_SECONDS = 75.0
"""Longer than the time after which a pod without a node was planned on the next node, twice."""


@pytest.fixture
def full(whole: Whole) -> Iterator[Whole]:
    """Each GPU of edge-a trains a long job that may be preempted."""
    for number, name in enumerate(VICTIMS):
        whole.submit(name, seconds=900.0, node=f"edge-a-{number}")
    for name in VICTIMS:
        whole.until_phase(name, "Running")
    yield whole
    whole.delete("better", *VICTIMS)


def preemptions(whole: Whole) -> int:
    return sum(whole.status(name).get("progress", {}).get("preemptions", 0) for name in VICTIMS)


def test_missing_claim_evicts_one_worker_at_most(full: Whole) -> None:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "nowhere"}}
    container = {"name": "t", "image": "x", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    full.submit("better", seconds=1.0, zone="edge-a", container=container, pod={"volumes": [volume]})
    stays(lambda: preemptions(full) <= 1, "one eviction at most", seconds=EVICTIONS_SECONDS)
    full.until("the reason", lambda: "not found" in full.status("better")["plan"]["explanation"], 120.0)


def test_stopped_kube_scheduler_costs_one_eviction_at_most(full: Whole) -> None:
    pid = full.cluster.pid(KUBE_SCHEDULER)
    os.kill(pid, signal.SIGSTOP)
    try:
        full.submit("better", seconds=1.0, zone="edge-a")
        stays(lambda: preemptions(full) <= 1, "one eviction at most", seconds=EVICTIONS_SECONDS)
    finally:
        os.kill(pid, signal.SIGCONT)
    full.until_phase("better", "Succeeded")
    assert preemptions(full) <= 1
