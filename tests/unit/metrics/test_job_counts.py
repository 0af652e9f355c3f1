from typing import Any

from support.extender_objects import job
from tranche.kube.api.resources import TrainingJob
from tranche.metrics.job_counts import JobCounts


def waiting(name: str, created: str, start: str | None = None) -> TrainingJob:
    whole: dict[str, Any] = job(name, creationTimestamp=created).model_dump(
        by_alias=True, mode="json", exclude_none=True
    )
    whole["status"]["plan"] |= {"estimatedStart": start} if start is not None else {}
    return TrainingJob.model_validate(whole)


def test_census_counts_job_in_current_phase_until_deleted() -> None:
    counts = JobCounts()
    first, later = job("cats"), job("cats", phase="Running")
    counts.note("ns/cats", None, first)
    assert (counts.phases["Waiting"], set(counts.waiting)) == (1, {"ns/cats"})
    counts.note("ns/cats", first, later)
    assert (counts.phases["Waiting"], counts.phases["Running"], counts.waiting) == (0, 1, {})
    counts.note("ns/cats", later, None)
    assert counts.phases.total() == 0


def test_census_counts_planned_starts_of_waiting_jobs() -> None:
    counts = JobCounts(
        [
            waiting("soon", "1970-01-01T00:00:05Z", "1970-01-01T00:01:00Z"),
            waiting("late", "1970-01-01T00:00:03Z", "1970-01-01T00:10:00Z"),
            waiting("never", "1970-01-01T00:00:09Z"),
        ]
    )
    assert counts.planned([59.0, 60.0, 1000.0]) == (2, [0, 1, 2])
    assert counts.oldest() == 3.0


def test_without_waiting_jobs_none_is_the_oldest() -> None:
    assert JobCounts([job("cats", phase="Succeeded")]).oldest() is None
