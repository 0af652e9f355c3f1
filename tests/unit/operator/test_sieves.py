"""Only what reconcile would see differently is news."""

import copy
from typing import Any

import pytest

from tranche_operator.sieves import Sieve

JOB: dict[str, Any] = {
    "metadata": {"uid": "u", "name": "j", "namespace": "n", "generation": 1, "resourceVersion": "1"},
    "status": {"plan": {"term": 1, "revision": 2}, "phase": "Running", "activeWorkers": 1},
}
POD: dict[str, Any] = {
    "metadata": {"uid": "p", "name": "j-worker-0-1", "namespace": "n", "resourceVersion": "1", "finalizers": ["f"]},
    "spec": {"schedulingGates": [{"name": "tranche.dev/gang"}]},
    "status": {"phase": "Pending"},
}


def changed(thing: dict[str, Any], part: str, **values: Any) -> dict[str, Any]:
    other = copy.deepcopy(thing)
    other[part].update(values)
    return other


@pytest.mark.parametrize(
    ("job", "news"),
    [
        (changed(JOB, "metadata", resourceVersion="2", managedFields=[]), False),
        (changed(JOB, "status", activeWorkers=2, conditions=[{"type": "Running"}]), False),
        (changed(JOB, "status", plan={"term": 1, "revision": 3}), True),
        (changed(JOB, "status", plan={"term": 2, "revision": 2}), True),
        (changed(JOB, "status", phase="Succeeded"), True),
        (changed(JOB, "status", startTime="2026-11-21T12:00:00Z"), True),
        (changed(JOB, "metadata", generation=2), True),
        (changed(JOB, "metadata", deletionTimestamp="2026-11-21T12:00:00Z"), True),
        (changed(JOB, "metadata", uid="another"), True),
    ],
)
def test_of_a_job_a_new_spec_plan_or_phase_is_news_and_a_count_is_not(job: dict[str, Any], news: bool) -> None:
    sieve = Sieve()
    assert sieve.is_news_of_job(JOB, gone=False)
    assert sieve.is_news_of_job(job, gone=False) is news


@pytest.mark.parametrize(
    ("pod", "news"),
    [
        (changed(POD, "metadata", resourceVersion="2", annotations={"a": "b"}), False),
        (changed(POD, "spec", nodeName="n1"), False),
        (changed(POD, "status", conditions=[{"type": "PodScheduled", "status": "True"}]), False),
        (changed(POD, "spec", schedulingGates=[]), True),
        (changed(POD, "status", phase="Running"), True),
        (changed(POD, "metadata", finalizers=[]), True),
        (changed(POD, "metadata", deletionTimestamp="2026-11-21T12:00:00Z"), True),
    ],
)
def test_of_a_pod_its_phase_gates_and_finalizers_are_news_and_its_binding_is_not(
    pod: dict[str, Any], news: bool
) -> None:
    sieve = Sieve()
    assert sieve.is_news_of_pod(POD, gone=False)
    assert sieve.is_news_of_pod(pod, gone=False) is news


def test_an_end_is_always_news_and_so_is_everything_after_a_list() -> None:
    sieve = Sieve()
    assert sieve.is_news_of_pod(POD, gone=False)
    assert sieve.is_news_of_pod(POD, gone=True)
    assert sieve.is_news_of_pod(POD, gone=False), "forgotten"
    sieve.clear()
    assert sieve.is_news_of_pod(POD, gone=False)
