"""The history of a job names what preempted its pods."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support.operator_objects import UID, plan, training_job, window
from tranche.client.job_history import Attempt, attempts_of
from tranche.kube.api.core_types import Metadata, Owner, Pod, PodSpec, PodStatus
from tranche.kube.api.resources import TrainingJob
from tranche.kube.convert.attempt_history import count_attempts
from tranche.model import AttemptRecord
from tranche.model.attempt_record import pack

NOW = datetime(2026, 11, 22, 14, 0, tzinfo=UTC)


def ended(attempt: int, reason: str = "Preempted", **changes: Any) -> dict[str, Any]:
    return {"index": 0, "attempt": attempt, "node": "n1", "reason": reason, **changes}


def live_pod(attempt: int, phase: str = "Running") -> Pod:
    labels = {
        "tranche.dev/job": "cats",
        "tranche.dev/role": "worker",
        "tranche.dev/index": "0",
        "tranche.dev/attempt": str(attempt),
    }
    owner = Owner("tranche.dev/v1alpha1", "TrainingJob", UID, True)
    metadata = Metadata(f"cats-worker-0-{attempt}", "lab", "u", labels=labels, owner_references=(owner,))
    return Pod(metadata, PodSpec(node_name="n1"), PodStatus(phase))


def history(
    *pods: Pod, attempts: tuple[dict[str, Any], ...] = (), windows: tuple[dict[str, Any], ...] = ()
) -> list[Attempt]:
    job = training_job(status={"plan": plan(*windows), "progress": {"attempts": list(attempts)}})
    return attempts_of(job, pods, NOW)


@pytest.mark.parametrize("by", ["lab/dogs", "pod/lab/guest"])
@pytest.mark.parametrize("pods", [(), (live_pod(1, "Failed"),)])
def test_a_preempted_attempt_names_its_preemptor(by: str, pods: tuple[Pod, ...]) -> None:
    (one,) = history(*pods, attempts=(ended(1, preemptedBy=by),))
    assert (one.outcome, one.preempted_by, one.why) == ("Preempted", by, f"preempted by {by}")


def test_a_pod_that_stops_names_the_preemptor_of_its_window() -> None:
    (one,) = history(live_pod(1), windows=(window(0, 1, "Closing", preemptedBy="lab/dogs"),))
    assert (one.preempted_by, one.why) == ("lab/dogs", "preempted by lab/dogs")


def test_attempt_stopped_by_the_plan_names_no_preemptor() -> None:
    (one,) = history(attempts=(ended(1),))
    assert (one.preempted_by, one.why) == ("", "stopped by the plan: the capacity or the specification changed")


def packed(*records: AttemptRecord, **changes: Any) -> TrainingJob:
    """A job with these records in its history, the totals of 25 attempts, and no open window."""
    progress = {"history": [pack(one) for one in records], "attemptTotals": {"Succeeded": 12, "Preempted": 13}}
    return training_job(status={"plan": plan() | changes.pop("plan", {}), "progress": progress, **changes})


STOPPED = AttemptRecord(
    index=0,
    attempt=21,
    node="n1",
    reason="Preempted",
    exit_code=143,
    preempted_by="lab/dogs",
    why="which has less work left",
    started=NOW.timestamp() - 30,
    ended=NOW.timestamp() - 1,
    lost_seconds=12.0,
)
SERVER = AttemptRecord(0, 20, "n2", "Failed", 1, role="ps", why="OOMKilled", ended=NOW.timestamp(), log="Killed")
LATER = NOW + timedelta(minutes=5)


def test_packed_attempts_have_role_times_cause_and_cost() -> None:
    job = packed(SERVER, STOPPED, plan={"estimatedStart": LATER.isoformat()})
    server, stopped = attempts_of(job, (), NOW)
    assert (server.role, server.pod, server.why, server.log) == ("ps", "cats-ps-0-20", "OOMKilled", ["Killed"])
    assert (stopped.started, stopped.ended) == (NOW - timedelta(seconds=30), NOW - timedelta(seconds=1))
    cause = "preempted by lab/dogs, which has less work left; about 12 s of work lost"
    assert stopped.why == f"{cause}; resumes at about 2026-11-22 14:05:00Z"
    assert (stopped.preempted_by, stopped.lost_seconds) == ("lab/dogs", 12.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"plan": {"estimatedStart": (NOW - timedelta(seconds=9)).isoformat()}},
        {"plan": plan(window(0, 22)) | {"estimatedStart": LATER.isoformat()}},
        {"plan": {"estimatedStart": LATER.isoformat()}, "phase": "Failed"},
    ],
    ids=["past", "running", "over"],
)
def test_resume_time_is_only_that_of_a_waiting_job(changes: dict[str, Any]) -> None:
    (one,) = attempts_of(packed(STOPPED, **changes), (), NOW)
    assert one.why.endswith("about 12 s of work lost")


def test_pod_that_still_exists_keeps_the_cause_of_its_end() -> None:
    (one,) = attempts_of(packed(STOPPED), (live_pod(21, "Failed"),), NOW)
    assert (one.pod, one.preempted_by) == ("cats-worker-0-21", "lab/dogs")
    assert one.why.startswith("preempted by lab/dogs, which has less work left; about 12 s")


def test_malformed_text_of_the_history_is_left_out() -> None:
    progress = {"history": ["?", pack(STOPPED)]}
    assert [one.attempt for one in attempts_of(training_job(status={"progress": progress}), (), NOW)] == [21]


def test_all_attempts_are_counted_also_those_not_listed() -> None:
    assert count_attempts(packed(STOPPED), 1) == 25
    assert count_attempts(packed(STOPPED, plan=plan(window(0, 26))), 2) == 26
    old = training_job(status={"plan": plan(window(0, 7)), "progress": {"attempts": [ended(n) for n in range(5)]}})
    assert count_attempts(old, 6) == 6
