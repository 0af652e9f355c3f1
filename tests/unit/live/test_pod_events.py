"""Watch changes as planner events."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from support.builders import job, node, planner, worker
from support.operator_objects import plan, window
from tranche.kube.api.core_types import NodeObject, Pod
from tranche.kube.api.resources import SiteObject, TrainingJob
from tranche.live import job_events
from tranche.live.foreign_usage import ForeignNodeUsage
from tranche.live.pods import pod_events
from tranche.live.pods.pod_timeouts import RELEASE_SECONDS, SELECTOR_SECONDS, Timeouts
from tranche.live.pods.unreachable_nodes import UnreachableNodes
from tranche.live.settings import ControllerSettings
from tranche.model import Report, Resources, Site
from tranche.planner import (
    ChiefEnded,
    EvictionRefused,
    JobChanged,
    JobFailed,
    JobRemoved,
    JobSubmitted,
    ParameterServerEnded,
    Planner,
    PodOverdue,
    PodStartFailed,
    ProgressReported,
    WorkerBound,
    WorkerEnded,
    WorkerRejected,
    WorkerStarted,
    WorkerUnschedulable,
)
from tranche.planner.job_actions import close_window

NOW = 1_800_000_000.0
GPU = "nvidia.com/gpu"


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def pod(name: str = "a-worker-0-3", role: str = "worker", ours: bool = True, **parts: Any) -> Pod:
    labels = {"tranche.dev/job": "a", "tranche.dev/role": role, "tranche.dev/index": "0", "tranche.dev/attempt": "3"}
    owner = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "uid": "uid-a", "controller": True}
    metadata: dict[str, Any] = {"name": name, "namespace": "default", "uid": "u"}
    metadata |= {"labels": labels, "ownerReferences": [owner]} if ours else {}
    requests = {"cpu": "2", "memory": "1Gi", GPU: "1"}
    spec = {"containers": [{"name": "t", "resources": {"requests": requests}}], **parts.pop("spec", {})}
    return msgspec.convert(
        {"metadata": {**metadata, **parts.pop("metadata", {})}, "spec": spec, "status": parts}, Pod, strict=False
    )


def running(at: float = NOW) -> dict[str, Any]:
    return {"phase": "Running", "containerStatuses": [{"name": "t", "state": {"running": {"startedAt": stamp(at)}}}]}


MESSAGE = "0/1 nodes are available: 1 Insufficient rdma/hca."
UNSCHEDULABLE: dict[str, Any] = {
    "phase": "Pending",
    "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": MESSAGE}],
}
BOUND = pod(spec={"nodeName": "n1"}, phase="Pending")
RUNNING = pod(spec={"nodeName": "n1"}, **running())
DONE = pod(spec={"nodeName": "n1"}, phase="Succeeded")


def test_a_pod_is_bound_started_and_ended_once_each() -> None:
    assert list(pod_events.events_of(pod(phase="Pending"), BOUND, NOW)) == [WorkerBound("default/a", 3, "n1")]
    assert list(pod_events.events_of(BOUND, RUNNING, NOW)) == [WorkerStarted("default/a", 3, NOW)]
    (ended,) = pod_events.events_of(RUNNING, DONE, NOW)
    assert isinstance(ended, WorkerEnded)
    assert (ended.attempt, ended.outcome) == (3, "Succeeded")
    assert list(pod_events.events_of(DONE, DONE, NOW)) == []
    assert list(pod_events.events_of(DONE, None, NOW)) == []


def exited(code: int = 0) -> Pod:
    """A pod whose only container has ended and whose end the kubelet has not reported."""
    state = {"terminated": {"exitCode": code, "startedAt": stamp(NOW)}}
    return pod(spec={"nodeName": "n1"}, phase="Running", containerStatuses=[{"name": "t", "state": state}])


def test_end_of_a_worker_has_the_time_of_its_container() -> None:
    state = {"terminated": {"exitCode": 0, "startedAt": stamp(NOW - 60), "finishedAt": stamp(NOW - 20)}}
    done = pod(spec={"nodeName": "n1"}, phase="Succeeded", containerStatuses=[{"name": "t", "state": state}])
    (ended,) = pod_events.events_of(RUNNING, done, NOW)
    assert isinstance(ended, WorkerEnded)
    assert (ended.at, ended.finished) == (NOW, NOW - 20)


@pytest.mark.parametrize("end", [DONE, None], ids=["reported", "unseen"])
def test_worker_ends_with_its_pod_and_not_with_its_container(end: Pod | None) -> None:
    assert list(pod_events.events_of(RUNNING, exited(), NOW)) == []
    (ended,) = pod_events.events_of(exited(), end, NOW)
    assert isinstance(ended, WorkerEnded)
    assert ended.outcome == "Succeeded"


@pytest.mark.parametrize(("code", "outcome"), [(0, "Succeeded"), (7, "Failed")])
def test_worker_ends_without_report_of_its_pods_end(code: int, outcome: str) -> None:
    p = planner("chunk-faithful", [node("n1")])
    p.handle(JobSubmitted(job("a")), NOW)
    timeouts = Timeouts(5.0, 30.0, {"default/a-worker-0-1": exited(code)}, UnreachableNodes({}, {}))
    states = list(p.cluster.jobs.values())
    assert timeouts.due(states, NOW, 0.0) == []
    assert timeouts.next_due == RELEASE_SECONDS
    (ended,) = timeouts.due(states, NOW + RELEASE_SECONDS, RELEASE_SECONDS)
    assert isinstance(ended, WorkerEnded)
    assert (ended.outcome, ended.exit_code) == (outcome, code)


def test_a_start_found_after_a_restart_counts_from_when_it_was() -> None:
    old = pod(spec={"nodeName": "n1"}, **running(NOW - 60))
    assert WorkerStarted("default/a", 3, NOW - 60) in list(pod_events.events_of(None, old, NOW))


def test_a_pod_that_vanishes_unseen_is_lost() -> None:
    (ended,) = pod_events.events_of(RUNNING, None, NOW)
    assert isinstance(ended, WorkerEnded)
    assert ended.outcome == "Lost"


def test_termination_message_of_preempted_worker_is_its_progress() -> None:
    state = {"terminated": {"exitCode": 143, "message": '{"4": 17}'}}
    conditions = [{"type": "DisruptionTarget", "status": "True"}]
    over = pod(
        spec={"nodeName": "n1"},
        phase="Failed",
        conditions=conditions,
        containerStatuses=[{"name": "t", "state": state}],
    )
    (ended,) = pod_events.events_of(RUNNING, over, NOW)
    assert isinstance(ended, WorkerEnded)
    assert (ended.outcome, ended.progress, ended.exit_code) == ("Preempted", {4: 17}, 143)


EVICTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}


def guest(name: str, node: str = "n1", priority: int = 10, bound: str = "") -> Pod:
    """A foreign pod that kube-scheduler has nominated for a node."""
    spec = {"priority": priority, "nodeName": bound}
    return pod(name, ours=False, spec=spec, phase="Pending", nominatedNodeName=node)


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([guest("a")], "pod/default/a"),
        ([guest("a"), guest("b", priority=20)], "pod/default/b"),
        ([guest("a"), guest("b", priority=20, bound="n1")], "pod/default/a"),
        ([guest("a", node="n2")], ""),
        ([guest("a", priority=0)], ""),
        ([], ""),
    ],
)
def test_worker_evicted_by_kube_scheduler_names_nominated_pod(others: list[Pod], expected: str) -> None:
    over = pod(spec={"nodeName": "n1", "priority": 5}, phase="Failed", conditions=[EVICTED])
    (ended,) = pod_events.events_of(RUNNING, over, NOW, lambda: others)
    assert isinstance(ended, WorkerEnded)
    assert (ended.outcome, ended.preempted_by) == ("Preempted", expected)


@pytest.mark.parametrize(
    ("reason", "drained", "why"),
    [
        ("EvictionByEvictionAPI", True, "node n1 is drained"),
        ("EvictionByEvictionAPI", False, "evicted through the Eviction API"),
        ("DeletionByTaintManager", False, "evicted because of a taint of node n1"),
        ("TerminationByKubelet", False, "stopped by the kubelet of node n1: Evicted: The node was low on memory"),
        ("DeletionByPodGC", False, "deleted because node n1 is gone"),
        ("PreemptionByScheduler", False, "evicted by kube-scheduler for a pod of a higher priority"),
        ("", False, "its pod was deleted"),
    ],
)
def test_stopped_worker_says_what_stopped_it(reason: str, drained: bool, why: str) -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    detail: dict[str, Any] = (
        {"reason": "Evicted", "message": "The node was low on memory"} if reason == "TerminationByKubelet" else {}
    )
    detail |= {"conditions": [condition]} if reason else {"metadata": {"deletionTimestamp": stamp(NOW)}}
    over = pod(spec={"nodeName": "n1"}, phase="Failed", **detail)
    n1 = observed("n1", "edge-a")
    n1 = msgspec.structs.replace(n1, spec=msgspec.structs.replace(n1.spec, unschedulable=drained))
    (ended,) = pod_events.events_of(RUNNING, over, NOW, node={"n1": n1}.get)
    assert isinstance(ended, WorkerEnded)
    assert (ended.outcome, ended.stopped_by) == ("Preempted", why)


@pytest.mark.parametrize(("requested", "outcome"), [(NOW, "Preempted"), (NOW + 90, "Succeeded")])
@pytest.mark.parametrize("role", ["worker", "chief"])
def test_exit_0_at_sigterm_ends_no_training(role: str, requested: float, outcome: str) -> None:
    state = {"terminated": {"exitCode": 0, "startedAt": stamp(NOW - 60), "finishedAt": stamp(NOW + 20)}}
    deleted = {"deletionTimestamp": stamp(requested + 30), "deletionGracePeriodSeconds": 30}
    status: dict[str, Any] = {"phase": "Succeeded", "containerStatuses": [{"name": "t", "state": state}]}
    over = pod(role=role, spec={"nodeName": "n1"}, metadata=deleted, **status)
    (ended,) = pod_events.events_of(pod(role=role, spec={"nodeName": "n1"}, **running()), over, NOW + 100)
    assert isinstance(ended, WorkerEnded | ChiefEnded)
    assert (ended.outcome, ended.exit_code) == (outcome, 0)


@pytest.mark.parametrize("phase", ["Pending", "Failed"])
def test_pod_that_a_foreign_finalizer_keeps_ends_once(phase: str) -> None:
    deleted = {"deletionTimestamp": stamp(NOW), "finalizers": ["example.org/audit"]}
    node = {} if phase == "Pending" else {"nodeName": "n1"}
    kept = pod(spec=node, phase=phase, metadata=deleted)
    before = pod(spec=node, phase="Running" if node else "Pending")
    assert [type(event) for event in pod_events.events_of(before, kept, NOW)] == [WorkerEnded]
    assert list(pod_events.events_of(kept, kept, NOW + 60.0)) == []
    assert list(pod_events.events_of(kept, None, NOW + 120.0)) == []


@pytest.mark.parametrize(
    ("code", "message", "log"),
    [(1, "Traceback\nValueError: x", "Traceback\nValueError: x"), (1, '{"0": 5}', ""), (0, "done", "")],
)
def test_only_a_failed_worker_has_its_log_in_the_event(code: int, message: str, log: str) -> None:
    ended = {"name": "t", "state": {"terminated": {"exitCode": code, "startedAt": stamp(NOW), "message": message}}}
    over = pod(spec={"nodeName": "n1"}, phase="Failed" if code else "Succeeded", containerStatuses=[ended])
    (event,) = pod_events.events_of(RUNNING, over, NOW)
    assert isinstance(event, WorkerEnded)
    assert event.log == log


def test_a_worker_evicted_for_one_of_our_pods_names_its_job() -> None:
    ours = pod("b-worker-0-1", spec={"priority": 10}, phase="Pending", nominatedNodeName="n1")
    (ended,) = pod_events.events_of(
        RUNNING, pod(spec={"nodeName": "n1"}, phase="Failed", conditions=[EVICTED]), NOW, lambda: [ours]
    )
    assert isinstance(ended, WorkerEnded)
    assert ended.preempted_by == "default/a"


@pytest.mark.parametrize("role", ["ps", "chief"])
def test_an_evicted_helper_names_the_nominated_pod(role: str) -> None:
    running = pod(role=role, spec={"nodeName": "n1"}, phase="Running")
    over = pod(role=role, spec={"nodeName": "n1"}, phase="Failed", conditions=[EVICTED])
    (ended,) = pod_events.events_of(running, over, NOW, lambda: [guest("a")])
    assert isinstance(ended, ChiefEnded | ParameterServerEnded)
    assert ended.preempted_by == "pod/default/a"


def test_a_worker_that_the_operator_stopped_names_no_pod() -> None:
    evicted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    over = pod(spec={"nodeName": "n1"}, phase="Failed", conditions=[evicted])
    (ended,) = pod_events.events_of(RUNNING, over, NOW, lambda: [guest("a")])
    assert isinstance(ended, WorkerEnded)
    assert ended.preempted_by == ""


@pytest.mark.parametrize("role", ["ps", "chief"])
def test_binding_and_start_of_a_helper_are_events(role: str) -> None:
    waits, runs = pod(role=role, phase="Pending"), pod(role=role, spec={"nodeName": "n1"}, phase="Running")
    assert list(pod_events.events_of(waits, runs, NOW)) == [WorkerBound("default/a", 3, "n1")]
    state = {"name": "t", "state": {"running": {"startedAt": stamp(NOW)}}}
    trains = pod(role=role, spec={"nodeName": "n1"}, phase="Running", containerStatuses=[state])
    assert list(pod_events.events_of(runs, trains, NOW)) == [WorkerStarted("default/a", 3, NOW)]
    assert list(pod_events.events_of(trains, trains, NOW)) == []


def test_a_parameter_server_that_ends_is_lost() -> None:
    crashed = {"name": "t", "state": {"terminated": {"exitCode": 1, "startedAt": stamp(NOW)}}}
    gone = pod(role="ps", phase="Failed", containerStatuses=[crashed])
    running = pod(role="ps", phase="Running")
    failed = ParameterServerEnded("default/a", 0, 3, "Failed", 1, started=NOW)
    assert list(pod_events.events_of(running, gone, NOW)) == [failed]
    assert list(pod_events.events_of(running, None, NOW)) == [
        ParameterServerEnded("default/a", 0, 3, "Lost", stopped_by="its pod is gone")
    ]


def test_end_of_chief_pod_becomes_event_with_outcome() -> None:
    running, done = pod(role="chief", phase="Running"), pod(role="chief", phase="Succeeded")
    assert list(pod_events.events_of(running, done, NOW)) == [ChiefEnded("default/a", 3, "Succeeded")]
    assert list(pod_events.events_of(running, None, NOW)) == [
        ChiefEnded("default/a", 3, "Lost", stopped_by="its pod is gone")
    ]
    assert list(pod_events.events_of(done, None, NOW)) == []


def test_labels_that_somebody_broke_are_ignored() -> None:
    assert list(pod_events.events_of(None, pod(metadata={"labels": {"tranche.dev/job": "a"}}), NOW)) == []


def observed(name: str, zone: str) -> NodeObject:
    labels = {"topology.kubernetes.io/zone": zone}
    status = {
        "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110", GPU: "4"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return msgspec.convert({"metadata": {"name": name, "labels": labels}, "status": status}, NodeObject)


def site(name: str) -> SiteObject:
    spec = {"nodeSelector": {"topology.kubernetes.io/zone": name}}
    return SiteObject.model_validate({"metadata": {"name": name}, "spec": spec})


def test_foreign_pod_uses_capacity_until_it_has_ended() -> None:
    book = ForeignNodeUsage((GPU,), lambda pod: False)
    foreign = pod("web", ours=False, spec={"nodeName": "n1"}, phase="Running")
    assert book.note_pod("x/web", foreign) == {"n1"}
    found = book.node(observed("n1", "edge-a"), {})
    assert found is not None
    assert found.foreign == Resources(2000, 2**30, 1, 1)
    assert book.note_pod("x/web", foreign) == set()
    assert book.note_pod("x/web", pod("web", ours=False, spec={"nodeName": "n1"}, phase="Succeeded")) == {"n1"}
    found = book.node(observed("n1", "edge-a"), {})
    assert found is not None
    assert found.foreign == Resources()


def test_held_pods_are_not_foreign() -> None:
    assert ForeignNodeUsage((GPU,), lambda pod: True).note_pod("default/a", RUNNING) == set()


def test_node_belongs_to_selecting_site_or_default_site() -> None:
    book = ForeignNodeUsage((GPU,), lambda pod: False)
    alone = book.node(observed("n1", "edge-a"), {})
    assert alone is not None
    assert alone.site == "cluster"
    sites = {"edge-a": site("edge-a")}
    inside = book.node(observed("n1", "edge-a"), sites)
    assert inside is not None
    assert inside.site == "edge-a"
    assert book.node(observed("n2", "elsewhere"), sites) is None


def training_job(generation: int = 1, uid: str = "u", phase: str | None = None, **status: Any) -> TrainingJob:
    template = {"spec": {"containers": [{"name": "t", "resources": {"requests": {GPU: "1"}}}]}}
    return TrainingJob.model_validate(
        {
            "metadata": {
                "name": "a",
                "namespace": "default",
                "uid": uid,
                "generation": generation,
                "creationTimestamp": stamp(NOW),
            },
            "spec": {"data": {"chunks": 4}, "workers": {"maxReplicas": 9, "template": template}},
            "status": {"phase": phase, **status},
        }
    )


def events(old: TrainingJob | None, new: TrainingJob | None) -> list[type]:
    return [type(event) for event in job_events.events_of(old, new, (GPU,), {})]


def test_jobs_come_change_and_go() -> None:
    assert events(None, training_job()) == [JobSubmitted]
    assert events(training_job(), training_job()) == []
    assert events(training_job(), training_job(2)) == [JobChanged]
    assert events(training_job(), None) == [JobRemoved]
    assert events(training_job(), training_job(uid="v")) == [JobRemoved, JobSubmitted]
    assert events(training_job(), training_job(phase="Failed")) == [JobRemoved]
    assert events(training_job(phase="Failed"), None) == []
    failed = training_job(phase="Failed", plan=plan(window(0, 1)))
    assert events(training_job(plan=plan(window(0, 1))), failed) == [JobFailed], "its pods are still to be counted"
    assert events(failed, failed) == []
    assert events(failed, training_job(phase="Failed", plan=plan())) == [JobRemoved]
    assert events(failed, None) == [JobRemoved]
    run_policy = failed.spec.run_policy.model_copy(update={"clean_pod_policy": "None"})
    kept = failed.model_copy(update={"spec": failed.spec.model_copy(update={"run_policy": run_policy})})
    assert events(training_job(), kept) == [JobFailed], "its pods run on"
    assert events(None, failed) == events(None, kept) == [JobSubmitted, JobFailed], "as after a change of the leader"
    assert events(training_job(uid="v"), failed) == [JobRemoved, JobSubmitted, JobFailed]
    assert events(None, training_job(phase="Succeeded")) == []


@pytest.mark.parametrize(("kind", "permanent"), [("InvalidTemplate", True), ("PodsRejected", False)])
def test_rejection_condition_is_one_event_repeated_after_restart(kind: str, permanent: bool) -> None:
    condition = {
        "type": kind,
        "status": "True",
        "reason": "Quota",
        "message": "no",
        "lastTransitionTime": stamp(NOW),
        "observedGeneration": 1,
    }
    refused = training_job(conditions=[condition])
    expected = WorkerRejected("default/a", "Quota", "no", permanent)
    found = job_events.events_of(training_job(), refused, (GPU,), {})
    assert [event for event in found if not isinstance(event, JobChanged)] == [expected]
    assert list(job_events.events_of(refused, refused, (GPU,), {})) == []
    assert expected in list(job_events.events_of(None, refused, (GPU,), {}))


def test_timeouts_report_unbound_pod_and_end_podless_window() -> None:
    p = planner("chunk-faithful", [node("n1")])
    p.handle(JobSubmitted(job("a")), NOW)
    stuck = pod("a-worker-0-1", **UNSCHEDULABLE)
    known = {"default/a-worker-0-1": stuck}
    timeouts = Timeouts(5.0, 30.0, known, UnreachableNodes({}, {}))
    states = list(p.cluster.jobs.values())
    assert timeouts.due(states, NOW, 0.0) == []
    assert timeouts.next_due == 30.0
    assert timeouts.due(states, NOW + 29, 29.0) == []
    (event,) = timeouts.due(states, NOW + 30, 30.0)
    assert isinstance(event, WorkerUnschedulable)
    assert timeouts.next_due == float("inf")
    p.handle(event, NOW + 30)
    known.clear()
    assert timeouts.due(states, NOW + 31, 31.0) == []
    assert timeouts.next_due == 36.0
    (lost,) = timeouts.due(states, NOW + 36, 36.0)
    assert isinstance(lost, WorkerEnded)
    assert lost.outcome == "Lost"


def test_podless_window_ends_after_its_closing_plan_is_written() -> None:
    """Until then, the operator may create its pod from the plan before."""
    p = planner("chunk-faithful", [node("n1")])
    p.handle(JobSubmitted(job("a")), NOW)
    written_open = {("default/a", 1)}
    timeouts = Timeouts(
        5.0, 30.0, {}, UnreachableNodes({}, {}), may_be_created=lambda key, attempt: (key, attempt) in written_open
    )
    states = list(p.cluster.jobs.values())
    p.handle(JobChanged(job("a", suspended=True, generation=2)), NOW)
    for elapsed in (0.0, 5.0, 60.0):
        assert timeouts.due(states, NOW + elapsed, elapsed) == []
    written_open.clear()
    assert timeouts.due(states, NOW + 61, 61.0) == []
    assert timeouts.next_due == 66.0
    (lost,) = timeouts.due(states, NOW + 66, 66.0)
    assert isinstance(lost, WorkerEnded)


def test_timeouts_report_unbound_chief_and_end_podless_chief() -> None:
    p = planner("chunk", [node("n1")])
    p.handle(JobSubmitted(job("a", is_gang=True, chief=worker(0))), NOW)
    known = {"default/a-chief-0-1": pod("a-chief-0-1", role="chief", **UNSCHEDULABLE)}
    known["default/a-worker-0-2"] = pod("a-worker-0-2", phase="Pending", spec={"nodeName": "n1"})
    timeouts = Timeouts(5.0, 30.0, known, UnreachableNodes({}, {}))
    states = list(p.cluster.jobs.values())
    assert timeouts.due(states, NOW, 0.0) == []
    assert timeouts.due(states, NOW + 29, 29.0) == []
    (event,) = timeouts.due(states, NOW + 30, 30.0)
    assert isinstance(event, WorkerUnschedulable)
    p.handle(event, NOW + 30)
    known.clear()
    assert timeouts.due(states, NOW + 31, 31.0) == []
    events = timeouts.due(states, NOW + 36, 36.0)
    assert ChiefEnded("default/a", 1, stopped_by="its pod is gone") in events


def test_timeouts_report_unbound_server_of_chunked_job() -> None:
    p = planner("chunk", [node("n1")])
    p.handle(JobSubmitted(job("a", servers=1, server=worker(0))), NOW)
    known = {"default/a-ps-0-1": pod("a-ps-0-1", role="ps", **UNSCHEDULABLE)}
    known["default/a-worker-0-2"] = pod("a-worker-0-2", phase="Running", spec={"nodeName": "n1"})
    timeouts = Timeouts(5.0, 30.0, known, UnreachableNodes({}, {}))
    states = list(p.cluster.jobs.values())
    assert timeouts.due(states, NOW, 0.0) == []
    assert timeouts.due(states, NOW + 29, 29.0) == []
    assert timeouts.due(states, NOW + 30, 30.0) == [WorkerUnschedulable("default/a", 1, MESSAGE)]


def at_cloud(known: dict[str, Pod], site: Site) -> Timeouts:
    """Return the timeouts of pods at an unlimited site."""
    unlimited = {site.name: site}
    return Timeouts(5.0, 30.0, known, UnreachableNodes({}, {}), unlimited_site=unlimited.get, node_start_seconds=900.0)


def requiring(*terms: dict[str, str]) -> dict[str, Any]:
    """Return a pod specification with alternative required labels."""
    expressions = [
        {"matchExpressions": [{"key": key, "operator": "In", "values": [value]} for key, value in term.items()]}
        for term in terms
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": expressions}}
    return {"affinity": {"nodeAffinity": required}}


@pytest.mark.parametrize(
    ("terms", "outdated"),
    [
        (({"zone": "new"},), False),
        (({"zone": "old"},), True),
        (({"zone": "old"}, {"zone": "new", "disk": "ssd"}), False),
        (({"disk": "ssd"},), False),
        ((), False),
    ],
)
def test_pod_with_former_labels_of_cloud_is_planned_again(terms: tuple[dict[str, str], ...], outdated: bool) -> None:
    site = Site("cloud", unlimited=True, labels={"zone": "new"})
    p = planner("chunk-faithful", [], [site])
    p.handle(JobSubmitted(job("a", server=worker(0), servers=1)), NOW)
    state = p.cluster.jobs["default/a"]
    (run,) = state.runs.values()
    name, helper = f"a-worker-0-{run.window.attempt}", f"a-ps-0-{state.servers[0].planned.attempt}"
    more: dict[str, Any] = {"spec": requiring(*terms)} if terms else {}
    pods = (pod(name, **UNSCHEDULABLE, **more), pod(helper, role="ps", **UNSCHEDULABLE, **more))
    timeouts = at_cloud({one.key: one for one in pods}, site)
    assert timeouts.due([state], NOW, 0.0) == []
    events = timeouts.due([state], NOW + SELECTOR_SECONDS, SELECTOR_SECONDS)
    assert [type(event) for event in events] == [WorkerUnschedulable] * (2 if outdated else 0)


def test_pod_with_former_labels_waits_longer_after_failures() -> None:
    site = Site("cloud", unlimited=True, labels={"zone": "new"})
    p = planner("chunk-faithful", [], [site])
    p.handle(JobSubmitted(job("a")), NOW)
    state = p.cluster.jobs["default/a"]
    state.placement.failures = 2
    (run,) = state.runs.values()
    one = pod(f"a-worker-0-{run.window.attempt}", spec=requiring({"zone": "old"}), **UNSCHEDULABLE)
    timeouts = at_cloud({one.key: one}, site)
    assert timeouts.due([state], NOW, 0.0) == []
    assert timeouts.due([state], NOW + 19.0, 19.0) == []
    assert len(timeouts.due([state], NOW + 20.0, 20.0)) == 1


@pytest.mark.parametrize(("startup", "limit"), [(60.0, 900.0), (600.0, 1200.0)])
def test_a_pod_at_an_unlimited_site_may_wait_for_a_node(startup: float, limit: float) -> None:
    sites = [Site("edge-a"), Site("cloud", unlimited=True, start_seconds=startup)]
    p = planner("chunk-faithful", [], sites)
    server = worker(0)
    p.handle(JobSubmitted(job("a", server=server, servers=1)), NOW)
    state = p.cluster.jobs["default/a"]
    (run,) = state.runs.values()
    assert (run.window.site, run.window.node) == ("cloud", None)
    name = f"a-worker-0-{run.window.attempt}"
    known = {f"default/{name}": pod(name, **UNSCHEDULABLE)}
    helper = f"a-ps-0-{state.servers[0].planned.attempt}"
    known[f"default/{helper}"] = pod(helper, role="ps", **UNSCHEDULABLE)
    timeouts = at_cloud(known, sites[1])
    assert timeouts.due([state], NOW, 0.0) == []
    assert timeouts.due([state], NOW + limit - 1, limit - 1) == []
    events = timeouts.due([state], NOW + limit, limit)
    assert {type(event) for event in events} == {WorkerUnschedulable}
    assert len(events) == 2


def test_nodes_of_an_unlimited_site_are_no_places() -> None:
    book = ForeignNodeUsage((GPU,), lambda pod: False)
    spec = {"nodeSelector": {"topology.kubernetes.io/zone": "cloud"}}
    sites = {"cloud": SiteObject.model_validate({"metadata": {"name": "cloud"}, "spec": spec})}
    assert book.node(observed("cloud-0", "cloud"), sites) is not None
    sites = {"cloud": SiteObject.model_validate({"metadata": {"name": "cloud"}, "spec": {**spec, "unlimited": True}})}
    assert book.node(observed("cloud-0", "cloud"), sites) is None


def test_timeouts_ignore_pod_of_deleted_namesake() -> None:
    p = planner("chunk-faithful", [node("n1")])
    p.handle(JobSubmitted(job("a")), NOW)
    old = pod("a-worker-0-1", metadata={"ownerReferences": []}, **UNSCHEDULABLE)
    timeouts = Timeouts(5.0, 30.0, {"default/a-worker-0-1": old}, UnreachableNodes({}, {}))
    states = list(p.cluster.jobs.values())
    timeouts.due(states, NOW, 0.0)
    assert timeouts.due(states, NOW + 31, 31.0) == []
    (run,) = states[0].runs.values()
    close_window(p.context, states[0], run, "test")
    timeouts.due(states, NOW + 32, 32.0)
    (lost,) = timeouts.due(states, NOW + 37, 37.0)
    assert isinstance(lost, WorkerEnded)


@pytest.mark.parametrize(("grace", "seconds"), [(60, 90.0), (10**9, 630.0)])
def test_a_pod_waits_longer_where_a_victim_is_still_saving(grace: int, seconds: float) -> None:
    p = planner("chunk-faithful", [node("n1")])
    p.handle(JobSubmitted(job("a")), NOW)
    leaving = pod(
        "v",
        spec={"nodeName": "n1"},
        phase="Running",
        metadata={"deletionTimestamp": stamp(NOW), "deletionGracePeriodSeconds": grace},
    )
    known = {"default/a-worker-0-1": pod("a-worker-0-1", **UNSCHEDULABLE), "default/v": leaving}
    timeouts = Timeouts(5.0, 30.0, known, UnreachableNodes({}, {}))
    states = list(p.cluster.jobs.values())
    timeouts.due(states, NOW, 0.0)
    assert timeouts.due(states, NOW + seconds - 1, seconds - 1) == []
    assert len(timeouts.due(states, NOW + seconds, seconds)) == 1


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_wall_clock_step_does_not_change_timeouts(step: float) -> None:
    p = planner("chunk-faithful", [node("n1")])
    p.handle(JobSubmitted(job("a")), NOW)
    timeouts = Timeouts(
        5.0, 30.0, {"default/a-worker-0-1": pod("a-worker-0-1", **UNSCHEDULABLE)}, UnreachableNodes({}, {})
    )
    states = list(p.cluster.jobs.values())
    assert timeouts.due(states, NOW, 0.0) == []
    assert timeouts.due(states, NOW + step, 29.0) == []
    assert len(timeouts.due(states, NOW + step, 30.0)) == 1


def test_refused_eviction_event_lists_pods_not_terminating() -> None:
    windows = [
        {"index": index, "attempt": 3 + index, "site": "edge-a", "chunks": [index], "state": state}
        for index, state in enumerate(["Closing", "Closing", "Open", "Closing"])
    ]
    plan = {"term": 1, "revision": 1, "observedGeneration": 1, "workers": windows}
    condition = {
        "type": "EvictionsRefused",
        "status": "True",
        "reason": "DisruptionBudget",
        "message": "a-worker-0-3: budget",
        "lastTransitionTime": stamp(NOW),
        "observedGeneration": 1,
    }
    labels = {"tranche.dev/job": "a"}
    going = {"name": "a-worker-1-4", "namespace": "default", "labels": labels, "deletionTimestamp": stamp(NOW)}
    found = {
        "default/a-worker-0-3": pod(phase="Running"),
        "default/a-worker-1-4": pod(metadata=going, spec={"nodeName": "n1"}, phase="Running"),
        "default/a-worker-2-5": pod(phase="Running"),
        "default/a-worker-3-6": DONE,
    }
    refused = training_job(plan=plan, conditions=[condition])
    expected = EvictionRefused("default/a", (3,), "a-worker-0-3: budget")
    assert list(job_events.events_of(training_job(plan=plan), refused, (GPU,), found)) == [expected]
    assert list(job_events.events_of(refused, refused, (GPU,), found)) == []
    assert expected in list(job_events.events_of(None, refused, (GPU,), found))
    other = training_job(plan=plan, conditions=[{**condition, "message": "another pod"}])
    assert len(list(job_events.events_of(refused, other, (GPU,), found))) == 1


def silent(since: float, zone: str = "edge-a") -> NodeObject:
    node = observed("n1", zone)
    ready = msgspec.structs.replace(
        node.status.conditions[0], status="Unknown", last_transition_time=datetime.fromtimestamp(since, UTC)
    )
    return msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, conditions=(ready,)))


@pytest.mark.parametrize(("tolerance", "seconds"), [("10m", 600.0), ("0s", 0.0), (None, 300.0)])
def test_pods_on_silent_node_are_lost_after_site_tolerance(tolerance: str | None, seconds: float) -> None:
    declared = site("edge-a")
    spec = declared.spec.model_copy(update={"disconnect_tolerance": tolerance})
    sites = {"edge-a": declared.model_copy(update={"spec": spec})} if tolerance else {}
    nodes = {"n1": silent(NOW)}
    p = planner("srsf", [node("n1")])
    p.handle(JobSubmitted(job("a", servers=1, server=worker(0))), NOW)
    worker_pod, server_pod = pod("a-worker-0-2", **running()), pod("a-ps-0-1", role="ps", **running())
    placed = {
        name: msgspec.structs.replace(one, spec=BOUND.spec)
        for name, one in {"default/a-worker-0-2": worker_pod, "default/a-ps-0-1": server_pod}.items()
    }
    timeouts = Timeouts(5.0, 30.0, placed, UnreachableNodes(nodes, sites))
    states = list(p.cluster.jobs.values())
    assert (next(iter(states[0].runs)), states[0].servers[0].planned.attempt) == (2, 1)
    if seconds:
        assert timeouts.due(states, NOW + seconds - 1, seconds - 1) == []
    silence = "node n1 does not respond"
    lost = [
        ParameterServerEnded("default/a", 0, 1, stopped_by=silence, started=NOW),
        WorkerEnded("default/a", 2, "Lost", NOW + seconds, stopped_by=silence),
    ]
    assert timeouts.due(states, NOW + seconds, seconds) == lost
    nodes["n1"] = observed("n1", "edge-a")
    assert timeouts.due(states, NOW + seconds + 1, seconds + 1) == []


def gang_on_silent_nodes(nodes: dict[str, NodeObject], **fields: Any) -> tuple[Planner, Timeouts]:
    """A gang that trains on n1 and n2, of a site that tolerates an hour."""
    declared = site("edge-a")
    spec = declared.spec.model_copy(update={"disconnect_tolerance": "1h"})
    p = planner("srsf", [node("n1", gpus=1), node("n2", gpus=1)])
    p.handle(JobSubmitted(job("a", chunks=2, is_gang=True, **fields)), NOW)
    pods = dict[str, Pod]()
    for attempt, run in p.cluster.jobs["default/a"].runs.items():
        p.handle(WorkerStarted("default/a", attempt, NOW), NOW)
        one = pod(f"a-worker-{run.window.index}-{attempt}", spec={"nodeName": run.window.node}, **running())
        pods[one.key] = one
    unreachable = UnreachableNodes(nodes, {"edge-a": declared.model_copy(update={"spec": spec})})
    return p, Timeouts(5.0, 30.0, pods, unreachable)


def due_in(p: Planner, timeouts: Timeouts, seconds: float) -> list[Any]:
    return timeouts.due(list(p.cluster.jobs.values()), NOW + seconds, seconds)


def advanced(p: Planner, fraction: float, at: float) -> None:
    """Report the progress of the gang by rank 0."""
    attempt = next(attempt for attempt, run in p.cluster.jobs["default/a"].runs.items() if run.window.index == 0)
    report = Report("default/a", attempt, {}, {0: fraction, 1: fraction})
    p.handle(ProgressReported(report, NOW + at), NOW + at)


def test_gang_at_a_disconnected_site_waits_for_its_site() -> None:
    p, timeouts = gang_on_silent_nodes({"n1": silent(NOW), "n2": silent(NOW)})
    assert due_in(p, timeouts, 61) == due_in(p, timeouts, 3599) == []
    assert [event.outcome for event in due_in(p, timeouts, 3600)] == ["Lost", "Lost"]


def test_gang_whose_nodes_alone_are_silent_is_lost() -> None:
    others = {"n3": observed("n3", "edge-a")}
    p, timeouts = gang_on_silent_nodes({"n1": silent(NOW), "n2": silent(NOW), **others})
    assert due_in(p, timeouts, 59) == []
    assert [event.outcome for event in due_in(p, timeouts, 60)] == ["Lost", "Lost"]


@pytest.mark.parametrize(
    ("nodes", "cut_off"),
    [
        ({"n1": "edge-a"}, False),
        ({"n1": "edge-a", "n2": "edge-a"}, True),
        ({"n1": "edge-a", "n2": "edge-b"}, False),
    ],
)
def test_site_with_one_node_is_not_cut_off(nodes: dict[str, str], cut_off: bool) -> None:
    silents = {name: silent(NOW, zone) for name, zone in nodes.items()}
    unreachable = UnreachableNodes(silents, {"edge-a": site("edge-a"), "edge-b": site("edge-b")})
    assert unreachable.are_cut_off(["n1"]) is cut_off


def test_gang_member_on_a_silent_node_is_lost_after_a_minute() -> None:
    p, timeouts = gang_on_silent_nodes({"n1": observed("n1", "edge-a"), "n2": silent(NOW)})
    assert due_in(p, timeouts, 59) == []
    (lost,) = due_in(p, timeouts, 60)
    assert lost.stopped_by == "node n2 does not respond"


def test_gang_that_reports_progress_keeps_its_silent_member() -> None:
    """Reports without progress come from a thread that runs on while the other members wait for the lost one."""
    p, timeouts = gang_on_silent_nodes({"n1": observed("n1", "edge-a"), "n2": silent(NOW)})
    for at in range(10, 300, 10):
        advanced(p, at / 1000, at)
        assert due_in(p, timeouts, at) == []
    for at in range(300, 350, 10):
        advanced(p, 0.29, at)
        assert due_in(p, timeouts, at) == []
    assert len(due_in(p, timeouts, 350)) == 1


def test_planner_that_takes_over_waits_a_minute_for_a_report() -> None:
    p, timeouts = gang_on_silent_nodes({"n1": observed("n1", "edge-a"), "n2": silent(NOW)})
    for run in p.cluster.jobs["default/a"].runs.values():
        run.adopted = True
    assert due_in(p, timeouts, 300) == due_in(p, timeouts, 359) == []
    assert len(due_in(p, timeouts, 360)) == 1


def starting(**state: Any) -> Pod:
    status = {"name": "t", "state": {"waiting": state}} if state else None
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(NOW)}
    statuses: dict[str, Any] = {"containerStatuses": [status]} if status else {}
    return pod("a-worker-0-1", spec={"nodeName": "n1"}, phase="Pending", conditions=[scheduled], **statuses)


LIMITS = ControllerSettings().start_limits


@pytest.mark.parametrize(
    ("reason", "seconds", "kind"),
    [
        ("InvalidImageName", 60.0, "Configuration"),
        ("ImagePullBackOff", 600.0, "ImagePull"),
        ("ContainerCreating", 1800.0, "Creation"),
        ("", 1800.0, "Creation"),
    ],
)
def test_bound_pod_that_does_not_start_fails_after_a_limit(reason: str, seconds: float, kind: str) -> None:
    p = planner("chunk", [node("n1")])
    p.handle(JobSubmitted(job("a")), NOW)
    known = {"default/a-worker-0-1": starting(reason=reason, message="why") if reason else starting()}
    timeouts = Timeouts(5.0, 30.0, known, UnreachableNodes({}, {}), start_limits=LIMITS)
    states = list(p.cluster.jobs.values())
    assert timeouts.due(states, NOW, 0.0) == []
    assert timeouts.due(states, NOW + seconds - 1, seconds - 1) == []
    expected = PodStartFailed("default/a", 1, reason or "ContainerCreating", "why" if reason else "", kind)
    assert timeouts.due(states, NOW + seconds, seconds) == [expected]


@pytest.mark.parametrize("state", [{}, {"reason": "ErrImagePull"}, {"reason": "InvalidImageName"}])
def test_unstarted_pod_of_a_silent_site_waits_for_its_tolerance(state: dict[str, str]) -> None:
    declared = site("edge-a")
    spec = declared.spec.model_copy(update={"disconnect_tolerance": "1h"})
    sites = {"edge-a": declared.model_copy(update={"spec": spec})}
    p = planner("chunk", [node("n1")])
    p.handle(JobSubmitted(job("a")), NOW)
    unreachable = UnreachableNodes({"n1": silent(NOW)}, sites)
    timeouts = Timeouts(5.0, 30.0, {"default/a-worker-0-1": starting(**state)}, unreachable, start_limits=LIMITS)
    states = list(p.cluster.jobs.values())
    assert [event for at in (0, 1800, 3599) for event in timeouts.due(states, NOW + at, at)] == []
    lost = WorkerEnded("default/a", 1, "Lost", NOW + 3600, stopped_by="node n1 does not respond")
    assert timeouts.due(states, NOW + 3600, 3600.0) == [lost]


@pytest.mark.parametrize(("restarted", "ready"), [(False, NOW + 2000), (False, 0.0), (True, NOW + 2000)])
@pytest.mark.parametrize(("state", "limit"), [({}, 1800), ({"reason": "ErrImagePull"}, 600)])
def test_time_to_start_begins_again_after_a_silence(
    state: dict[str, str], limit: int, restarted: bool, ready: float
) -> None:
    """Also for a planner that has not seen the silence, and for one that has if the node's clock is wrong."""
    p = planner("chunk", [node("n1")])
    p.handle(JobSubmitted(job("a")), NOW)
    nodes = {"n1": silent(NOW)}
    known = {"default/a-worker-0-1": starting(**state)}
    timeouts = Timeouts(5.0, 30.0, known, UnreachableNodes(nodes, {}), start_limits=LIMITS)
    states = list(p.cluster.jobs.values())
    times = [] if restarted else [0, 250]
    assert [event for at in times for event in timeouts.due(states, NOW + at, at)] == []
    nodes["n1"] = not_ready("True", ready)
    times = [2000, 2000 + limit - 1]
    assert [event for at in times for event in timeouts.due(states, NOW + at, at)] == []
    assert len(timeouts.due(states, NOW + 2000 + limit, 2000.0 + limit)) == 1


