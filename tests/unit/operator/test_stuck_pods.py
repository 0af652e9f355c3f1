"""Pods that do not stop, and pods that stop training before their other containers end."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from support.operator_objects import ACCEPTED, NOW, observed, pod, window
from support.reconcile_summary import SETTINGS, decide, done_job, job_with, named, of_type, pauses
from tranche_operator.reconcile import stuck_pod
from tranche_operator.reconcile.actions import (
    Action,
    CreatePod,
    DeletePod,
    EmitEvent,
    EvictPod,
    ReleasePod,
    WriteStatus,
)
from tranche_operator.reconcile.observed import PodView

CONDITION = "PodsDoNotStop"
STUCK = replace(pod(0, 1, terminating=True), node="edge-a-1", ends_by=NOW)


def condition(actions: list[Action]) -> dict[str, Any]:
    (write,) = of_type(WriteStatus, actions)
    return next((c for c in write.status["conditions"] if c["type"] == CONDITION), {})


class TestPodsDoNotStop:
    closing = job_with(window(0, 1, "Closing"))

    def test_condition_names_pod_and_node_after_the_grace_period(self) -> None:
        actions = decide(observed(self.closing, STUCK), after=15)
        assert condition(actions)["status"] == "True"
        assert "cats-worker-0-1 on node edge-a-1" in condition(actions)["message"]
        assert [event.reason for event in of_type(EmitEvent, actions)] == [CONDITION]

    def test_no_condition_within_the_grace_period(self) -> None:
        actions = decide(observed(self.closing, STUCK), after=14)
        assert condition(actions) == {}
        assert pauses(actions) == [1.0]

    def test_condition_is_false_when_the_pod_is_gone(self) -> None:
        earlier = {**ACCEPTED, "type": CONDITION, "status": "True", "reason": "Terminating", "message": "x"}
        actions = decide(observed(job_with(status={"conditions": [earlier]})))
        assert condition(actions)["status"] == "False"

    def test_pods_of_an_ended_job_are_reported_too(self) -> None:
        actions = decide(observed(done_job(phase="Failed"), STUCK), after=20)
        assert condition(actions)["status"] == "True"

    def test_condition_names_a_bounded_number_of_pods(self) -> None:
        pods = [replace(pod(i, i, terminating=True), node="n", ends_by=NOW) for i in range(1, 400)]
        message = condition(decide(observed(self.closing, *pods), after=20))["message"]
        assert message.endswith("and 389 more")

    def test_only_pods_beyond_their_grace_period_are_counted(self) -> None:
        late, over = NOW + timedelta(seconds=15), replace(STUCK, over=True)
        assert stuck_pod.count([STUCK, over, pod(1, 2), pod(2, 3, terminating=True)], late) == 1
        assert stuck_pod.count([STUCK], NOW) == 0


class TestDeletedByAnotherClient:
    ends_by = NOW + timedelta(days=30)
    terminating: PodView = replace(pod(0, 1, terminating=True), ends_by=ends_by, grace_seconds=7)
    lingering: PodView = replace(terminating, deletion_grace_seconds=30 * 24 * 3600)

    def test_unneeded_pod_ends_after_the_grace_of_its_template(self) -> None:
        for job in (job_with(window(0, 1, "Closing")), job_with(), done_job(phase="Failed"), None):
            actions = decide(observed(job, self.lingering))
            assert [(one.name, one.grace_seconds) for one in of_type(DeletePod, actions)] == [("cats-worker-0-1", 7)]
            assert named(EvictPod, actions) == []

    def test_pod_whose_sidecars_remain_ends_too(self) -> None:
        trained = replace(self.lingering, trained=True, sidecars=True)
        assert named(DeletePod, decide(observed(job_with(), trained))) == ["cats-worker-0-1"]

    def test_pod_of_an_open_window_keeps_its_grace_period(self) -> None:
        assert named(DeletePod, decide(observed(job_with(window(0, 1)), self.lingering))) == []

    def test_shortened_deletion_is_not_repeated(self) -> None:
        for shortened in (replace(self.lingering, deletion_grace_seconds=7), replace(self.lingering, over=True)):
            assert named(DeletePod, decide(observed(job_with(window(0, 1, "Closing")), shortened))) == []


class TestSidecars:
    trained: PodView = replace(pod(0, 1), trained=True, sidecars=True)

    def test_a_counted_pod_with_running_sidecars_is_deleted(self) -> None:
        actions = decide(observed(job_with(), self.trained))
        assert named(DeletePod, actions) == ["cats-worker-0-1"]
        assert named(EvictPod, actions) == named(ReleasePod, actions) == []
        assert "SidecarsStopped" in [event.reason for event in of_type(EmitEvent, actions)]

    def test_a_pod_that_is_not_counted_yet_is_kept(self) -> None:
        for state in ("Open", "Closing"):
            actions = decide(observed(job_with(window(0, 1, state)), self.trained))
            assert named(DeletePod, actions) == named(EvictPod, actions) == []

    def test_pod_without_other_containers_is_left_to_end(self) -> None:
        actions = decide(observed(job_with(), replace(self.trained, sidecars=False)))
        assert named(DeletePod, actions) == named(EvictPod, actions) == []

    @pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
    def test_ended_job_leaves_such_a_pod_to_end_for_a_minute(self, phase: str) -> None:
        seen = observed(done_job(phase=phase), replace(self.trained, sidecars=False))
        assert named(DeletePod, decide(seen)) == []
        assert named(DeletePod, decide(seen, after=SETTINGS.ledger_patience_seconds)) == ["cats-worker-0-1"]
        assert named(DeletePod, decide(observed(done_job(phase=phase), self.trained))) == ["cats-worker-0-1"]

    def test_a_terminating_pod_is_not_deleted_again(self) -> None:
        actions = decide(observed(job_with(), replace(self.trained, terminating=True)))
        assert named(DeletePod, actions) == []


def test_ended_pod_that_a_foreign_finalizer_keeps_is_left_alone() -> None:
    """Nothing is sent again and again, and its name is not used for another pod."""
    kept = replace(pod(0, 1, phase="Failed", released=True, terminating=True), finalizers=("example.org/audit",))
    actions = decide(observed(job_with(window(1, 2)), kept))
    assert named(DeletePod, actions) == named(EvictPod, actions) == named(ReleasePod, actions) == []
    assert [action.manifest["metadata"]["name"] for action in of_type(CreatePod, actions)] == ["cats-worker-1-2"]
