"""Outcomes of pods as kubelets, runtimes and controllers report them, and reasons why containers do not start."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from tranche.kube.api.core_types import NodeObject, Pod
from tranche.kube.api.names import LABEL_JOB
from tranche.kube.convert.container_start import StartProblem, start_delay
from tranche.kube.convert.pod_decoder import decode_pod
from tranche.kube.convert.pod_outcome import end_reason, failure_log, outcome, stopped_by

STARTED = "2026-01-01T00:00:10Z"
DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def pod(*statuses: dict[str, Any], phase: str = "Failed", meta: dict[str, Any] | None = None, **status: Any) -> Pod:
    """Return a pod of ours on a node, as the watch cache decodes it."""
    whole = {
        "metadata": {"name": "a", "namespace": "ns", "labels": {LABEL_JOB: "j"}, **(meta or {})},
        "spec": {"nodeName": "n1", "containers": [{"name": "main"}]},
        "status": {"phase": phase, "containerStatuses": list(statuses), **status},
    }
    return decode_pod(json.dumps(whole).encode())


def main(**state: Any) -> dict[str, Any]:
    return {"name": "main", "state": state}


def ended(code: int = 1, **fields: Any) -> dict[str, Any]:
    return main(terminated={"exitCode": code, "startedAt": STARTED, "reason": "Error", **fields})


def not_started(message: str) -> dict[str, Any]:
    """Status of a container that containerd could not start, as a kubelet reports it."""
    text = f"failed to create containerd task: {message}"
    return ended(128, reason="StartError", message=text, startedAt="1970-01-01T00:00:00Z")


def disrupted(status: str) -> dict[str, Any]:
    return {"conditions": [{"type": "DisruptionTarget", "status": status}]}


def machine(ready: str, since: str) -> NodeObject:
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": since}
    return msgspec.convert({"metadata": {"name": "n1"}, "status": {"conditions": [condition]}}, NodeObject)


@pytest.mark.parametrize(
    ("made", "how"),
    [
        (pod(phase="Succeeded"), "Succeeded"),
        (pod(phase="Succeeded", meta=DELETED), "Succeeded"),
        (pod(ended()), "Failed"),
        (pod(not_started('OCI runtime create failed: … exec: "trian": not found in $PATH: unknown')), "Failed"),
        (pod(ended(), **disrupted("True")), "Preempted"),
        (pod(ended(), **disrupted("False")), "Failed"),
        (pod(ended(), meta=DELETED), "Preempted"),
        (pod(ended(), reason="DeadlineExceeded"), "Failed"),
    ],
)
def test_disrupted_or_deleted_pod_is_preempted(made: Pod, how: str) -> None:
    assert outcome(made) == how


def deleted_at(seconds: int, grace: int = 30) -> dict[str, Any]:
    """Metadata of a pod whose deletion was requested that many seconds after one o'clock."""
    ends = datetime(2026, 1, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds + grace)
    return {"deletionTimestamp": ends.isoformat(), "deletionGracePeriodSeconds": grace}


def disrupted_at(seconds: int, reason: str = "EvictionByEvictionAPI") -> dict[str, Any]:
    at = datetime(2026, 1, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "lastTransitionTime": at.isoformat()}
    return {"conditions": [condition]}


ONE_O_CLOCK = "2026-01-01T01:00:00Z"
EXITED = ended(0, reason="Completed", finishedAt=ONE_O_CLOCK)


@pytest.mark.parametrize("seconds", [-3600, -20, 0, 5])
@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Running"])
def test_exit_0_after_a_stop_is_no_success(seconds: int, phase: str) -> None:
    """Services exit with 0 at SIGTERM. With equal seconds or clocks that differ little, the work is trained again."""
    assert outcome(pod(EXITED, phase=phase, meta=deleted_at(seconds))) == "Preempted"
    assert outcome(pod(EXITED, phase=phase, **disrupted_at(seconds))) == "Preempted"
    earlier = disrupted_at(seconds, "PreemptionByScheduler")
    assert outcome(pod(EXITED, phase=phase, meta=deleted_at(3600), **earlier)) == "Preempted"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Running"])
def test_exit_0_before_a_stop_is_a_success(phase: str) -> None:
    """In the phase Failed, only another container has failed."""
    assert outcome(pod(EXITED, phase=phase, meta=deleted_at(6))) == "Succeeded"
    assert outcome(pod(EXITED, phase=phase, meta=deleted_at(7200), **disrupted_at(3600))) == "Succeeded"