@pytest.mark.parametrize("claims", [True, False])
def test_pod_waits_for_a_volume_on_a_silent_node(claims: bool) -> None:
    """The volume can be mounted by one node, and stays attached to n2 until the earlier pod is gone there."""
    p = planner("chunk", [node("n1")])
    p.handle(JobSubmitted(job("a")), NOW)
    volumes = {"volumes": [{"persistentVolumeClaim": {"claimName": "c"}}]} if claims else {}
    gone = {"deletionTimestamp": stamp(NOW), "deletionGracePeriodSeconds": 30}
    earlier = pod("a-worker-0-0", spec={"nodeName": "n2", **volumes}, metadata=gone, **running())
    later = starting(reason="ContainerCreating")
    later = msgspec.structs.replace(later, spec=msgspec.structs.replace(later.spec, volumes=earlier.spec.volumes))
    known = {later.key: later, earlier.key: earlier}
    nodes = {"n1": observed("n1", "edge-a"), "n2": silent(NOW)}
    timeouts = Timeouts(5.0, 30.0, known, UnreachableNodes(nodes, {}), start_limits=LIMITS)
    assert due_in(p, timeouts, 0) == []
    expected = PodStartFailed("default/a", 1, "ContainerCreating", "", "Creation")
    if not claims:
        assert due_in(p, timeouts, 1800) == [expected]
        return
    assert [event for at in (1800, 3600) for event in due_in(p, timeouts, at)] == []
    del known[earlier.key]
    assert [event for at in (3700, 5499) for event in due_in(p, timeouts, at)] == []
    assert due_in(p, timeouts, 5500) == [expected]


