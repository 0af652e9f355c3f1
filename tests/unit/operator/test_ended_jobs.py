"""Actions of the operator for a job that is over, case by case."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from support.operator_objects import NOW, UID, observed, plan, pod, server, training_job, window
from support.reconcile_summary import created, decide, done_job, job_with, named, of_type, pauses
from tranche_operator.reconcile.actions import (
    Action,
    DeleteJob,
    DeletePod,
    EvictPod,
    ReleasePod,
    RequeueAfter,
    WriteStatus,
)
from tranche_operator.reconcile.pod_teardown import RECHECK_SECONDS


class TestFinishedJobs:
    def test_a_job_whose_chunks_are_all_done_has_succeeded(self) -> None:
        job = job_with(status={"progress": {"done": "0-3"}, "phase": "Running"})
        actions = decide(observed(job))
        (write,) = of_type(WriteStatus, actions)
        assert write.status["phase"] == "Succeeded"
        assert write.status["completionTime"] == "2026-11-21T12:00:00.123456Z"
        assert [event.reason for event in write.news] == ["Completed"]

    def test_nothing_is_created_for_it(self) -> None:
        assert not created(decide(observed(done_job(windows=[window(0, 9)]))))

    @pytest.mark.parametrize(
        ("policy", "deleted"),
        [("Running", ["cats-worker-1-2"]), ("All", ["cats-worker-0-1", "cats-worker-1-2"]), ("None", [])],
    )
    def test_pods_are_cleaned_up_as_the_policy_says(self, policy: str, deleted: list[str]) -> None:
        seen = observed(done_job(policy, phase="Failed"), pod(0, 1, phase="Failed"), pod(1, 2))
        actions = decide(seen)
        assert named(DeletePod, actions) == deleted
        assert named(ReleasePod, actions) == ["cats-worker-0-1"]
        assert not named(EvictPod, actions)

    def test_the_planner_may_count_the_last_pods_for_a_while(self) -> None:
        job = done_job(windows=[window(0, 1, "Closing")], since=10)
        seen = observed(job, pod(0, 1, phase="Succeeded"))
        assert not named(ReleasePod, decide(seen))
        assert pauses(decide(seen)) == pytest.approx([50.0])
        assert named(ReleasePod, decide(seen, after=50)) == ["cats-worker-0-1"]

    def test_last_pods_of_failed_job_are_released_uncounted(self) -> None:
        status = {"plan": plan(window(0, 1, "Closing")), "progress": {"failures": 9}, "phase": "Running"}
        failing = observed(job_with(status=status), pod(0, 1, phase="Failed"))
        assert not named(ReleasePod, decide(failing))
        failed = done_job(phase="Failed", windows=[window(0, 1, "Closing")])
        assert named(ReleasePod, decide(observed(failed, pod(0, 1, phase="Failed")))) == ["cats-worker-0-1"]

    def test_open_workers_of_done_job_may_end_before_servers_stop(self) -> None:
        job = done_job(windows=[window(0, 1), window(1, 2, "Closing")])
        seen = observed(job, pod(0, 1), pod(1, 2), pod(0, 3, role="ps"))
        assert named(DeletePod, decide(seen)) == ["cats-worker-1-2"]
        assert named(DeletePod, decide(seen, after=60)) == ["cats-worker-0-1", "cats-worker-1-2", "cats-ps-0-3"]
        last = observed(job, pod(0, 1, phase="Succeeded"), pod(0, 3, role="ps"))
        assert named(DeletePod, decide(last)) == ["cats-ps-0-3"]

    def test_nothing_of_a_gang_outlives_its_chief(self) -> None:
        job = done_job(chunks=None, workers=1, servers=1, chief=True)
        seen = observed(job, pod(0, 1), pod(0, 2, role="ps"), pod(0, 3, role="chief", phase="Succeeded"))
        assert named(DeletePod, decide(seen)) == ["cats-worker-0-1", "cats-ps-0-2"]
        assert named(ReleasePod, decide(seen)) == ["cats-chief-0-3"]

    def test_a_failed_job_is_stopped_at_once(self) -> None:
        job = done_job(phase="Failed", windows=[window(0, 1)])
        assert named(DeletePod, decide(observed(job, pod(0, 1)))) == ["cats-worker-0-1"]

    def test_it_is_deleted_when_its_time_to_live_is_over(self) -> None:
        job = done_job(since=100, run_policy={"ttlSecondsAfterFinished": 130})
        assert pauses(decide(observed(job))) == pytest.approx([30.0])
        assert of_type(DeleteJob, decide(observed(job), after=30)) == [DeleteJob(UID)]

    def test_job_is_not_deleted_before_its_end_is_in_the_status(self) -> None:
        """The write of the status may be refused, and history and exports read the end from it."""
        policy = {"runPolicy": {"ttlSecondsAfterFinished": 0}}
        ending = job_with(status={"progress": {"done": "0-3"}, "phase": "Running"}, spec=policy)
        actions = decide(observed(ending))
        (write,) = of_type(WriteStatus, actions)
        assert not of_type(DeleteJob, actions)
        assert pauses(actions) == [RECHECK_SECONDS]
        ended = job_with(status={"progress": {"done": "0-3"}, **write.status}, spec=policy)
        assert of_type(DeleteJob, decide(observed(ended))) == [DeleteJob(UID)]

    def test_terminal_phases_are_final(self) -> None:
        job = done_job(phase="Failed", status={"progress": {"done": "0-3"}})
        for write in of_type(WriteStatus, decide(observed(job))):
            assert write.status["phase"] == "Failed"


class TestFailures:
    def test_more_failures_than_the_limit_fail_the_job(self) -> None:
        policy = {"runPolicy": {"backoffLimit": 2}}
        within = job_with(spec=policy, status={"progress": {"failures": 2}})
        beyond = job_with(spec=policy, status={"progress": {"failures": 3}})
        assert of_type(WriteStatus, decide(observed(within)))[0].status["phase"] == "Waiting"
        assert of_type(WriteStatus, decide(observed(beyond)))[0].status["phase"] == "Failed"

    def test_a_job_fails_at_its_deadline_and_is_looked_at_then(self) -> None:
        start = (NOW - timedelta(seconds=70)).isoformat()
        status = {"startTime": start, "phase": "Running"}
        job = job_with(window(0, 1), status=status, spec={"runPolicy": {"activeDeadlineSeconds": 100}})
        seen = observed(job, pod(0, 1))
        assert pauses(decide(seen)) == pytest.approx([30.0])
        actions = decide(seen, after=30)
        (write,) = of_type(WriteStatus, actions)
        assert write.status["phase"] == "Failed"
        assert [c["reason"] for c in write.status["conditions"] if c["type"] == "Failed"] == ["DeadlineExceeded"]
        assert named(DeletePod, actions) == ["cats-worker-0-1"]

    @pytest.mark.parametrize("kind", ["chunks", "servers", "chief"])
    def test_deadline_waits_for_the_count_of_ended_pods(self, kind: str) -> None:
        """No planner may lead when the last pods end; Failed would be final, and their work lost."""
        policy = {"runPolicy": {"activeDeadlineSeconds": 100}}
        shape: dict[str, Any] = {"chunks": None, "chief": True} if kind == "chief" else {"chunks": 1}
        shape |= {"workers": 1, "spec": policy, "servers": 0 if kind == "chunks" else 1}
        status = {"startTime": NOW.isoformat(), "phase": "Running"}
        planned = plan(window(0, 1), servers=[server(0, 2)] if shape["servers"] else [])
        planned |= {"chief": server(0, 3)} if kind == "chief" else {}
        uncounted = training_job(status={**status, "plan": planned}, **shape)
        others = [pod(0, 2, role="ps")] if shape["servers"] else []
        others += [pod(0, 1)] if kind == "chief" else []  # a worker that serves until the chief is done
        last: dict[str, Any] = {"role": "chief"} if kind == "chief" else {}
        attempt = 3 if kind == "chief" else 1
        ended = pod(0, attempt, phase="Succeeded", **last)
        actions = decide(observed(uncounted, *others, ended), after=200)
        assert "Failed" not in phases(actions)
        assert not named(ReleasePod, actions)
        assert not named(DeletePod, actions)
        assert 0.0 not in pauses(actions)
        assert phases(decide(observed(uncounted, *others, pod(0, attempt, **last)), after=200)) == ["Failed"]
        counted = training_job(status={**status, "plan": plan(), "progress": {"done": "0"}}, **shape)
        assert phases(decide(observed(counted, ended), after=200)) == ["Succeeded"]
        retried = training_job(status={**status, "plan": plan(window(0, 9))}, **shape)
        assert phases(decide(observed(retried, ended), after=200)) == ["Failed"]

    def test_deadline_does_not_wait_for_pods_that_are_missing(self) -> None:
        policy = {"runPolicy": {"activeDeadlineSeconds": 100}}
        status = {"startTime": NOW.isoformat(), "phase": "Running"}
        job = job_with(window(0, 1), window(1, 2), spec=policy, status=status)
        assert phases(decide(observed(job, pod(0, 1, phase="Succeeded")), after=200)) == ["Failed"]

    def test_a_job_without_pods_has_no_deadline_yet(self) -> None:
        job = job_with(spec={"runPolicy": {"activeDeadlineSeconds": 1}})
        actions = decide(observed(job), after=1000)
        assert not of_type(RequeueAfter, actions)
        assert "firstPodTime" not in of_type(WriteStatus, actions)[0].status

    def test_deadline_counts_from_the_first_pod_that_never_starts(self) -> None:
        policy = {"runPolicy": {"activeDeadlineSeconds": 60}}
        job = job_with(window(0, 1), spec=policy)
        stuck = pod(0, 1, phase="Pending")
        (write,) = of_type(WriteStatus, decide(observed(job, stuck)))
        assert write.status["firstPodTime"]
        later = job_with(window(0, 1), spec=policy, status=write.status)
        assert pauses(decide(observed(later, stuck))) == pytest.approx([60.0])
        (ended,) = of_type(WriteStatus, decide(observed(later, stuck), after=61))
        assert ended.status["phase"] == "Failed"

    @pytest.mark.parametrize("has_first_pod", [True, False], ids=["this release", "an earlier one"])
    def test_no_deadline_passes_while_the_job_is_suspended(self, has_first_pod: bool) -> None:
        """Neither while its pods stop, nor overnight; a deadline counts again from the first pod after that."""
        policy, start = {"runPolicy": {"activeDeadlineSeconds": 100}}, NOW.isoformat()
        status = {"startTime": start, "phase": "Running"} | ({"firstPodTime": start} if has_first_pod else {})
        stopping = job_with(window(0, 1, "Closing"), status=status, spec={**policy, "suspend": True})
        assert "Failed" not in phases(decide(observed(stopping, pod(0, 1)), after=200))
        ended = pod(0, 1, phase="Failed")
        (write,) = of_type(WriteStatus, decide(observed(stopping, ended), after=200))
        assert write.status["phase"] == "Suspended"
        assert "firstPodTime" not in write.status
        resumed = job_with(status=write.status, spec=policy)
        (write,) = of_type(WriteStatus, decide(observed(resumed, ended), after=30_000))
        assert (write.status["phase"], write.status.get("firstPodTime")) == ("Waiting", None)
        runs = job_with(window(0, 2), status=write.status, spec=policy)
        (write,) = of_type(WriteStatus, decide(observed(runs, ended, pod(0, 2)), after=40_000))
        assert write.status["phase"] == "Running"
        later = job_with(window(0, 2), status=write.status, spec=policy)
        assert "Failed" not in phases(decide(observed(later, pod(0, 2)), after=40_099))
        assert phases(decide(observed(later, pod(0, 2)), after=40_101)) == ["Failed"]


def phases(actions: list[Action]) -> list[str]:
    return [write.status["phase"] for write in of_type(WriteStatus, actions)]


class TestOrphanedPods:
    def test_orphan_finalizer_keeps_the_pods(self) -> None:
        orphaning = job_with(deleting=True, finalizers=["orphan"])
        assert decide(observed(orphaning, pod(0, 1), pod(1, 2, phase="Failed"))) == []

    def test_deletion_in_the_foreground_deletes_the_pods(self) -> None:
        deleting = job_with(deleting=True, finalizers=["foregroundDeletion"])
        assert named(DeletePod, decide(observed(deleting, pod(0, 1)))) == ["cats-worker-0-1"]

    def test_a_pod_is_deleted_only_as_it_was_read(self) -> None:
        (delete,) = of_type(DeletePod, decide(observed(None, replace(pod(0, 1), version=42))))
        assert delete.version == 42

    def test_a_pod_without_owner_is_released_only(self) -> None:
        actions = decide(observed(None, pod(0, 1, owner=None)))
        assert named(ReleasePod, actions) == ["cats-worker-0-1"]
        assert named(DeletePod, actions) == []


@pytest.mark.parametrize(("phase", "expected"), [("Succeeded", "False"), ("Failed", "True")])
def test_troubles_of_a_job_end_with_its_success(phase: str, expected: str) -> None:
    """A job may succeed with a worker that was never created; why a job failed stays in its conditions."""
    kinds = ("EvictionsRefused", "PodsNotStarting", "PodsRejected", "StagingFailed")
    known = {"status": "True", "reason": "Known", "message": "known", "lastTransitionTime": "2026-11-21T11:00:00Z"}
    ledger = {"done": "0-3"} if phase == "Succeeded" else {"failures": 7}
    status = {"phase": "Running", "progress": ledger, "conditions": [{"type": kind, **known} for kind in kinds]}
    (write,) = of_type(WriteStatus, decide(observed(job_with(status=status))))
    assert write.status["phase"] == phase
    assert {one["type"]: one["status"] for one in write.status["conditions"] if one["type"] in kinds} == dict.fromkeys(
        kinds, expected
    )
