"""Only what reconcile would see differently is news."""

import copy
from typing import Any

import pytest

from tranche_operator.watch.kopf_handlers import JobEventFilter

JOB: dict[str, Any] = {
    "metadata": {"uid": "u", "name": "j", "namespace": "n", "generation": 1, "resourceVersion": "1"},
    "status": {"plan": {"term": 1, "revision": 2}, "phase": "Running", "activeWorkers": 1},
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
def test_sieve_passes_new_spec_plan_or_phase_but_not_counts(job: dict[str, Any], news: bool) -> None:
    job_filter = JobEventFilter()
    assert job_filter.is_relevant(JOB, gone=False)
    assert job_filter.is_relevant(job, gone=False) is news


def test_an_end_is_always_news_and_so_is_everything_after_a_list() -> None:
    job_filter = JobEventFilter()
    assert job_filter.is_relevant(JOB, gone=False)
    assert job_filter.is_relevant(JOB, gone=True)
    assert job_filter.is_relevant(JOB, gone=False), "forgotten"
    job_filter.clear()
    assert job_filter.is_relevant(JOB, gone=False)
