"""The controller on watch stores that are filled by hand; what it writes is read from its writer's queue."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
import pytest

from support.live_controller import (
    NOW,
    Stopwatch,
    condition_alone,
    created,
    noted,
    reported,
    resource,
    taken_over,
    written,
)
from tranche.kube.api.core_types import NodeObject, NodeStatus, NodeTaint, Pod, QuotaObject
from tranche.kube.api.resources import SiteObject, TrainingJob
from tranche.kube.client.client import ApiError
from tranche.live.controller import TIMEOUT_SHARE, Controller
from tranche.live.pods.pod_check import Question
from tranche.live.status_writer import Priority
from tranche.model import Report
from tranche.planner import Event, ParameterServerEnded, WorkerEnded, WorkerStarted, WorkerUnschedulable
from tranche.planner.job_actions import close_window
from tranche.state.node_health import Exclusion


def test_unreadable_job_gets_condition_and_keeps_its_ledger() -> None:
    progress = {"done": "0", "chunks": "1/2"}
    plan = {"term": 1, "revision": 4, "observedGeneration": 1}
    bad = resource("bad", "soon", plan=plan, progress=progress)
    controller = asyncio.run(taken_over(bad, resource("good")))
    status = condition_alone(controller, "bad")
    assert status["conditions"][0]["reason"] == "InvalidSpec"
    assert "soon" in status["conditions"][0]["message"]
    assert list(status) == ["conditions"], "applied under a field manager of its own, which removes no plan"
    assert len(written(controller, "good")["plan"]["workers"]) == 2


def test_checks_of_timeouts_take_a_fifth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = asyncio.run(taken_over(resource("a")))
    stopwatch, began = cast(Stopwatch, controller.stopwatch), []

    def check(*_: object) -> list[Event]:
        began.append(stopwatch.seconds)
        stopwatch.seconds += 0.2
        return []

    monkeypatch.setattr(controller._timeouts, "due", check)
    while stopwatch.seconds < 10.0:
        controller._look_for_timeouts()
        controller.step()
        stopwatch.seconds += 0.01
    assert len(began) * 0.2 / stopwatch.seconds == pytest.approx(TIMEOUT_SHARE, rel=0.05)


def edited(job: TrainingJob, generation: int, **spec: Any) -> TrainingJob:
    changed = TrainingJob.model_validate({**job.model_dump(by_alias=True), "spec": {**dumped(job), **spec}})
    return changed.model_copy(update={"metadata": job.metadata.model_copy(update={"generation": generation})})


def dumped(job: TrainingJob) -> dict[str, Any]:
    return job.spec.model_dump(by_alias=True, exclude_none=True)


def test_unreadable_edit_is_told_with_the_planners_own_plan() -> None:
    job = resource("a")
    controller = asyncio.run(taken_over(job))
    first = written(controller, "a")["plan"]
    stale = edited(job, 2, estimatedDuration="0000000000000000000000001s")
    reported(controller, "jobs", "default/a", stale)
    status = written(controller, "a")
    assert status["conditions"][0]["reason"] == "InvalidSpec"
    assert status["plan"]["revision"] > first["revision"], "an older plan would be rejected by the fence"
    assert len(status["plan"]["workers"]) == 2
    reported(controller, "jobs", "default/a", edited(job, 3))
    assert written(controller, "a")["conditions"][0]["reason"] == "Planned"


def test_workers_of_an_unreadable_edit_stop_until_corrected() -> None:
    """Otherwise the operator would evict none of them: the plan would be for an earlier generation for good."""
    job = resource("a")
    controller = asyncio.run(taken_over(job, policy="chunk"))
    opened = written(controller, "a")["plan"]["workers"]
    assert {one["state"] for one in opened} == {"Open"}
    for one in opened:
        controller.handle(WorkerStarted("default/a", one["attempt"], NOW))
    reported(controller, "jobs", "default/a", edited(job, 2, estimatedDuration="0000000000000000000000001s"))
    plan = written(controller, "a")["plan"]
    assert plan["observedGeneration"] == 2
    assert {one["state"] for one in plan["workers"]} == {"Closing"}
    assert "cannot be read" in plan["explanation"]
    for one in plan["workers"]:
        controller.handle(WorkerEnded("default/a", one["attempt"], "Preempted", NOW))
    assert written(controller, "a")["plan"]["workers"] == [], "the operator could create no pods for others"
    reported(controller, "jobs", "default/a", edited(job, 3))
    plan = written(controller, "a")["plan"]
    assert (plan["observedGeneration"], len(plan["workers"])) == (3, 2)


def test_soft_taint_of_an_autoscaler_readmits_no_node() -> None:
    """Cluster Autoscaler gives nodes that are idle such a taint, and removes it again, every few minutes."""
    controller = asyncio.run(taken_over(resource("a"), nodes=3, policy="chunk"))
    state, cluster = controller.planner.cluster.jobs["default/a"], controller.planner.cluster
    run = state.runs[1]
    controller.handle(WorkerStarted("default/a", 1, NOW))
    controller.handle(WorkerEnded("default/a", 1, "Failed", NOW))
    assert set(state.excluded_nodes) == {run.window.node}
    state.placement.paused_until, state.placement.failed_preemptions = NOW + 3600.0, 1
    before, node = cluster.epoch, controller.watches.nodes.store[run.window.node or ""]
    soft = NodeTaint("DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule", "1800000000")
    for taints in ([soft], []):
        spec = msgspec.structs.replace(node.spec, taints=taints)
        reported(controller, "nodes", node.metadata.name, msgspec.structs.replace(node, spec=spec))
    assert set(state.excluded_nodes) == {run.window.node}
    assert state.placement.paused_until == NOW + 3600.0
    assert cluster.epoch == before, "no decision is made about it"


def test_rejected_status_releases_capacity_for_other_jobs() -> None:
    controller = asyncio.run(taken_over(resource("big", "1m"), resource("small"), policy="chunk"))
    runs = {name: controller.planner.cluster.jobs[f"default/{name}"].runs for name in ("big", "small")}
    assert (len(runs["big"]), len(runs["small"])) == (2, 0)
    written(controller, "big")  # sent, but not stored
    error = ApiError(500, "InternalError", "etcdserver: request is too large")
    path = "/apis/tranche.dev/v1alpha1/namespaces/default/trainingjobs/big/status"
    controller._status_rejected(path, error)
    assert (len(runs["big"]), len(runs["small"])) == (0, 2)
    assert condition_alone(controller, "big")["conditions"][0]["reason"] == "StatusRejected"
    assert "too large" in controller.planner.plan_of("default/big", NOW).explanation


def test_namesake_does_not_wait_for_the_pause_after_a_rejection() -> None:
    """The pause after a rejected status lasts up to five minutes."""
    path = "/apis/tranche.dev/v1alpha1/namespaces/default/trainingjobs/big/status"

    async def scenario() -> None:
        controller = await taken_over(resource("big"))
        build = controller.writer._builds.pop(path)
        controller.writer._failed(path, build, ApiError(413, "RequestEntityTooLarge", "limit is 3145728"))
        assert path in controller.writer._failures
        old = controller.watches.jobs.store["default/big"]
        metadata = old.metadata.model_copy(update={"uid": "another"})
        noted(controller, "jobs", "default/big", None)
        reported(controller, "jobs", "default/big", old.model_copy(update={"metadata": metadata}))
        assert path not in controller.writer._failures
        assert controller.planner.cluster.jobs["default/big"].runs

    asyncio.run(scenario())


def test_rejected_status_keeps_the_windows_of_earlier_plans() -> None:
    controller = asyncio.run(taken_over(resource("big")))
    written(controller, "big")
    written(controller, "big")  # the first was stored: the pods may exist
    path = "/apis/tranche.dev/v1alpha1/namespaces/default/trainingjobs/big/status"
    controller._status_rejected(path, ApiError(403, "Forbidden", "denied the request"))
    assert [run.closing for run in controller.planner.cluster.jobs["default/big"].runs.values()] == [True, True]


def test_error_of_the_planner_is_not_told_to_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = asyncio.run(taken_over())

    def broken(events: Any, now: float) -> None:
        raise ValueError("list.remove(x): x not in list")

    monkeypatch.setattr(controller.planner, "handle_all", broken)
    with pytest.raises(ValueError, match=r"list\.remove"):
        reported(controller, "jobs", "default/a", resource("a"))
    assert not controller.writer._conditions


def test_a_site_that_cannot_be_read_does_not_stop_the_others() -> None:
    def site(name: str, bandwidth: str) -> SiteObject:
        links = [{"to": "elsewhere", "bandwidth": bandwidth}]
        spec = {"nodeSelector": {"zone": name}, "links": links}
        return SiteObject.model_validate({"metadata": {"name": name}, "spec": spec})

    controller = asyncio.run(taken_over(resource("good"), sites=(site("bad", "fast"), site("good", "1G"))))
    assert set(controller.planner.cluster.sites) == {"good"}
    assert written(controller, "good")["plan"]["workers"][0]["site"] == "good"


@pytest.mark.parametrize("bandwidth", ["0.0", "0Ki", 0])
def test_link_without_bandwidth_does_not_end_the_planner(bandwidth: str | int) -> None:
    """The CRD refuses it; one that was stored before its rules were installed would divide by zero."""
    links = [{"to": "b", "bandwidth": bandwidth}]
    a, b = (
        SiteObject.model_validate({"metadata": {"name": name}, "spec": {"nodeSelector": {"zone": zone}, **more}})
        for name, zone, more in (("a", "far", {"links": links}), ("b", "good", {}))
    )
    data = {"chunks": 2, "chunkSize": "1Gi", "site": "a"}
    controller = asyncio.run(taken_over(resource("j", data=data), sites=(a, b), policy="chunk"))
    controller.step()
    assert set(controller.planner.cluster.sites) == {"b"}
    assert written(controller, "j")["plan"]["explanation"]


def test_node_registered_again_at_once_is_not_excluded() -> None:
    """Both changes are applied after the store has the new node, so that the planner never misses one of that name."""
    controller = asyncio.run(taken_over())
    health = controller.planner.cluster.health
    health.exclusions["n1"] = Exclusion("n1", "good", NOW, NOW + 300, 2, 1, "exit code 1")
    old = controller.watches.nodes.store["n1"]
    metadata = msgspec.structs.replace(old.metadata, uid="new-machine")
    noted(controller, "nodes", "n1", None)
    noted(controller, "nodes", "n1", msgspec.structs.replace(old, metadata=metadata))
    controller.step()
    assert not health.exclusions


@pytest.mark.parametrize("labelled", ["at once", "later"])
def test_new_node_of_an_unlimited_site_ends_its_refusals(labelled: str) -> None:
    """The autoscaler had no GPUs for a while: the nodes of such a site are no nodes of the planner."""
    spec = {"nodeSelector": {"zone": "cloud"}, "tier": "Cloud", "unlimited": True}
    cloud = SiteObject.model_validate({"metadata": {"name": "cloud"}, "spec": spec})
    edge = SiteObject.model_validate({"metadata": {"name": "edge"}, "spec": {"nodeSelector": {"zone": "good"}}})
    sites = (cloud, edge)
    controller = asyncio.run(taken_over(resource("busy"), resource("j"), sites=sites, policy="srsf", gpus=1))
    runs = [(state, run) for state in controller.planner.cluster.jobs.values() for run in state.runs.values()]
    state, attempt = next((state, run.window.attempt) for state, run in runs if run.home.site == "cloud")
    controller.handle(WorkerUnschedulable(state.job.key, attempt, "0/1 nodes"))
    assert set(state.placement.refusals) == {"cloud"}
    node = controller.watches.nodes.store["n1"]
    bare, of_cloud = (
        msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, name="c1", labels=labels))
        for labels in ({}, {"zone": "cloud"})
    )
    for shown in (bare, of_cloud) if labelled == "later" else (of_cloud,):
        reported(controller, "nodes", "c1", shown)
    assert not state.placement.refusals
    assert set(controller.planner.cluster.nodes) == {"n1"}


def test_nodes_that_change_together_are_decided_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision may examine all jobs, so that one for each of 1,000 nodes would cost the leader its Lease."""
    controller = asyncio.run(taken_over(resource("j"), policy="chunk", nodes=9))
    decided: list[float] = []
    decide = controller.planner.handle_all

    def handle_all(events: Iterable[Event], now: float) -> Any:
        decided.append(now)
        return decide(events, now)

    monkeypatch.setattr(controller.planner, "handle_all", handle_all)
    unready = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    for name, node in list(controller.watches.nodes.store.items()):
        status = msgspec.convert({**msgspec.to_builtins(node)["status"], **unready}, NodeStatus)
        noted(controller, "nodes", name, msgspec.structs.replace(node, status=status))
    controller.step()
    assert len(decided) == 1
    assert not any(state.node.ready for state in controller.planner.cluster.nodes.values())
    noted(controller, "nodes", "n1", controller.watches.nodes.store["n1"])
    controller.step()
    assert len(decided) == 1, "nothing that the planner reads has changed"


