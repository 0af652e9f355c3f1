"""The filter passes only the events that change the input of reconcile."""

import copy
from typing import Any

import pytest

from tranche_operator.watch.kopf_handlers import JobEventFilter

WINDOW = {"index": 0, "attempt": 1, "site": "a", "node": "a-0", "state": "Open", "chunks": [4], "end": "12:00"}
JOB: dict[str, Any] = {
    "metadata": {"uid": "u", "name": "j", "namespace": "n", "generation": 1, "resourceVersion": "1"},
    "status": {
        "plan": {"term": 1, "revision": 2, "observedGeneration": 1, "workers": [WINDOW], "explanation": "runs"},
        "progress": {"done": "0-3", "failures": 0},
        "phase": "Running",
        "activeWorkers": 1,
    },
}
WAITING: dict[str, Any] = {
    "metadata": JOB["metadata"],
    "status": {"plan": {"revision": 2, "explanation": "waits for a GPU"}, "phase": "Waiting"},
}


def changed(thing: dict[str, Any], part: str, **values: Any) -> dict[str, Any]:
    other = copy.deepcopy(thing)
    other[part].update(values)
    return other


def with_plan(thing: dict[str, Any], **values: Any) -> dict[str, Any]:
    return changed(thing, "status", plan=thing["status"]["plan"] | values)


@pytest.mark.parametrize(
    ("job", "news"),
    [
        (changed(JOB, "metadata", resourceVersion="2", managedFields=[]), False),
        (changed(JOB, "status", activeWorkers=2, conditions=[{"type": "Running"}]), False),
        (with_plan(JOB, term=2, revision=3, estimatedCompletion="13:00", explanation="runs on"), False),
        (with_plan(JOB, workers=[WINDOW | {"end": "13:00", "chunks": [4, 5], "renewed": 2}]), False),
        (with_plan(JOB, workers=[WINDOW | {"state": "Closing"}]), True),
        (with_plan(JOB, workers=[WINDOW | {"attempt": 2}]), True),
        (with_plan(JOB, workers=[WINDOW | {"node": "a-1"}]), True),
        (with_plan(JOB, workers=[]), True),
        (with_plan(JOB, parameterServers=[{"index": 0, "attempt": 2}]), True),
        (with_plan(JOB, staging=[{"site": "b", "attempt": 3}]), True),
        (with_plan(JOB, observedGeneration=2), True),
        (changed(JOB, "status", progress={"done": "0-4", "failures": 0}), True),
        (changed(JOB, "status", progress={"done": "0-3", "failures": 1}), True),
        (changed(JOB, "status", progress={"done": "0-3", "failures": 0, "running": []}), False),
        (changed(JOB, "status", phase="Succeeded"), True),
        (changed(JOB, "status", startTime="2026-11-21T12:00:00Z"), True),
        (changed(JOB, "metadata", generation=2), True),
        (changed(JOB, "metadata", deletionTimestamp="2026-11-21T12:00:00Z"), True),
        (changed(JOB, "metadata", uid="another"), True),
    ],
)
def test_sieve_passes_new_spec_plan_or_phase_but_not_counts(job: dict[str, Any], news: bool) -> None:
    job_filter = JobEventFilter()
    assert job_filter.is_relevant(JOB, gone=False)
    assert job_filter.is_relevant(job, gone=False) is news


@pytest.mark.parametrize(
    ("explanation", "news"), [("waits for a GPU", False), ("waits for 2 GPUs", True), ("waits for a GPU until", True)]
)
def test_sieve_passes_a_new_reason_to_wait(explanation: str, news: bool) -> None:
    job_filter = JobEventFilter()
    assert job_filter.is_relevant(WAITING, gone=False)
    assert job_filter.is_relevant(with_plan(WAITING, revision=3, explanation=explanation), gone=False) is news


def test_an_end_is_always_news_and_so_is_everything_after_a_list() -> None:
    job_filter = JobEventFilter()
    assert job_filter.is_relevant(JOB, gone=False)
    assert job_filter.is_relevant(JOB, gone=True)
    assert job_filter.is_relevant(JOB, gone=False), "forgotten"
    job_filter.clear()
    assert job_filter.is_relevant(JOB, gone=False)