@pytest.mark.parametrize(
    ("message", "how"),
    [
        ('{"0-3":10}', "Succeeded"),
        ('{"0":1.0}', "Succeeded"),
        ('{"0":0.25}', "Preempted"),
        ('{"0":10,"1":0}', "Preempted"),
        ("{}", "Preempted"),
        ("Bye", "Preempted"),
    ],
)
def test_message_decides_about_exit_0_after_a_stop(message: str, how: str) -> None:
    one = ended(0, reason="Completed", finishedAt=ONE_O_CLOCK, message=message)
    assert outcome(pod(one, phase="Succeeded", meta=deleted_at(-10))) == how


@pytest.mark.parametrize(("seconds", "how"), [(-20, "Preempted"), (0, "Preempted"), (5, "Preempted"), (6, "Failed")])
def test_pod_that_failed_before_a_stop_has_failed(seconds: int, how: str) -> None:
    one = ended(1, finishedAt=ONE_O_CLOCK)
    assert outcome(pod(one, meta=deleted_at(seconds))) == how
    assert outcome(pod(one, meta=deleted_at(seconds), **disrupted_at(seconds))) == how


@pytest.mark.parametrize("code", [0, 1, 143])
def test_stop_on_a_node_whose_clock_is_behind_is_a_stop(code: int) -> None:
    """Bound at five past one by the clock of the API server, and seen by the kubelet at one by its own."""
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T01:05:00Z"}
    seen = {"conditions": [bound], "startTime": ONE_O_CLOCK}
    one = ended(code, finishedAt="2026-01-01T01:02:00Z")
    phase = "Failed" if code else "Succeeded"
    assert outcome(pod(one, phase=phase, meta=deleted_at(420), **seen)) == "Preempted"
    assert outcome(pod(one, phase=phase, meta=deleted_at(430), **seen)) == ("Failed" if code else "Succeeded")


@pytest.mark.parametrize("finished", [None, "1970-01-01T00:00:00Z"])
def test_stopped_pod_without_time_of_its_end_is_as_before(finished: str | None) -> None:
    meta = deleted_at(3600)
    assert outcome(pod(ended(0, finishedAt=finished), phase="Succeeded", meta=meta)) == "Succeeded"
    assert outcome(pod(ended(255, reason="Unknown", finishedAt=finished), meta=meta)) == "Preempted"


def test_only_a_pod_that_ran_was_stopped_by_its_deletion() -> None:
    assert stopped_by(pod(ended(1, finishedAt=ONE_O_CLOCK), meta=deleted_at(3600))) == ""
    assert stopped_by(pod(ended(1, finishedAt=ONE_O_CLOCK), meta=deleted_at(-1))) == "its pod was deleted"


@pytest.mark.parametrize("statuses", [(), (main(waiting={"reason": "ContainerCreating"}),)])
def test_pod_beyond_its_own_deadline_has_failed(statuses: tuple[dict[str, Any], ...]) -> None:
    """A kubelet counts activeDeadlineSeconds of a template from before the images are pulled."""
    message = "Pod was active on the node longer than the specified deadline"
    assert outcome(pod(*statuses, reason="DeadlineExceeded", message=message)) == "Failed"


@pytest.mark.parametrize(
    "reason",
    [
        "OutOfnvidia.com/gpu",
        "UnexpectedAdmissionError",
        "TopologyAffinityError",
        "NodeAffinity",
        "Evicted",
        "NodeShutdown",
        "InvalidNodeInfo",
        "",
    ],
)
@pytest.mark.parametrize("statuses", [(), (main(waiting={"reason": "ContainerCreating"}),)])
def test_pod_without_started_container_is_refused(reason: str, statuses: tuple[dict[str, Any], ...]) -> None:
    made = pod(*statuses, reason=reason, message="Pod was rejected: why")
    assert outcome(made) == "Refused"
    assert end_reason(made) == f"{reason}: Pod was rejected: why".removeprefix(": ")


