"""The history of a job names what preempted its pods."""

from typing import Any

import pytest

from support.operator_objects import UID, plan, training_job, window
from tranche.client.job_history import Attempt, attempts_of
from tranche.kube.api.core_types import Metadata, Owner, Pod, PodSpec, PodStatus


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
    return attempts_of(training_job(status={"plan": plan(*windows), "progress": {"attempts": list(attempts)}}), pods)


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
