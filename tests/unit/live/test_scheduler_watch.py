"""Pods without a node: only kube-scheduler's judgement counts, and its silence pauses preemption."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from support.builders import gang, job, node, planner
from support.live_controller import NOW, created
from support.watched_pods import ServerPods, limits, timeouts_of
from tranche.kube.api.core_types import Pod, PodStatus
from tranche.kube.convert.pod_decoder import decode_pod
from tranche.live.pods.scheduler_watch import SchedulerWatch
from tranche.model import Site
from tranche.planner import (
    JobSubmitted,
    KubeSchedulerChanged,
    Planner,
    PodStartFailed,
    WorkerBound,
    WorkerStarted,
    WorkerUnschedulable,
)

JUDGED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}
GATED = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
FAILED = {"type": "PodScheduled", "status": "False", "reason": "SchedulerError", "message": "timed out"}
CLAIM = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
RESOURCE_CLAIM = {"resourceClaims": [{"name": "nic", "resourceClaimName": "nowhere"}]}
FOREIGN_GATE = {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}


UNCHANGED = "kube-scheduler has not judged it again since room became free: "
FULL = {**JUDGED, "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."}
NO_ADAPTER = {**JUDGED, "message": "0/1 nodes are available: 1 Insufficient rdma/hca. preemption: none."}
APART = {**JUDGED, "message": "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules."}


def pod(name: str, spec: dict[str, Any] | None = None, *conditions: dict[str, str], uid: str = "uid-a") -> Pod:
    owner = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "uid": uid, "controller": True}
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": {"tranche.dev/job": "a"}}
    whole = {
        "metadata": {**metadata, "ownerReferences": [owner]},
        "spec": {"containers": [], **(spec or {})},
        "status": {"phase": "Pending", "conditions": list(conditions)},
    }
    return decode_pod(json.dumps(whole).encode())


class Watch:
    """Timeouts of one job's pods."""

    def __init__(self, p: Planner, pods: list[Pod]) -> None:
        self.planner = p
        self.pods = {pod.key: pod for pod in pods}
        self.server_pods = self.pods
        """Pods as the API server has them; by default those of the watch."""
        self.timeouts = timeouts_of(
            p,
            self.pods,
            settings=limits(missing_pod_seconds=0.5, image_pull_seconds=600.0),
            scheduler=SchedulerWatch(30.0, 630.0),
            checks=ServerPods(lambda pod: self.server_pods.get(pod.key) == pod),
        )

    def put(self, one: Pod) -> None:
        self.pods[one.key] = one

    def due(self, at: float) -> list[Any]:
        return self.timeouts.due(self.planner.cluster.jobs.values(), at, at)


def watch_of(*pods: Pod, chunks: int = 1) -> Watch:
    p = planner("chunk", [node(f"n{i}") for i in range(chunks)])
    p.handle(JobSubmitted(job("a", chunks=chunks)), 0.0)
    return Watch(p, list(pods))


def test_a_judged_pod_finds_no_place_after_30_seconds() -> None:
    watch = watch_of(pod("a-worker-0-1", {}, JUDGED))
    watch.due(0.0)
    assert watch.due(29.0) == []
    assert watch.due(30.0) == [WorkerUnschedulable("default/a", 1, "no")]