def test_another_reason_for_not_starting_has_its_own_time() -> None:
    p = planner("chunk", [node("n1")])
    p.handle(JobSubmitted(job("a")), NOW)
    known = {"default/a-worker-0-1": starting(reason="ContainerCreating")}
    timeouts = Timeouts(5.0, 30.0, known, UnreachableNodes({}, {}), start_limits=LIMITS)
    states = list(p.cluster.jobs.values())
    assert timeouts.due(states, NOW + 500, 500.0) == []
    known["default/a-worker-0-1"] = starting(reason="ErrImagePull")
    assert timeouts.due(states, NOW + 1000, 1000.0) == []
    known["default/a-worker-0-1"] = starting(reason="ImagePullBackOff")
    assert timeouts.due(states, NOW + 1599, 1599.0) == []
    assert len(timeouts.due(states, NOW + 1600, 1600.0)) == 1


def test_time_without_reason_counts_from_binding_after_restart() -> None:
    p = planner("chunk", [node("n1")])
    p.handle(JobSubmitted(job("a")), NOW)
    known = {"default/a-worker-0-1": starting(reason="ContainerCreating")}
    timeouts = Timeouts(5.0, 30.0, known, UnreachableNodes({}, {}), start_limits=LIMITS)
    assert len(timeouts.due(p.cluster.jobs.values(), NOW + 1800, 7.0)) == 1


