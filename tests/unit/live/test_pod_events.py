"""Watch changes as planner events."""

from typing import Any

import msgspec
import pytest

from support.builders import job, node, planner
from support.operator_objects import plan, window
from support.watched_pods import (
    BOUND,
    DONE,
    GPU,
    NOW,
    RUNNING,
    observed,
    pod,
    running,
    site,
    stamp,
    timeouts_of,
)
from tranche.kube.api.core_types import Pod
from tranche.kube.api.resources import TrainingJob
from tranche.live import job_events
from tranche.live.foreign_usage import ForeignNodeUsage
from tranche.live.pods import pod_events
from tranche.live.pods.pod_timeouts import RELEASE_SECONDS
from tranche.model import Resources
from tranche.planner import (
    ChiefEnded,
    EvictionRefused,
    JobChanged,
    JobFailed,
    JobRemoved,
    JobSubmitted,
    ParameterServerEnded,
    WorkerBound,
    WorkerEnded,
    WorkerRejected,
    WorkerStarted,
)


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
    timeouts = timeouts_of(p, {"default/a-worker-0-1": exited(code)})
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


@pytest.mark.parametrize(("finished", "ran"), [(NOW + 600, 600.0), (NOW, 0.0), (None, None)])
def test_end_of_a_worker_says_how_long_its_container_ran(finished: float | None, ran: float | None) -> None:
    ended = {"exitCode": 0, "startedAt": stamp(NOW)} | ({"finishedAt": stamp(finished)} if finished else {})
    state = [{"name": "t", "state": {"terminated": ended}}]
    over = pod(spec={"nodeName": "n1"}, phase="Succeeded", containerStatuses=state)
    (end,) = pod_events.events_of(RUNNING, over, NOW + 3600)
    assert isinstance(end, WorkerEnded)
    assert (end.ran, end.at) == (ran, NOW + 3600)