@pytest.mark.parametrize(
    ("made", "how"),
    [
        (pod(ended(137, reason="ContainerStatusUnknown", startedAt=None)), "Lost"),
        (pod(not_started("failed to create shim task: context canceled: unknown")), "Lost"),
        (pod(not_started("failed to create shim task: context deadline exceeded: unknown")), "Lost"),
        (
            pod(
                {"name": "proxy", "state": {"running": {}}},
                not_started("failed to create shim task: context canceled: unknown"),
            ),
            "Lost",
        ),
        (pod(ended(255, reason="Unknown")), "Lost"),
        (pod(ended(), reason="NodeLost"), "Lost"),
        (pod(ended(), reason="UnexpectedAdmissionError"), "Lost"),
        (pod(ended(), reason="Anything", message="Pod was rejected: x"), "Lost"),
        (pod(ended(143), reason="Terminated", message="Pod was terminated in response to node shutdown"), "Preempted"),
        (pod(ended(137), reason="Evicted", message="The node was low on resource: memory."), "Preempted"),
        (pod(ended(137), reason="Evicted", message="Usage of EmptyDir volume exceeds the limit"), "Failed"),
        (pod(ended(137, reason="OOMKilled")), "Failed"),
    ],
)
def test_end_by_the_node_is_no_failure_of_the_job(made: Pod, how: str) -> None:
    assert outcome(made) == how


@pytest.mark.parametrize(
    ("node", "how"),
    [
        (None, "Failed"),
        (machine("True", "2026-01-01T00:00:00Z"), "Failed"),
        (machine("True", "2026-01-01T01:00:00Z"), "Lost"),
        (machine("Unknown", "2026-01-01T00:00:00Z"), "Lost"),
    ],
)
@pytest.mark.parametrize("code", [255, 143, 137])
def test_exit_255_is_the_nodes_if_it_restarted(node: NodeObject | None, how: str, code: int) -> None:
    """In a reboot without graceful node shutdown, the runtime may see how the init system stops the containers."""
    assert outcome(pod(ended(code)), node) == how
    assert outcome(pod(ended(code, reason="OOMKilled")), node) == ("Failed" if code != 255 else how)
    assert outcome(pod(ended(1)), node) == "Failed"


def failed_while_initializing(code: int, **fields: Any) -> Pod:
    """Return a pod whose second init container has ended with a code, so that its training never began."""
    terminated = {"exitCode": code, "startedAt": STARTED, "reason": "Error", **fields}
    first = {"name": "link", "state": {"terminated": {"exitCode": 0, "startedAt": STARTED, "reason": "Completed"}}}
    second = {"name": "fetch", "state": {"terminated": terminated}}
    return pod(main(waiting={"reason": "PodInitializing"}), initContainerStatuses=[first, second])


@pytest.mark.parametrize(
    ("made", "node", "how"),
    [
        (failed_while_initializing(255, reason="Unknown"), None, "Lost"),
        (failed_while_initializing(137, reason="ContainerStatusUnknown"), None, "Lost"),
        (failed_while_initializing(143), machine("True", "2026-01-01T01:00:00Z"), "Lost"),
        (
            failed_while_initializing(1, finishedAt="2026-01-01T00:40:00Z"),
            machine("True", "2026-01-01T01:00:00Z"),
            "Lost",
        ),
        (failed_while_initializing(1), machine("True", "2026-01-01T00:00:00Z"), "Failed"),
        (failed_while_initializing(1), None, "Failed"),
    ],
)
def test_init_container_that_ends_with_its_node_is_lost(made: Pod, node: NodeObject | None, how: str) -> None:
    """Such as one that copies data for hours, while its node restarts or is disconnected."""
    assert outcome(made, node) == how


def test_failed_init_container_is_told_with_its_last_words() -> None:
    made = failed_while_initializing(3, message="no space left on device")
    assert end_reason(made) == "exit code 3 of an init container"
    assert failure_log(made) == "no space left on device"
    oom = failed_while_initializing(137, reason="OOMKilled")
    assert end_reason(oom) == "exit code 137 of an init container (OOMKilled)"