def not_ready(status: str, since: float) -> NodeObject:
    lost = silent(since)
    ready = msgspec.structs.replace(lost.status.conditions[0], status=status)
    return msgspec.structs.replace(lost, status=msgspec.structs.replace(lost.status, conditions=(ready,)))


def test_second_silence_of_a_node_counts_from_its_own_begin() -> None:
    """The worker trains undisturbed between the two."""
    p = planner("srsf", [node("n1")])
    p.handle(JobSubmitted(job("a")), NOW)
    p.handle(WorkerStarted("default/a", 1, NOW), NOW)
    nodes = {"n1": observed("n1", "edge-a")}
    trains = msgspec.structs.replace(pod("a-worker-0-1", **running()), spec=BOUND.spec)
    timeouts = Timeouts(5.0, 30.0, {"default/a-worker-0-1": trains}, UnreachableNodes(nodes, {}))
    ended: dict[int, list[Any]] = {}
    for second in range(0, 1200, 10):
        nodes["n1"] = not_ready("False", NOW) if 100 <= second < 300 or second >= 500 else observed("n1", "edge-a")
        if due := timeouts.due(p.cluster.jobs.values(), NOW + second, float(second)):
            ended.setdefault(second, due)
    assert min(ended) == 800


def test_pod_deleted_on_silent_node_is_overdue_after_its_return() -> None:
    p = planner("srsf", [node("n1")])
    p.handle(JobSubmitted(job("a")), NOW)
    p.handle(WorkerStarted("default/a", 1, NOW), NOW)
    nodes = {"n1": not_ready("False", NOW)}
    metadata = {"deletionTimestamp": stamp(NOW), "deletionGracePeriodSeconds": 30}
    stops = msgspec.structs.replace(pod("a-worker-0-1", metadata=metadata, **running()), spec=BOUND.spec)
    timeouts = Timeouts(5.0, 30.0, {"default/a-worker-0-1": stops}, UnreachableNodes(nodes, {}))
    assert timeouts.due(p.cluster.jobs.values(), NOW, 0.0) == []
    nodes["n1"] = observed("n1", "edge-a")
    states = p.cluster.jobs.values()
    due = [event for second in range(10, 200, 10) for event in timeouts.due(states, NOW + second, second)]
    assert PodOverdue("default/a", 1) in due


