"""Condition PodsNotStarting: what it reports, when, and how often."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from support.operator_objects import NOW, observed, pod, window
from support.reconcile_summary import decide, job_with, of_type
from tranche.kube.convert.container_start import StartDelay, StartProblem
from tranche_operator.reconcile.actions import Action, EmitEvent, WriteStatus
from tranche_operator.reconcile.observed import PodView

PULL = StartDelay(StartProblem.IMAGE_PULL, "ErrImagePull", "manifest for cats:v9 not found")
KIND = "PodsNotStarting"


def stuck(delay: StartDelay | None = PULL, index: int = 0, **changes: Any) -> PodView:
    return replace(pod(index, 1 + index, phase="Pending"), delay=delay, **changes)


def reported(delay: StartDelay = PULL) -> dict[str, Any]:
    """Return the operator's part of the status of a job whose image is not pulled, or with another problem."""
    (write,) = of_type(WriteStatus, decide(observed(job_with(window(0, 1)), stuck(delay))))
    return {**write.status, "conditions": [c for c in write.status["conditions"] if c["type"] != "InvalidTemplate"]}


def condition(actions: list[Action]) -> dict[str, Any] | None:
    (write,) = of_type(WriteStatus, actions)
    return next((one for one in write.status["conditions"] if one["type"] == KIND), None)


def told(actions: list[Action]) -> list[str]:
    return [one.message for one in of_type(EmitEvent, actions) if one.reason == KIND]


def test_image_that_is_not_pulled_is_reported_at_once() -> None:
    actions = decide(observed(job_with(window(0, 1)), stuck()))
    found = condition(actions)
    assert found is not None
    assert (found["status"], found["reason"]) == ("True", "ImagePull")
    assert found["message"] == "cats-worker-0-1: ErrImagePull: manifest for cats:v9 not found"
    assert told(actions) == [found["message"]]


def test_repeated_message_is_not_another_event() -> None:
    job = job_with(window(0, 1), status=reported())
    back_off = StartDelay(StartProblem.IMAGE_PULL, "ImagePullBackOff", "Back-off pulling image")
    actions = decide(observed(job, stuck(back_off)))
    assert not told(actions)
    assert not of_type(WriteStatus, actions)


def test_next_pod_with_the_same_kind_of_problem_is_told() -> None:
    """The user has corrected the image, and it is wrong again: the condition quotes no pod that is gone."""
    job = job_with(window(0, 2), status=reported())
    other = StartDelay(StartProblem.IMAGE_PULL, "ErrImagePull", "manifest for cats:v8 not found")
    actions = decide(observed(job, replace(pod(0, 2, phase="Pending"), delay=other)))
    found = condition(actions)
    assert found is not None
    assert found["message"] == "cats-worker-0-2: ErrImagePull: manifest for cats:v8 not found"
    assert told(actions) == [found["message"]]


def test_next_missing_object_of_the_same_pod_is_told() -> None:
    """The user has created the Secret, and the kubelet then misses a ConfigMap."""

    def missing(name: str) -> StartDelay:
        return StartDelay(StartProblem.CONFIGURATION, "CreateContainerConfigError", f"{name} not found")

    job = job_with(window(0, 1), status=reported(missing('secret "keys"')))
    assert not of_type(WriteStatus, decide(observed(job, stuck(missing('secret "keys"')))))
    actions = decide(observed(job, stuck(missing('configmap "settings"'))))
    found = condition(actions)
    assert found is not None
    assert found["message"] == 'cats-worker-0-1: CreateContainerConfigError: configmap "settings" not found'
    assert told(actions) == [found["message"]]


def test_message_stays_while_its_pod_is_stopped_with_others() -> None:
    job = job_with(window(0, 1), window(1, 2), status=reported())
    assert not told(decide(observed(job, stuck(terminating=True), stuck(index=1))))


def test_pod_that_runs_ends_the_condition() -> None:
    job = job_with(window(0, 1), status=reported())
    found = condition(decide(observed(job, pod(0, 1))))
    assert found is not None
    assert found["status"] == "False"


def test_condition_stays_while_the_job_has_no_pods() -> None:
    found = condition(decide(observed(job_with(status=reported()))))
    assert found is not None
    assert found["status"] == "True"


@pytest.mark.parametrize(("seconds", "reported"), [(299, False), (301, True)])
def test_container_without_a_reason_is_reported_after_a_time(seconds: int, reported: bool) -> None:
    since = NOW - timedelta(seconds=seconds)
    found = condition(decide(observed(job_with(window(0, 1)), stuck(None, creating_since=since))))
    assert (found is not None and found["reason"] == "Creation") is reported


def test_container_without_a_reason_says_what_it_waits_for() -> None:
    since = NOW - timedelta(seconds=301)
    waits = stuck(None, creating_since=since, creating="its volumes or its network are not ready")
    found = condition(decide(observed(job_with(window(0, 1)), waits)))
    assert found is not None
    what = "its volumes or its network are not ready; see the events of the pod"
    assert found["message"] == f"cats-worker-0-1: ContainerCreating: {what}"


def test_message_counts_the_other_pods() -> None:
    job = job_with(window(0, 1), window(1, 2))
    found = condition(decide(observed(job, stuck(), stuck(index=1))))
    assert found is not None
    assert found["message"].endswith("(1 more pods do not start)")
