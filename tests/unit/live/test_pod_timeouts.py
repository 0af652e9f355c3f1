"""Pods that find no place, do not start, do not stop, or whose node does not respond."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from support.builders import gang, job, node, planner, worker
from support.watched_pods import (
    BOUND,
    GPU,
    MESSAGE,
    NOW,
    UNSCHEDULABLE,
    observed,
    pod,
    running,
    site,
    stamp,
    timeouts_of,
)
from tranche.kube.api.core_types import NodeObject, Pod
from tranche.kube.api.resources import SiteObject
from tranche.live.foreign_usage import ForeignNodeUsage
from tranche.live.pods.pod_timeouts import SELECTOR_SECONDS, Timeouts
from tranche.live.pods.unreachable_nodes import UnreachableNodes
from tranche.live.settings import ControllerSettings
from tranche.model import Report, Site
from tranche.planner import (
    ChiefEnded,
    JobChanged,
    JobSubmitted,
    ParameterServerEnded,
    Planner,
    PodOverdue,
    PodStartFailed,
    ProgressReported,
    WorkerEnded,
    WorkerStarted,
    WorkerUnschedulable,
)
from tranche.planner.job_actions import close_window


def test_timeouts_report_unbound_pod_and_end_podless_window() -> None:
    p = planner("chunk-faithful", [node("n1")])
    p.handle(JobSubmitted(job("a")), NOW)
    stuck = pod("a-worker-0-1", **UNSCHEDULABLE)
    known = {"default/a-worker-0-1": stuck}
    timeouts = timeouts_of(p, known)
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
    timeouts = timeouts_of(p, {}, may_be_created=lambda key, attempt: (key, attempt) in written_open)
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
    timeouts = timeouts_of(p, known)
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
    timeouts = timeouts_of(p, known)
    states = list(p.cluster.jobs.values())
    assert timeouts.due(states, NOW, 0.0) == []
    assert timeouts.due(states, NOW + 29, 29.0) == []
    assert timeouts.due(states, NOW + 30, 30.0) == [WorkerUnschedulable("default/a", 1, MESSAGE)]


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
    timeouts = timeouts_of(p, {one.key: one for one in pods})
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
    timeouts = timeouts_of(p, {one.key: one})
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
    timeouts = timeouts_of(p, known)
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
    timeouts = timeouts_of(p, {"default/a-worker-0-1": old})
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
    timeouts = timeouts_of(p, known)
    states = list(p.cluster.jobs.values())
    timeouts.due(states, NOW, 0.0)
    assert timeouts.due(states, NOW + seconds - 1, seconds - 1) == []
    assert len(timeouts.due(states, NOW + seconds, seconds)) == 1


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_wall_clock_step_does_not_change_timeouts(step: float) -> None:
    p = planner("chunk-faithful", [node("n1")])
    p.handle(JobSubmitted(job("a")), NOW)
    timeouts = timeouts_of(p, {"default/a-worker-0-1": pod("a-worker-0-1", **UNSCHEDULABLE)})
    states = list(p.cluster.jobs.values())
    assert timeouts.due(states, NOW, 0.0) == []
    assert timeouts.due(states, NOW + step, 29.0) == []
    assert len(timeouts.due(states, NOW + step, 30.0)) == 1


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
    timeouts = timeouts_of(p, placed, UnreachableNodes(nodes, sites))
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
    return p, timeouts_of(p, pods, unreachable)


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


def test_gangs_at_a_silent_site_read_its_nodes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 5,000 nodes, a look at each of them for each gang of a large site would take longer than the Lease lasts."""
    names = [f"n{number}" for number in range(20)]
    p = planner("srsf", [node(name, gpus=1) for name in names])
    pods = dict[str, Pod]()
    for name in (f"g{number}" for number in range(10)):
        p.handle(JobSubmitted(gang(name)), NOW)
        owner = {"uid": f"uid-{name}", "kind": "TrainingJob", "apiVersion": "tranche.dev/v1alpha1", "controller": True}
        for attempt, run in p.cluster.jobs[f"default/{name}"].runs.items():
            place: dict[str, Any] = {"metadata": {"ownerReferences": [owner]}, "spec": {"nodeName": run.window.node}}
            one = pod(f"{name}-worker-{run.window.index}-{attempt}", **place, **running())
            pods[one.key] = one
    timeouts = timeouts_of(p, pods, UnreachableNodes({name: silent(NOW) for name in names}, {}))
    looked: list[Any] = []
    monkeypatch.setattr("tranche.live.pods.unreachable_nodes.site_of", lambda labels, _: looked.append(labels))
    for seconds in (61, 62):
        looked.clear()
        assert due_in(p, timeouts, seconds) == [], "all pods of each gang are cut off, perhaps together"
        assert 20 < len(looked) <= 5 * 20


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


STARTING = ControllerSettings(missing_pod_seconds=5.0, unschedulable_seconds=30.0)
"""Limits with those of starts."""


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
    timeouts = timeouts_of(p, known, settings=STARTING)
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
    timeouts = timeouts_of(p, {"default/a-worker-0-1": starting(**state)}, unreachable, STARTING)
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
    timeouts = timeouts_of(p, known, UnreachableNodes(nodes, {}), STARTING)
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
    timeouts = timeouts_of(p, known, UnreachableNodes(nodes, {}), STARTING)
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
    timeouts = timeouts_of(p, known, settings=STARTING)
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
    timeouts = timeouts_of(p, known, settings=STARTING)
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
    timeouts = timeouts_of(p, {"default/a-worker-0-1": trains}, UnreachableNodes(nodes, {}))
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
    timeouts = timeouts_of(p, {"default/a-worker-0-1": stops}, UnreachableNodes(nodes, {}))
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
