"""GPU time of jobs, from their statuses."""

from datetime import UTC, datetime
from typing import Any

import pytest

from support.operator_objects import training_job
from tranche.client.job_usage import by_namespace, ended_within, usage_of
from tranche.kube.api.names import GPU_RESOURCE, GPU_RESOURCES
from tranche.kube.api.resources import TrainingJob

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
SITES = [
    {"site": "cloud", "gpuSeconds": 5400, "trainedGpuSeconds": 5000},
    {"site": "edge-a", "gpuSeconds": 200, "trainedGpuSeconds": 100},
]


def job(**status: Any) -> TrainingJob:
    return training_job(status=status)


def requests(one: TrainingJob, gpus: str) -> TrainingJob:
    """Return the job with the GPUs of a worker; the template of the given one is shared by all tests."""
    one = one.model_copy(deep=True)
    one.spec.workers.template["spec"]["containers"][0]["resources"] = {"limits": {GPU_RESOURCE: gpus}}
    return one


def window(start: str, node: str | None = "c1") -> dict[str, Any]:
    return {"index": 0, "attempt": 1, "site": "cloud", "node": node, "chunks": [0], "start": start}


def plan(*starts: str) -> dict[str, Any]:
    return {"term": 1, "revision": 1, "observedGeneration": 1, "workers": [window(start) for start in starts]}


def test_usage_of_a_new_job_is_zero() -> None:
    one = usage_of(job(), GPU_RESOURCES, NOON.timestamp())
    assert (one.phase, one.jobs, one.completed, one.sites) == ("Waiting", 1, None, [])
    assert (one.held_gpu_seconds, one.trained_gpu_seconds, one.lost_gpu_seconds, one.running_gpu_seconds) == (0,) * 4


def test_held_is_the_sum_over_sites_and_includes_trained() -> None:
    progress = {"attainedSeconds": 5100.4, "batches": 90.0, "lostBatches": 10.0, "sites": SITES}
    one = usage_of(job(progress=progress), GPU_RESOURCES, NOON.timestamp())
    assert (one.held_gpu_seconds, one.trained_gpu_seconds) == (5600.0, 5100.4)
    assert one.lost_gpu_seconds == pytest.approx(510.04), "a tenth of the mini-batches that were trained"
    assert [(site.site, site.held_gpu_seconds) for site in one.sites] == [("cloud", 5400.0), ("edge-a", 200.0)]


def test_held_is_never_below_trained() -> None:
    """Jobs of a release that did not count sites, and jobs at more sites than a status lists."""
    assert usage_of(job(progress={"attainedSeconds": 70.0}), GPU_RESOURCES, 0.0).held_gpu_seconds == 70.0


def test_job_that_has_ended_runs_nothing() -> None:
    failed = requests(job(phase="Failed", plan=plan("2026-11-01T11:59:00Z")), "4")
    assert usage_of(failed, GPU_RESOURCES, NOON.timestamp()).running_gpu_seconds == 0.0


def test_running_counts_gpus_of_open_windows_since_their_start() -> None:
    two = requests(job(plan=plan("2026-11-01T11:59:00Z", "2026-11-01T11:59:30Z")), "4")
    assert usage_of(two, GPU_RESOURCES, NOON.timestamp()).running_gpu_seconds == 4 * 90.0
    waiting = plan() | {"workers": [window("2026-11-01T11:59:00Z", node=None)]}
    assert usage_of(requests(job(plan=waiting), "4"), GPU_RESOURCES, NOON.timestamp()).running_gpu_seconds == 0.0
    later = requests(job(plan=plan("2026-11-01T12:00:30Z")), "4")
    assert usage_of(later, GPU_RESOURCES, NOON.timestamp()).running_gpu_seconds == 0.0


def test_running_time_of_an_unreadable_job_is_zero() -> None:
    odd = requests(job(plan=plan("2026-11-01T11:59:00Z")), "many")
    assert usage_of(odd, GPU_RESOURCES, NOON.timestamp()).running_gpu_seconds == 0.0


@pytest.mark.parametrize(
    ("ended", "since", "until", "within"),
    [
        (None, None, None, True),
        (None, NOON, None, True),
        (None, NOON, NOON, False),
        ("2026-11-01T12:00:00Z", NOON, None, True),
        ("2026-11-01T11:59:59Z", NOON, None, False),
        ("2026-11-01T12:00:00Z", None, NOON, False),
        ("2026-11-01T11:59:59Z", None, NOON, True),
    ],
)
def test_period_selects_jobs_by_their_end(
    ended: str | None, since: datetime | None, until: datetime | None, within: bool
) -> None:
    status = {"completionTime": ended} if ended else {}
    assert ended_within(job(**status), since, until) is within


def test_namespace_has_the_sums_of_its_jobs() -> None:
    one = usage_of(job(progress={"attainedSeconds": 100.0, "batches": 1.0, "lostBatches": 1.0}), GPU_RESOURCES, 0.0)
    (total,) = by_namespace([one, one])
    assert (total.namespace, total.name, total.jobs, total.phase) == (one.namespace, "", 2, "")
    assert (total.held_gpu_seconds, total.trained_gpu_seconds, total.lost_gpu_seconds) == (200.0, 200.0, 100.0)
    assert by_namespace([]) == []