def test_node_with_absurd_gpu_count_is_ignored() -> None:
    def node(name: str, gpus: str) -> NodeObject:
        allocatable = {"cpu": "8", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": gpus}
        conditions = [{"type": "Ready", "status": "True"}]
        status = {"allocatable": allocatable, "conditions": conditions}
        return msgspec.convert({"metadata": {"name": name, "labels": {"zone": "good"}}, "status": status}, NodeObject)

    controller = asyncio.run(taken_over())
    reported(controller, "nodes", "n0", node("n0", "1E"))
    reported(controller, "nodes", "n2", node("n2", "16384"))
    spec = {"nodeSelector": {"zone": "good"}}
    site = SiteObject.model_validate({"metadata": {"name": "good"}, "spec": spec})
    reported(controller, "sites", "good", site)  # every node is looked at again
    assert {name: state.node.site for name, state in controller.planner.cluster.nodes.items()} == {
        "n1": "good",
        "n2": "good",
    }


def test_window_closed_before_its_plan_was_written_ends_at_once() -> None:
    controller = asyncio.run(taken_over(resource("long")))
    state = controller.planner.cluster.jobs["default/long"]
    first, second = state.runs.values()
    written(controller, "long")  # both are in the written plan now
    close_window(controller.planner.context, state, first, "test")
    controller.step()
    assert first.window.attempt in state.runs  # its pod may be on its way: it is waited for

    controller._unpublished.add(("default/long", second.window.attempt))
    close_window(controller.planner.context, state, second, "test")
    controller._next_timeouts = 0.0
    controller.step()
    assert second.window.attempt not in state.runs
    assert ("default/long", second.window.attempt) not in controller._unpublished


def test_beneficiary_does_not_wait_for_unwritten_closed_windows() -> None:
    controller = asyncio.run(taken_over(policy="chunk"))
    reported(controller, "jobs", "default/long", resource("long"))
    reported(controller, "jobs", "default/short", resource("short", "1m"))
    controller.step()
    runs = {name: controller.planner.cluster.jobs[f"default/{name}"].runs for name in ("long", "short")}
    assert not runs["long"]
    assert [run.handover for run in runs["short"].values()] == [True, True]
    assert controller._unpublished == {("default/short", attempt) for attempt in runs["short"]}


def test_controller_checks_unseen_closing_pods_after_half_second() -> None:
    controller = asyncio.run(taken_over(policy="chunk"))
    reported(controller, "jobs", "default/long", resource("long"))
    written(controller, "long")  # from now on its pods may be on their way
    controller.stopwatch = lambda: 100.0
    reported(controller, "jobs", "default/short", resource("short", "1m"))
    runs = controller.planner.cluster.jobs["default/long"].runs
    assert [run.closing for run in runs.values()] == [True, True]
    assert controller._next_timeouts == 100.5
    controller.stopwatch = lambda: 100.49
    controller.step()
    assert runs
    controller.stopwatch = lambda: 100.51
    controller.step()
    questions = controller._checks._asked
    names = {f"long-worker-{run.window.index}-{run.window.attempt}" for run in runs.values()}
    assert questions == {Question("default", name, "long") for name in names}
    there_are_none = dict.fromkeys(questions, controller._checks._clock())
    controller._checks._confirmed.update(there_are_none)
    controller._look_for_timeouts()
    controller.step()
    assert not runs


def test_window_whose_written_plan_is_open_is_not_missing() -> None:
    controller = asyncio.run(taken_over(policy="chunk"))
    reported(controller, "jobs", "default/long", resource("long"))

    def write() -> None:
        reported(controller, "jobs", "default/long", resource("long", plan=written(controller, "long")["plan"]))

    write()
    controller.stopwatch = lambda: 100.0
    reported(controller, "jobs", "default/short", resource("short", "1m"))
    runs = controller.planner.cluster.jobs["default/long"].runs
    assert [run.closing for run in runs.values()] == [True, True]
    controller.stopwatch = lambda: 130.0
    controller.step()
    assert not controller._checks._asked, "the closing plan is not written yet"
    write()
    controller.step()
    controller.stopwatch = lambda: 130.51
    controller.step()
    assert len(controller._checks._asked) == 2


def test_windows_are_unpublished_until_their_plan_is_written() -> None:
    controller = asyncio.run(taken_over(resource("long")))
    opened = {("default/long", attempt) for attempt in controller.planner.cluster.jobs["default/long"].runs}
    assert controller._unpublished == opened
    written(controller, "long")
    assert controller._unpublished == set()


def quota(hard: int, used: int, name: str = "gpus") -> QuotaObject:
    limits = {"hard": {"requests.nvidia.com/gpu": str(hard)}, "used": {"requests.nvidia.com/gpu": str(used)}}
    metadata = {"name": name, "namespace": "default"}
    return msgspec.convert({"metadata": metadata, "spec": {"hard": limits["hard"]}, "status": limits}, QuotaObject)


def worker_pod(attempt: int, phase: str = "Pending", owner: str = "long") -> Pod:
    labels = {"job": "long", "role": "worker", "index": "0", "attempt": str(attempt)}
    metadata = {"name": f"long-worker-0-{attempt}", "namespace": "default", "uid": f"u{attempt}"}
    metadata["labels"] = {f"tranche.dev/{key}": value for key, value in labels.items()}  # type: ignore[assignment]
    reference = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "uid": owner, "controller": True}
    metadata["ownerReferences"] = [reference]  # type: ignore[assignment]
    spec = {"priority": -9, "containers": [{"name": "t", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": phase}}, Pod)


@pytest.mark.parametrize(("seconds", "silent"), [(29.0, False), (30.0, True)])
def test_new_leader_preempts_nothing_without_kube_scheduler(seconds: float, *, silent: bool) -> None:
    """It has not seen how long the pods wait."""
    controller = asyncio.run(taken_over(resource("long"), pods=(created(worker_pod(1), seconds),)))
    assert controller.planner.cluster.scheduler_silent is silent
    state = controller.learned_annotations()["tranche.dev/kube-scheduler"]
    assert state.startswith("Silent since" if silent else "Responding")


def foreign(controller: Controller) -> int:
    return controller.planner.cluster.quotas.by_namespace["default"]["gpus"].limits[0].foreign


def test_a_quota_that_is_there_already_holds_for_the_first_plan() -> None:
    controller = asyncio.run(taken_over(resource("long"), quotas=(quota(1, 0),)))
    assert len(written(controller, "long")["plan"]["workers"]) == 1


def test_quota_counts_foreign_pods_and_own_pods_only_once() -> None:
    controller = asyncio.run(taken_over(resource("long"), quotas=(quota(1, 0),)))
    assert foreign(controller) == 0
    reported(controller, "quotas", "default/gpus", quota(1, 1))
    assert foreign(controller) == 1  # ours, but its pod has not been seen
    reported(controller, "pods", "default/long-worker-0-1", worker_pod(1))
    assert foreign(controller) == 0
    reported(controller, "quotas", "default/gpus", quota(3, 3))
    assert foreign(controller) == 2
    assert len(controller.planner.cluster.jobs["default/long"].runs) == 1
    reported(controller, "quotas", "default/gpus", quota(3, 2))
    assert len(controller.planner.cluster.jobs["default/long"].runs) == 2


def test_ended_pod_holds_quota_until_quota_status_drops_it() -> None:
    controller = asyncio.run(taken_over(resource("long"), quotas=(quota(1, 0),)))
    reported(controller, "pods", "default/long-worker-0-1", worker_pod(1))
    reported(controller, "quotas", "default/gpus", quota(1, 1))
    reported(controller, "pods", "default/long-worker-0-1", worker_pod(1, "Succeeded"))
    state = controller.planner.cluster.jobs["default/long"]
    assert (len(state.done), len(state.runs)) == (1, 0)
    reported(controller, "quotas", "default/gpus", quota(1, 0))
    assert len(state.runs) == 1


def test_end_of_deleted_namesakes_pod_is_ignored() -> None:
    controller = asyncio.run(taken_over(resource("long")))
    state = controller.planner.cluster.jobs["default/long"]
    reported(controller, "pods", "default/long-worker-0-1", worker_pod(1, "Running", owner="deleted"))
    reported(controller, "pods", "default/long-worker-0-1", worker_pod(1, "Succeeded", owner="deleted"))
    reported(controller, "pods", "default/long-worker-0-1", None)
    assert (state.done, len(state.runs)) == (set(), 2)
    reported(controller, "pods", "default/long-worker-0-1", worker_pod(1, "Succeeded"))
    assert (len(state.done), len(state.runs)) == (1, 1)


def test_removed_quota_no_longer_limits_jobs() -> None:
    controller = asyncio.run(taken_over(resource("long"), quotas=(quota(0, 0),)))
    assert controller.planner.cluster.jobs["default/long"].runs == {}
    reported(controller, "quotas", "default/gpus", None)
    assert len(controller.planner.cluster.jobs["default/long"].runs) == 2


def test_a_quota_that_cannot_be_read_does_not_stop_planning() -> None:
    bad = msgspec.convert(
        {"metadata": {"name": "bad", "namespace": "default"}, "spec": {"hard": {"pods": "many"}}}, QuotaObject
    )
    controller = asyncio.run(taken_over(resource("long"), quotas=(bad,)))
    assert len(controller.planner.cluster.jobs["default/long"].runs) == 2


def test_restarted_planner_restores_sizes_and_learnt_factors() -> None:
    progress = {"done": "0-1", "attainedSeconds": 5000.0}
    before = resource("before", phase="Succeeded", progress=progress)
    unsized = resource("unsized", None, progress={"done": "", "learnt": 2.0})
    fresh = resource("fresh", None)
    planner = asyncio.run(taken_over(before, unsized, fresh, policy="chunk")).planner
    states = planner.cluster.jobs
    assert states["default/fresh"].nominal_batch_seconds == pytest.approx(5000.0 / 2)
    declared = planner.cluster.declared_batch_seconds(states["default/unsized"], "")
    assert states["default/unsized"].nominal_batch_seconds == pytest.approx(2.0 * declared)


def test_reports_are_counted_per_step_and_written_with_the_plan() -> None:
    controller = asyncio.run(taken_over(resource("long", data={"chunks": 2, "batchesPerChunk": 100})))
    state = controller.planner.cluster.jobs["default/long"]
    attempt = next(iter(state.runs))
    chunk = state.runs[attempt].window.chunks[0]
    assert controller.reports.leading
    for applied in (10, 30, 20):  # the last one counts: each contains the whole progress
        assert controller.reports.take(Report("default/long", attempt, {chunk: applied}, {chunk: applied / 2}))
    assert not controller.reports.take(Report("default/long", 99))
    assert controller.reports.take(Report("default/other", attempt)), "a job that is over: nothing to count"
    controller.step()
    progress = written(controller, "long")["progress"]
    assert progress["running"] == [{"chunk": chunk, "batches": 10.0}]
    assert progress["batches"] == 20.0
    assert controller.reports.drain() == []


@pytest.mark.parametrize(("stops", "attempt"), [(True, 2), (False, 1)])
def test_namesake_numbers_its_pods_after_those_that_stop(stops: bool, attempt: int) -> None:
    """It does not wait until the pods of the deleted job have stopped, which may take their whole grace period."""
    controller = asyncio.run(taken_over(resource("long"), gpus=4))
    old = controller.watches.jobs.store["default/long"]
    status = {"status": written(controller, "long")}
    reported(controller, "jobs", "default/long", TrainingJob.model_validate(old.model_dump(by_alias=True) | status))
    reported(controller, "pods", "default/long-worker-0-1", worker_pod(1))
    reported(controller, "jobs", "default/long", None)
    if not stops:
        reported(controller, "pods", "default/long-worker-0-1", None)
    metadata = old.metadata.model_copy(update={"uid": "another"})
    reported(controller, "jobs", "default/long", old.model_copy(update={"metadata": metadata}))
    assert min(controller.planner.cluster.jobs["default/long"].runs) == attempt


def test_report_of_a_deleted_job_does_not_count_for_namesake() -> None:
    controller = asyncio.run(taken_over(resource("long", data={"chunks": 2, "batchesPerChunk": 100})))
    attempt, run = next(iter(controller.planner.cluster.jobs["default/long"].runs.items()))
    report = Report("default/long", attempt, {}, {run.window.chunks[0]: 30.0}, job_uid="long")
    assert controller.reports.take(report)
    old = controller.watches.jobs.store["default/long"]
    metadata = old.metadata.model_copy(update={"uid": "another"})
    noted(controller, "jobs", "default/long", None)
    reported(controller, "jobs", "default/long", old.model_copy(update={"metadata": metadata}))
    state = controller.planner.cluster.jobs["default/long"]
    assert attempt in state.runs, "the attempts of both jobs begin at 1"
    assert controller.reports.take(report), "the watches of the report API may lag behind"
    controller.step()
    assert state.partial == {}
    assert controller.reports.take(replace(report, job_uid="another"))
    controller.step()
    assert state.partial == {run.window.chunks[0]: 30.0}


def test_a_flood_of_reports_is_counted_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tranche.live.planner_inbox.AT_ONCE", 1)
    controller = asyncio.run(taken_over(resource("long", data={"chunks": 2, "batchesPerChunk": 100})))
    state = controller.planner.cluster.jobs["default/long"]
    for attempt, run in state.runs.items():
        assert controller.reports.take(Report("default/long", attempt, {}, {run.window.chunks[0]: 30}))
    controller._wake.clear()
    controller.step()
    assert len(state.partial) == 1
    assert controller._wake.is_set(), "the next turn comes at once"
    controller._wake.clear()
    controller.step()
    assert len(state.partial) == 2
    assert not controller._wake.is_set()


def test_progress_without_reports_is_marked_as_estimated() -> None:
    controller = asyncio.run(taken_over(resource("long", data={"chunks": 2, "batchesPerChunk": 100})))
    for attempt, run in list(controller.planner.cluster.jobs["default/long"].runs.items()):
        run.opened = NOW - 400.0
        controller.handle(WorkerStarted("default/long", attempt, NOW - 360.0))
    controller._publish("default/long")
    progress = written(controller, "long")["progress"]
    assert (progress["batches"], progress["estimated"]) == (pytest.approx(20.0), True)
    progress = controller.reports.training_progress("default/long")
    assert progress is not None
    assert (progress.estimated, progress.total_batches) == (True, 200)
    assert controller.reports.training_progress("default/other") is None


def test_restarted_scheduler_restores_the_written_checkpoint() -> None:
    server = {"index": 0, "attempt": 3, "site": "cluster", "node": "n1"}
    plan = {"term": 1, "revision": 4, "observedGeneration": 0, "attempts": 3, "parameterServers": [server]}
    progress = {
        "done": "0",
        "checkpoint": {"attempt": 3, "done": "", "running": [{"chunk": 0, "batches": 60}]},
    }
    template = {"spec": {"containers": [{"name": "ps"}]}}
    data = {"chunks": 2, "batchesPerChunk": 100}
    spec: dict[str, Any] = {"data": data, "parameterServers": {"replicas": 1, "template": template}}
    controller = asyncio.run(taken_over(resource("long", plan=plan, progress=progress, **spec)))
    state = controller.planner.cluster.jobs["default/long"]
    assert state.done == {0}
    controller.handle(ParameterServerEnded("default/long", 0, 3))
    assert (state.done, state.partial) == (set(), {0: 60})
    assert state.lost_batches == 40


def failed_job(name: str, plan: dict[str, Any], **more: Any) -> TrainingJob:
    """A job that the operator has ended after its deadline, with the plan of the time before."""
    failed = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "not done 9 s after"}
    since = datetime.fromtimestamp(NOW, UTC).isoformat()
    return resource(name, phase="Failed", plan=plan, conditions=[{**failed, "lastTransitionTime": since}], **more)


def check_ends_are_counted(controller: Controller, name: str) -> None:
    """End the two closing windows of a failed job, and check its last status."""
    status = written(controller, name)
    assert [one["state"] for one in status["plan"]["workers"]] == ["Closing", "Closing"]
    for attempt in (1, 2):
        controller.handle(WorkerEnded(f"default/{name}", attempt, "Preempted", NOW + 9.0, None, 143))
    status = written(controller, name)
    assert not status["plan"]["workers"]
    assert "estimatedCompletion" not in status["plan"]
    assert status["plan"]["explanation"].startswith("failed: not done 9 s after; ")
    reported(controller, "jobs", f"default/{name}", failed_job(name, status["plan"]))
    assert f"default/{name}" not in controller.planner.cluster.jobs


def test_plan_of_job_after_deadline_has_no_window_in_the_end() -> None:
    controller = asyncio.run(taken_over(resource("late")))
    plan = written(controller, "late")["plan"]
    assert [one["state"] for one in plan["workers"]] == ["Open", "Open"]
    reported(controller, "jobs", "default/late", failed_job("late", plan))
    check_ends_are_counted(controller, "late")


def test_failed_job_has_no_window_after_a_takeover() -> None:
    """The former leader ended after the operator had written the phase, and before the pods of the job ended."""
    plan = written(asyncio.run(taken_over(resource("late"))), "late")["plan"]
    controller = asyncio.run(taken_over(failed_job("late", plan), resource("next"), term=3))
    assert len(written(controller, "next")["plan"]["workers"]) == 2, "it uses the GPUs when the pods have stopped"
    check_ends_are_counted(controller, "late")


@pytest.mark.parametrize("takes_over", [False, True])
def test_pods_that_a_failed_job_keeps_are_counted(takes_over: bool) -> None:
    first = resource("late", runPolicy={"cleanPodPolicy": "None"})
    controller = asyncio.run(taken_over(first, resource("next")))
    plan = written(controller, "late")["plan"]
    failed = failed_job("late", plan, runPolicy={"cleanPodPolicy": "None"})
    if takes_over:
        controller = asyncio.run(taken_over(failed, resource("next"), term=3))
    else:
        reported(controller, "jobs", "default/late", failed)
    assert not written(controller, "next")["plan"]["workers"], "the pods are not stopped"
    check_ends_are_counted(controller, "late")
    assert len(written(controller, "next")["plan"]["workers"]) == 2


@pytest.mark.parametrize(
    ("age", "priority"), [(None, Priority.LOW), (1, Priority.LOW), (0, Priority.REPORT)], ids=["new", "old", "own"]
)
def test_only_a_plan_of_this_term_may_wait_for_starts(
    age: int | None, priority: Priority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator waits for the first plan, and the first one of a term fences earlier leaders."""
    controller = asyncio.run(taken_over(resource("a")))
    plan = {"term": controller.term - age, "revision": 1, "observedGeneration": 1} if age is not None else None
    job = resource("a", plan=plan) if plan else resource("a")
    controller.watches.jobs.store["default/a"] = job
    given: list[Priority] = []
    monkeypatch.setattr(controller.writer, "put", lambda path, build, priority: given.append(priority))
    controller._publish("default/a", Priority.REPORT)
    assert given == [priority]