@pytest.mark.parametrize("skew", [-3600.0, 3600.0])
def test_not_ready_by_another_clock_counts_from_when_it_is_seen(skew: float) -> None:
    unreachable = UnreachableNodes({"n1": not_ready("False", NOW + skew)}, {})
    assert not unreachable.lost("n1", NOW)
    assert not unreachable.lost("n1", NOW + 299)
    assert unreachable.lost("n1", NOW + 300)


def test_unknown_in_the_future_counts_from_when_it_is_seen() -> None:
    unreachable = UnreachableNodes({"n1": not_ready("Unknown", NOW + 3600)}, {})
    assert not unreachable.lost("n1", NOW)
    assert unreachable.lost("n1", NOW + 300)


@pytest.mark.parametrize(("finished", "ran"), [(NOW + 600, 600.0), (NOW, 0.0), (None, None)])
def test_end_of_a_worker_says_how_long_its_container_ran(finished: float | None, ran: float | None) -> None:
    ended = {"exitCode": 0, "startedAt": stamp(NOW)} | ({"finishedAt": stamp(finished)} if finished else {})
    state = [{"name": "t", "state": {"terminated": ended}}]
    over = pod(spec={"nodeName": "n1"}, phase="Succeeded", containerStatuses=state)
    (end,) = pod_events.events_of(RUNNING, over, NOW + 3600)
    assert isinstance(end, WorkerEnded)
    assert (end.ran, end.at) == (ran, NOW + 3600)
