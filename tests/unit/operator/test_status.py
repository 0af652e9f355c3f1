"""Phase, conditions and times."""

from datetime import timedelta
from typing import Any

import pytest

from support.operator_objects import NOW, plan, server, training_job
from tranche.kube.api.resources import TrainingJob
from tranche_operator.reconcile.status import (
    NO_TIMES,
    ConditionUpdate,
    PodCounts,
    compute_phase,
    new_status,
    only_reports,
    own_status,
    pod_times,
)

RUNNING = PodCounts(active_workers=2, running_workers=1, started=True, sites=("cloud", "edge-a"))


def status_of(
    job: TrainingJob, counts: PodCounts = RUNNING, *updates: ConditionUpdate, after: float = 0.0
) -> dict[str, Any]:
    now = NOW + timedelta(seconds=after)
    phase = compute_phase(job, counts, now)
    return new_status(job, counts, phase, updates, now, pod_times(job, counts, phase, now, NO_TIMES))


def conditions_of(status: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {condition["type"]: condition for condition in status["conditions"]}


def written(job: TrainingJob, status: dict[str, Any]) -> TrainingJob:
    document = job.model_dump(by_alias=True, mode="json")
    return TrainingJob.model_validate({**document, "status": status})


@pytest.mark.parametrize(
    ("counts", "suspend", "phase"),
    [
        (PodCounts(), False, "Waiting"),
        (PodCounts(active_servers=1), False, "Waiting"),
        (PodCounts(active_workers=1), False, "Starting"),
        (PodCounts(active_workers=2, running_workers=1), False, "Running"),
        (PodCounts(), True, "Suspended"),
        (PodCounts(active_servers=1), True, "Waiting"),
        (PodCounts(active_workers=1, running_workers=1), True, "Running"),
    ],
)
def test_the_phase_follows_the_pods(counts: PodCounts, suspend: bool, phase: str) -> None:
    assert compute_phase(training_job(spec={"suspend": suspend}), counts, NOW).phase == phase


@pytest.mark.parametrize(
    ("chunks", "workers", "done", "over"),
    [(4, 9, "0-3", True), (4, 2, "0-2", False), (None, 3, "0-2", True), (None, 3, "0,2", False), (4, 4, "", False)],
)
def test_a_job_is_done_when_every_chunk_or_member_is(chunks: int | None, workers: int, done: str, over: bool) -> None:
    job = training_job(chunks=chunks, workers=workers, status={"progress": {"done": done}})
    assert (compute_phase(job, RUNNING, NOW).phase == "Succeeded") == over


@pytest.mark.parametrize(
    ("chunks", "workers", "done", "message"),
    [
        (4, 4, "0-3", "all 4 chunks are done"),
        (1, 4, "0", "the only chunk is done"),
        (None, 3, "0-2", "all 3 members of the gang are done"),
        (None, 1, "0", "the only member of the gang is done"),
    ],
)
def test_the_message_of_a_done_job_counts_in_english(chunks: int | None, workers: int, done: str, message: str) -> None:
    job = training_job(chunks=chunks, workers=workers, status={"progress": {"done": done}})
    assert compute_phase(job, RUNNING, NOW).message == message


def test_a_status_that_was_written_needs_no_second_write() -> None:
    job = training_job()
    first = status_of(job, RUNNING, ConditionUpdate("PodsRejected", "True", "QuotaExceeded", "no"))
    again = written(job, first)
    assert own_status(again.status) == first
    assert status_of(again, RUNNING, after=5) == first


def test_transition_times_change_with_the_condition_only() -> None:
    job = training_job()
    running = written(job, status_of(job))
    later = conditions_of(status_of(running, RUNNING, ConditionUpdate("PodsRejected", "True", "Forbidden"), after=60))
    assert later["Running"]["lastTransitionTime"] == "2026-11-21T12:00:00Z"
    assert later["PodsRejected"]["lastTransitionTime"] == "2026-11-21T12:01:00Z"
    stopped = conditions_of(status_of(running, PodCounts(), after=60))
    assert stopped["Running"] == {
        "type": "Running",
        "status": "False",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-11-21T12:01:00Z",
        "reason": "NoWorkers",
        "message": "no worker is planned now",
    }


def test_conditions_of_the_planner_are_not_ours_to_write() -> None:
    planned = {"type": "Planned", "status": "True", "reason": "Planned", "lastTransitionTime": "2026-11-21T11:00:00Z"}
    job = training_job(status={"conditions": [planned]})
    assert "Planned" not in conditions_of(status_of(job))
    assert "Planned" not in conditions_of(own_status(job.status))


def test_conditions_without_a_new_finding_are_kept() -> None:
    job = training_job()
    rejected = written(job, status_of(job, RUNNING, ConditionUpdate("PodsRejected", "True", "Forbidden", "webhook")))
    assert conditions_of(status_of(rejected))["PodsRejected"]["message"] == "webhook"


def test_start_and_completion_are_kept_to_the_microsecond() -> None:
    job = training_job()
    started = status_of(job)
    assert started["startTime"] == "2026-11-21T12:00:00.123456Z"
    assert "completionTime" not in started
    waiting = status_of(written(job, started), PodCounts(), after=10)
    assert waiting["startTime"] == started["startTime"]
    done = training_job(status={**started, "progress": {"done": "0-3"}})
    finished = status_of(done, PodCounts(), after=20)
    assert finished["completionTime"] == "2026-11-21T12:00:20.123456Z"
    assert status_of(written(done, finished), PodCounts(), after=30)["completionTime"] == finished["completionTime"]


def test_counts_and_sites_are_for_people() -> None:
    status = status_of(training_job())
    assert status["activeWorkers"] == 2
    assert status["sites"] == "cloud, edge-a"
    assert "sites" not in status_of(training_job(), PodCounts())


@pytest.mark.parametrize(("suspend", "expected"), [(True, "True"), (False, "False")])
def test_suspended_condition_follows_the_specification(suspend: bool, expected: str) -> None:
    job = training_job(spec={"suspend": True})
    suspended = written(job, status_of(job, PodCounts()))
    spec = {"suspend": suspend}
    changed = training_job(spec=spec, status=suspended.status.model_dump(by_alias=True, mode="json"), checked=False)
    assert conditions_of(status_of(changed, PodCounts()))["Suspended"]["status"] == expected


def test_a_job_that_never_was_suspended_says_nothing_of_it() -> None:
    assert "Suspended" not in conditions_of(status_of(training_job()))


@pytest.mark.parametrize(("progress", "condition"), [({"done": "0-3"}, "Complete"), ({"failures": 7}, "Failed")])
def test_the_end_is_a_condition_that_kubectl_can_wait_for(progress: dict[str, Any], condition: str) -> None:
    job = training_job(status={"progress": progress})
    conditions = conditions_of(status_of(job))
    assert conditions[condition]["status"] == "True"
    assert conditions["Running"]["status"] == "False"
    assert ("Complete" in conditions) != ("Failed" in conditions)
    again = written(job, status_of(job))
    assert conditions_of(status_of(again, after=5)) == conditions


def test_a_gang_is_not_done_while_its_chief_goes_on() -> None:
    entries = plan(chief=server(0, 3))
    for status, phase in (({"plan": entries}, "Running"), ({"plan": plan()}, "Succeeded")):
        job = training_job(chunks=None, workers=2, chief=True, status={**status, "progress": {"done": "0-1"}})
        assert compute_phase(job, PodCounts(active_chiefs=1, running_chiefs=1), NOW).phase == phase


def test_a_gang_is_not_suspended_before_its_chief_has_gone() -> None:
    job = training_job(chunks=None, workers=2, chief=True, spec={"suspend": True})
    assert compute_phase(job, PodCounts(active_chiefs=1), NOW).phase == "Starting"
    assert compute_phase(job, PodCounts(), NOW).phase == "Suspended"


NO_POD, STARTING, RUNS = PodCounts(), PodCounts(active_workers=2), PodCounts(active_workers=2, running_workers=2)
FEWER = PodCounts(active_workers=1, running_workers=1)


def waits(job: TrainingJob, counts: PodCounts, *updates: ConditionUpdate) -> bool:
    return only_reports(job, counts, status_of(job, counts, *updates), own_status(job.status))


@pytest.mark.parametrize(
    ("before", "counts", "expected"),
    [
        (RUNS, FEWER, True),
        (RUNS, STARTING, True),
        (RUNS, NO_POD, True),
        (STARTING, RUNS, True),
        (NO_POD, RUNS, True),
        (NO_POD, FEWER, False),
        (NO_POD, STARTING, True),
    ],
)
def test_status_only_reports_unless_workers_are_missing(before: PodCounts, counts: PodCounts, expected: bool) -> None:
    job = training_job(workers=2, status={"plan": plan()})
    assert waits(written(job, status_of(job, before)), counts) is expected


@pytest.mark.parametrize(("counts", "expected"), [(NO_POD, False), (FEWER, False), (STARTING, True), (RUNS, True)])
def test_first_status_only_reports_if_all_workers_exist(counts: PodCounts, expected: bool) -> None:
    accepted = ConditionUpdate("InvalidTemplate", "False", "TemplateAccepted", "yes")
    assert waits(training_job(workers=2, status={"plan": plan()}), counts, accepted) is expected


@pytest.mark.parametrize(
    "update",
    [
        ConditionUpdate("PodsRejected", "True", "Quota", "no"),
        ConditionUpdate("InvalidTemplate", "True", "TemplateRejected", "no"),
        ConditionUpdate("InvalidTemplate", "Unknown", "NotChecked", "no"),
        ConditionUpdate("PodsNotStarting", "True", "ImagePullBackOff", "no"),
    ],
    ids=lambda update: f"{update.type}-{update.status}",
)
def test_status_with_a_fault_does_not_wait(update: ConditionUpdate) -> None:
    job = training_job(workers=2, status={"plan": plan()})
    assert not waits(job, RUNS, update)
    assert not waits(written(job, status_of(job, RUNS)), STARTING, update)


def test_status_of_the_end_does_not_wait() -> None:
    job = training_job(workers=2, status={"plan": plan(), "progress": {"done": "0-3"}})
    assert not waits(job, RUNS)