@pytest.mark.parametrize(
    ("node", "finished", "how"),
    [
        (machine("True", "2026-01-01T01:00:00Z"), "2026-01-01T00:40:00Z", "Lost"),
        (machine("True", "2026-01-01T01:00:00Z"), "2026-01-01T01:10:00Z", "Failed"),
        (machine("Unknown", "2026-01-01T01:00:00Z"), "2026-01-01T01:20:00Z", "Lost"),
        (machine("Unknown", "2026-01-01T01:00:00Z"), "2026-01-01T00:59:15Z", "Lost"),
        (machine("Unknown", "2026-01-01T01:00:00Z"), "2026-01-01T00:50:00Z", "Failed"),
        (machine("True", "2026-01-01T01:00:00Z"), None, "Failed"),
        (None, "2026-01-01T00:40:00Z", "Failed"),
    ],
)
@pytest.mark.parametrize("code", [1, 134])
def test_exit_while_the_node_is_disconnected_is_lost(
    node: NodeObject | None, finished: str | None, how: str, code: int
) -> None:
    """A worker that reaches neither its parameter server nor an object store fails. The kubelet reports it later."""
    assert outcome(pod(ended(code, finishedAt=finished)), node) == how
    assert stopped_by(pod(ended(code, finishedAt=finished)), node) == (
        "node n1 was disconnected" if how == "Lost" else ""
    )
    assert outcome(pod(ended(code, finishedAt=finished, reason="OOMKilled")), node) == "Failed"


@pytest.mark.parametrize(("code", "how"), [(255, "Lost"), (143, "Failed"), (137, "Failed")])
def test_killed_container_fails_if_its_node_was_away_before(code: int, how: str) -> None:
    """As by a liveness probe. A runtime that did not see an end has the time at which it started again."""
    restarted = machine("True", "2026-01-01T01:00:00Z")
    assert outcome(pod(ended(code, finishedAt="2026-01-01T02:00:00Z")), restarted) == how
    assert outcome(pod(ended(code, finishedAt="2026-01-01T00:59:00Z")), restarted) == "Lost"


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("InvalidImageName", StartProblem.CONFIGURATION),
        ("ErrImageNeverPull", StartProblem.CONFIGURATION),
        ("CreateContainerConfigError", StartProblem.CONFIGURATION),
        ("CreateContainerError", StartProblem.CONFIGURATION),
        ("ErrImagePull", StartProblem.IMAGE_PULL),
        ("ImagePullBackOff", StartProblem.IMAGE_PULL),
        ("ContainerCreating", StartProblem.CREATION),
        ("PodInitializing", StartProblem.CREATION),
    ],
)
def test_reason_of_waiting_container_has_a_kind(reason: str, kind: StartProblem) -> None:
    delay = start_delay(pod(main(waiting={"reason": reason, "message": "why"}), phase="Pending"))
    assert delay is not None
    assert (delay.kind, delay.text) == (kind, f"{reason}: why")


def test_bound_pod_without_statuses_waits_for_creation() -> None:
    delay = start_delay(pod(phase="Pending"))
    assert delay is not None
    assert delay.kind is StartProblem.CREATION


@pytest.mark.parametrize(
    ("ready", "text"),
    [
        ("False", "ContainerCreating: its volumes or its network are not ready"),
        ("True", "ContainerCreating: its images are being pulled, or its containers created"),
        (None, "ContainerCreating"),
    ],
)
@pytest.mark.parametrize("statuses", [(), (main(waiting={"reason": "ContainerCreating"}),)])
def test_pod_that_is_created_says_what_it_waits_for(
    statuses: tuple[dict[str, Any], ...], ready: str | None, text: str
) -> None:
    """Failed mounts and networks are in no status of a container, and image pulls come after them."""
    conditions = [{"type": "PodReadyToStartContainers", "status": ready}] if ready else []
    delay = start_delay(pod(*statuses, phase="Pending", conditions=conditions))
    assert delay is not None
    assert (delay.kind, delay.text) == (StartProblem.CREATION, text)


def test_init_container_that_runs_may_take_any_time() -> None:
    running = [{"name": "fetch", "state": {"running": {"startedAt": STARTED}}}]
    made = pod(main(waiting={"reason": "PodInitializing"}), phase="Pending", initContainerStatuses=running)
    assert start_delay(made) is None


def test_image_of_an_init_container_counts() -> None:
    waiting = [{"name": "fetch", "state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}}]
    made = pod(main(waiting={"reason": "PodInitializing"}), phase="Pending", initContainerStatuses=waiting)
    delay = start_delay(made)
    assert delay is not None
    assert delay.kind is StartProblem.IMAGE_PULL


def test_running_pod_has_no_start_delay() -> None:
    assert start_delay(pod(main(running={"startedAt": STARTED}), phase="Running")) is None