@pytest.mark.parametrize("spec", [{}, {"nodeName": "n0"}])
def test_state_of_a_dead_watch_ends_no_pod(spec: dict[str, Any]) -> None:
    """The pod trains, and neither its binding nor its start has reached the planner."""
    old = pod("a-worker-0-1", spec, JUDGED)
    pulling = {"name": "t", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    status = msgspec.convert({"phase": "Pending", "conditions": [JUDGED], "containerStatuses": [pulling]}, PodStatus)
    watch = watch_of(msgspec.structs.replace(old, status=status))
    watch.server_pods = {old.key: pod("a-worker-0-1", {"nodeName": "n0"})}
    watch.due(0.0)
    assert watch.due(700.0) == []
    watch.server_pods = watch.pods
    (event,) = watch.due(701.0)
    assert isinstance(event, PodStartFailed if spec else WorkerUnschedulable)


def test_the_time_counts_from_the_judgement() -> None:
    watch = watch_of(pod("a-worker-0-1"))
    watch.due(0.0)
    watch.put(pod("a-worker-0-1", {}, JUDGED))
    watch.due(20.0)
    assert watch.due(49.0) == []
    assert watch.due(50.0) == [WorkerUnschedulable("default/a", 1, "no")]


@pytest.mark.parametrize(
    ("spec", "conditions"),
    [
        ({"schedulingGates": [{"name": "tranche.dev/gang"}]}, [GATED]),
        ({}, [GATED]),
        ({}, []),
        (CLAIM, []),
        ({}, [FAILED]),
    ],
    ids=["gated", "ungated, not judged", "kube-scheduler away", "volume provisioned", "binding failed"],
)
def test_a_pod_that_was_not_judged_keeps_its_place(spec: dict[str, Any], conditions: list[dict[str, str]]) -> None:
    watch = watch_of(pod("a-worker-0-1", spec, *conditions))
    events = [event for at in range(0, 600, 10) for event in watch.due(float(at))]
    assert not any(isinstance(event, WorkerUnschedulable) for event in events)


@pytest.mark.parametrize(
    ("spec", "conditions", "reason"),
    [
        (FOREIGN_GATE, [GATED], "it waits behind the scheduling gate kueue.x-k8s.io/admission"),
        (RESOURCE_CLAIM, [], "kube-scheduler has not judged it: its resource claim nic may be missing"),
        ({}, [FAILED], "timed out"),
    ],
    ids=["foreign gate", "missing resource claim", "binding failed"],
)
def test_pod_without_verdict_is_unplaced_after_10_minutes(
    spec: dict[str, Any], conditions: list[dict[str, str]], reason: str
) -> None:
    watch = watch_of(pod("a-worker-0-1", spec, *conditions))
    assert [event for at in range(0, 630, 10) for event in watch.due(float(at))] == []
    assert watch.due(630.0) == [WorkerUnschedulable("default/a", 1, reason)]


def test_pod_that_kube_scheduler_passes_over_is_unplaced() -> None:
    watch = watch_of(pod("a-worker-0-1"), chunks=40)
    events = []
    for number, at in enumerate(range(0, 700, 20)):
        index, attempt = number + 1, number + 2
        watch.put(pod(f"a-worker-{index}-{attempt}", {"nodeName": f"n{index}"}))
        events += watch.due(float(at))
    assert events == [WorkerUnschedulable("default/a", 1, "kube-scheduler has not judged it")]


def test_pod_at_unlimited_site_behind_a_gate_waits_as_long() -> None:
    p = planner("chunk", [], [Site("cloud", unlimited=True)])
    p.handle(JobSubmitted(job("a", data_site="cloud")), 0.0)
    watch = Watch(p, [pod("a-worker-0-1", FOREIGN_GATE, GATED)])
    watch.due(0.0)
    assert watch.due(899.0) == []
    assert len(watch.due(900.0)) == 1


def test_a_pod_at_an_unlimited_site_waits_for_minutes() -> None:
    p = planner("chunk", [], [Site("cloud", unlimited=True)])
    p.handle(JobSubmitted(job("a", data_site="cloud")), 0.0)
    watch = Watch(p, [pod("a-worker-0-1", {}, JUDGED)])
    watch.due(0.0)
    assert watch.due(899.0) == []
    assert len(watch.due(900.0)) == 1


def test_an_unjudged_pod_for_30_seconds_means_silence() -> None:
    watch = watch_of(pod("a-worker-0-1"))
    assert watch.due(0.0) == []
    assert watch.due(29.0) == []
    assert watch.due(30.0) == [KubeSchedulerChanged(responds=False)]
    assert watch.due(31.0) == []


def test_one_decision_ends_the_silence() -> None:
    watch = watch_of(pod("a-worker-0-1"), pod("a-worker-1-2"), chunks=2)
    watch.due(0.0)
    assert watch.due(30.0) == [KubeSchedulerChanged(responds=False)]
    watch.put(pod("a-worker-0-1", {"nodeName": "n0"}))
    assert watch.due(31.0) == [KubeSchedulerChanged(responds=True)]


def test_decisions_about_other_pods_are_signs_of_life() -> None:
    watch = watch_of(pod("a-worker-0-1"), pod("a-worker-1-2"), chunks=2)
    watch.due(0.0)
    watch.put(pod("a-worker-1-2", {"nodeName": "n1"}))
    watch.due(20.0)
    assert watch.due(49.0) == []
    assert watch.due(50.0) == [KubeSchedulerChanged(responds=False)]


def test_change_of_a_pod_that_trains_is_no_sign_of_life() -> None:
    watch = watch_of(pod("a-worker-0-1", {"nodeName": "n0"}), pod("a-worker-1-2"), chunks=2)
    watch.planner.handle(WorkerStarted("default/a", 1, 0.0), 0.0)
    for at in (0.0, 10.0, 20.0):
        watch.due(at)
    watch.put(pod("a-worker-0-1", {"nodeName": "n0"}, {"type": "Ready", "status": "True"}))
    assert watch.due(29.0) == []
    assert watch.due(30.0) == [KubeSchedulerChanged(responds=False)]


def victim(node: str = "n0") -> Pod:
    """Return a pod that stops."""
    metadata = {"name": "victim", "namespace": "other", "uid": "victim", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    whole = {
        "metadata": {**metadata, "deletionGracePeriodSeconds": 30},
        "spec": {"nodeName": node, "containers": []},
        "status": {"phase": "Running"},
    }
    return decode_pod(json.dumps(whole).encode())


def watch_with_victim(spec: dict[str, Any] | None = None, condition: dict[str, str] = FULL) -> Watch:
    """Return timeouts of a pod that was judged while its room was taken, which is free after 10 s."""
    stopping = victim()
    watch = watch_of(pod("a-worker-0-1", spec, condition), stopping)
    assert watch.due(0.0) == []
    assert watch.due(9.0) == []
    del watch.pods[stopping.key]
    assert watch.due(10.0) == []
    return watch


def test_silence_of_a_judged_pod_counts_from_when_room_is_free() -> None:
    watch = watch_with_victim()
    assert watch.due(39.0) == []
    assert watch.due(40.0) == [KubeSchedulerChanged(responds=False)]


def test_verdict_that_is_repeated_does_not_stop_preemption() -> None:
    """kube-scheduler does not write the same verdict again, so that its decision about the free room is not seen."""
    watch = watch_with_victim()
    events = {at: found for at in range(20, 1200, 10) if (found := watch.due(float(at)))}
    assert events == {
        40: [KubeSchedulerChanged(responds=False)],
        70: [KubeSchedulerChanged(responds=True)],
        700: [WorkerUnschedulable("default/a", 1, f"{UNCHANGED}{FULL['message']}")],
    }


def test_end_of_silence_by_an_outdated_verdict_is_due() -> None:
    watch = watch_with_victim()
    watch.due(40.0)
    assert watch.timeouts.next_due == 70.0


def test_new_verdict_about_free_room_counts() -> None:
    watch = watch_with_victim()
    watch.put(pod("a-worker-0-1", {}, APART))
    assert watch.due(11.0) == []
    assert watch.due(40.0) == []
    assert watch.due(41.0) == [WorkerUnschedulable("default/a", 1, APART["message"])]


@pytest.mark.parametrize("verdict", [APART, NO_ADAPTER], ids=["anti-affinity", "resource that is not planned"])
def test_verdict_that_does_not_depend_on_room_stays(verdict: dict[str, str]) -> None:
    watch = watch_with_victim(condition=verdict)
    assert watch.due(30.0) == [WorkerUnschedulable("default/a", 1, verdict["message"])]


def test_volume_may_be_provisioned_after_the_room_is_free() -> None:
    watch = watch_with_victim(CLAIM)
    assert [event for at in range(20, 640, 10) for event in watch.due(float(at))] == []
    assert watch.due(640.0) == [KubeSchedulerChanged(responds=False)]


def test_room_of_a_closing_window_is_not_free() -> None:
    p = planner("chunk", [node("n0")])
    p.handle(JobSubmitted(job("v", seconds=10_000.0)), 0.0)
    p.handle(WorkerBound("default/v", 1, "n0"), 0.0)
    p.handle(WorkerStarted("default/v", 1, 0.0), 0.0)
    p.handle(JobSubmitted(job("a", 300.0)), 300.0)
    stopping = victim()
    watch = Watch(p, [pod("v-worker-0-1", {"nodeName": "n0"}, uid="uid-v"), pod("a-worker-0-1", {}, FULL), stopping])
    assert p.cluster.jobs["default/v"].runs[1].closing
    watch.due(0.0)
    del watch.pods[stopping.key]
    assert [event for at in range(1, 30) for event in watch.due(float(at))] == []
    assert watch.due(30.0) == [WorkerUnschedulable("default/a", 1, FULL["message"])]


def test_gated_pods_do_not_wait_for_kube_scheduler() -> None:
    p = planner("chunk", [node("n0"), node("n1")])
    p.handle(JobSubmitted(gang("a")), 0.0)
    gate = {"schedulingGates": [{"name": "tranche.dev/gang"}]}
    watch = Watch(p, [pod("a-worker-0-1", gate, GATED), pod("a-worker-1-2", gate, GATED)])
    assert [event for at in range(0, 300, 10) for event in watch.due(float(at))] == []


def test_missing_resource_claim_is_no_silence() -> None:
    watch = watch_of(pod("a-worker-0-1", RESOURCE_CLAIM))
    events = [event for at in range(0, 3600, 10) for event in watch.due(float(at))]
    assert not any(isinstance(event, KubeSchedulerChanged) for event in events)


@pytest.mark.parametrize("spec", [{}, {"nodeName": "n1"}])
def test_pod_of_another_scheduler_says_nothing(spec: dict[str, Any]) -> None:
    """A webhook has changed its schedulerName: it neither stops preemption nor shows that kube-scheduler acts."""
    other = pod("a-worker-0-1", {"schedulerName": "yunikorn", **spec})
    alone = watch_of(other)
    events = [event for at in range(0, 700, 10) for event in alone.due(float(at))]
    reason = "admission has given it to the scheduler yunikorn, which has not judged it"
    assert events == ([] if spec else [WorkerUnschedulable("default/a", 1, reason)])
    beside = watch_of(other, pod("a-worker-1-2", {"schedulerName": "tranche"}), chunks=2)
    beside.due(0.0)
    assert beside.due(30.0) == [KubeSchedulerChanged(responds=False)]


def test_pod_overtaken_by_a_later_one_is_no_silence() -> None:
    watch = watch_of(pod("a-worker-0-1"), chunks=2)
    watch.due(0.0)
    assert watch.due(30.0) == [KubeSchedulerChanged(responds=False)]
    watch.put(pod("a-worker-1-2", {"nodeName": "n1"}))
    assert watch.due(31.0) == [KubeSchedulerChanged(responds=True)]
    assert [event for at in range(40, 600, 10) for event in watch.due(float(at))] == []


def test_volumes_that_are_provisioned_are_no_silence() -> None:
    watch = watch_of(pod("a-worker-0-1", CLAIM))
    watch.due(0.0)
    assert watch.due(629.0) == []
    assert watch.due(630.0) == [KubeSchedulerChanged(responds=False)]


def test_no_place_is_found_missing_during_silence() -> None:
    watch = watch_of(pod("a-worker-0-1", {}, JUDGED), pod("a-worker-1-2"), chunks=2)
    watch.due(0.0)
    events = [event for at in range(10, 300, 10) for event in watch.due(float(at))]
    assert events == [KubeSchedulerChanged(responds=False)]
    watch.put(pod("a-worker-1-2", {"nodeName": "n1"}))
    assert watch.due(300.0) == [KubeSchedulerChanged(responds=True)]
    assert watch.due(329.0) == []
    assert watch.due(330.0) == [WorkerUnschedulable("default/a", 1, "no")]


def decided(age: float, reason: str = "") -> dict[str, str]:
    """Return the condition PodScheduled that is some seconds old: the pod is bound, or has a verdict."""
    time = datetime.fromtimestamp(NOW - age, UTC).isoformat()
    known = {"type": "PodScheduled", "lastTransitionTime": time}
    return {**known, "status": "False", "reason": reason} if reason else {**known, "status": "True"}


def takes_over(*pods: Pod) -> bool:
    """Return whether kube-scheduler responds for a planner that has just started and sees these pods first."""
    return SchedulerWatch(30.0, 630.0).take_over(pods, NOW, 5.0)


@pytest.mark.parametrize(("age", "responds"), [(29.0, True), (30.0, False)])
def test_new_planner_counts_the_age_of_an_unjudged_pod(age: float, *, responds: bool) -> None:
    assert takes_over(created(pod("a-worker-0-1"), age)) is responds


@pytest.mark.parametrize(("spec", "reason"), [({"nodeName": "n1"}, ""), ({}, "Unschedulable")])
def test_new_planner_counts_decisions_about_other_pods(spec: dict[str, Any], reason: str) -> None:
    waits = created(pod("a-worker-0-1"), 60.0)

    def other(decided_ago: float, age: float) -> Pod:
        return created(pod("b", spec, decided(decided_ago, reason)), age)

    assert takes_over(waits, other(decided_ago=29.0, age=100.0))
    assert not takes_over(waits, other(decided_ago=30.0, age=100.0))
    assert takes_over(waits, other(decided_ago=30.0, age=30.0)), "it has overtaken the pod that waits"


@pytest.mark.parametrize(
    ("spec", "conditions"),
    [
        ({}, [GATED]),
        (FOREIGN_GATE, [GATED]),
        (CLAIM, []),
        (RESOURCE_CLAIM, []),
        ({"schedulerName": "yunikorn"}, []),
        ({"nodeName": "n0"}, []),
    ],
    ids=["gate removed", "gated", "volume", "resource claim", "other scheduler", "bound by another"],
)
def test_new_planner_takes_no_waiting_pod_for_silence(spec: dict[str, Any], conditions: list[dict[str, str]]) -> None:
    assert takes_over(created(pod("a-worker-0-1", spec, *conditions), 300.0))


def test_silence_at_the_take_over_ends_with_a_decision() -> None:
    scheduler, waits = SchedulerWatch(30.0, 630.0), created(pod("a-worker-0-1"), 60.0)
    assert not scheduler.take_over([waits], NOW, 5.0)
    assert not scheduler.check([waits], 6.0)
    assert scheduler.check([created(pod("a-worker-0-1", {"nodeName": "n0"}, decided(0.0)), 61.0)], 7.0)
    assert scheduler.responds


class Counted(dict[str, Pod]):
    """Store that counts how often all pods are read."""

    looks = 0

    def values(self) -> Any:
        self.looks += 1
        return super().values()


def test_a_look_at_timers_goes_through_the_pods_once() -> None:
    p = planner("chunk", [node(f"n{i}", gpus=8) for i in range(4)])
    p.handle(JobSubmitted(job("a", chunks=32)), 0.0)
    windows = [(run.window.index, attempt) for attempt, run in p.cluster.jobs["default/a"].runs.items()]
    watch = Watch(p, [pod(f"a-worker-{index}-{attempt}", {}, JUDGED) for index, attempt in windows])
    counted = Counted(watch.pods)
    timeouts = timeouts_of(p, counted)
    timeouts.due(p.cluster.jobs.values(), 0.0, 0.0)
    assert counted.looks == 1
