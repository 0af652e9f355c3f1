"""Metrics of its jobs that a leading scheduler serves to Prometheus, from the objects of the watches."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from prometheus_client import generate_latest

from support.live_controller import NOW, reported, resource, taken_over, written
from tranche.kube.api.core_types import Pod
from tranche.kube.api.resources import SiteObject, TrainingJob
from tranche.kube.convert.pod_decoder import decode_pod
from tranche.kube.convert.site_membership import site_of
from tranche.live.controller import Controller
from tranche.live.informers import Informers
from tranche.live.planner_config import PlannerConfig
from tranche.live.planner_metrics import EMPTY_NAMESPACE_SECONDS, REASONS, PlannerMetrics
from tranche.metrics.job_counts import JobCounts
from tranche.metrics.scheduler import Metrics
from tranche.model import Link
from tranche.planner import KubeSchedulerChanged, PodStartFailed, WorkerEnded, WorkerStarted
from tranche.planner.job_actions import close_window
from tranche.state.node_health import Exclusion
from tranche.state.window import TrackedWindow


def after(seconds: float) -> str:
    return datetime.fromtimestamp(NOW + seconds, UTC).isoformat()


def plan(completion: float) -> dict[str, Any]:
    return {"term": 1, "revision": 1, "observedGeneration": 1, "estimatedCompletion": after(completion)}


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def change(controller: Controller, before: TrainingJob, **status: Any) -> TrainingJob:
    """Report the job with another status to the controller, as a watch does; return it."""
    new = before.model_copy(update={"status": resource(before.metadata.name, **status).status})
    reported(controller, "jobs", before.key, new)
    return new


def started() -> tuple[Controller, TrainingJob]:
    job = resource("cats")
    return asyncio.run(taken_over(job)), job


def test_job_metrics_measure_queueing_and_completion_time() -> None:
    controller, job = started()
    job = change(controller, job, phase="Running", startTime=after(5), plan=plan(90))
    assert value(controller.metrics, "tranche_job_queueing_seconds_sum", namespace="default") == 5
    assert value(controller.metrics, "tranche_job_completion_seconds_count", namespace="default") == 0
    change(controller, job, phase="Succeeded", startTime=after(5), completionTime=after(100), plan=plan(90))
    assert value(controller.metrics, "tranche_job_queueing_seconds_count", namespace="default") == 1
    assert value(controller.metrics, "tranche_job_completion_seconds_sum", namespace="default") == 100


def test_estimate_error_is_measured_against_the_first_plan() -> None:
    controller, job = started()
    job = change(controller, job, phase="Running", plan=plan(90))
    job = change(controller, job, phase="Running", plan=plan(200))
    change(controller, job, phase="Succeeded", completionTime=after(100), plan=plan(200))
    metrics = controller.metrics
    assert value(metrics, "tranche_job_planned_completion_seconds_sum", namespace="default") == 90
    assert value(metrics, "tranche_job_estimate_error_seconds_sum", direction="late") == 10
    assert value(metrics, "tranche_job_estimate_error_seconds_count", direction="early") == 0


def test_completion_is_placed_in_the_interval_of_the_first_plan() -> None:
    controller, job = started()
    for earliest, latest in ((50, 99.5), (5, 10)):  # the second one is not the first plan's
        interval = {"earliest": after(earliest), "latest": after(latest)}
        job = change(controller, job, phase="Running", plan={**plan(90), "completionInterval": interval})
    change(controller, job, phase="Succeeded", completionTime=after(100))
    places = ("inside", "early", "late")
    counts = [value(controller.metrics, "tranche_job_interval_outcomes_total", place=place) for place in places]
    assert counts == [1, 0, 0]  # half a second late is a rounding to whole seconds


def test_a_success_is_counted_once_and_a_failure_never() -> None:
    controller, job = started()
    job = change(controller, job, phase="Succeeded", completionTime=after(100))
    change(controller, job, phase="Succeeded", completionTime=after(100))
    other = resource("dogs")
    reported(controller, "jobs", other.key, other)
    change(controller, other, phase="Failed", completionTime=after(100))
    assert value(controller.metrics, "tranche_job_completion_seconds_count", namespace="default") == 1


def test_batches_that_are_lost_are_counted_as_the_ledgers_rise() -> None:
    controller, job = started()
    name = "tranche_namespace_lost_gpu_seconds_total"
    job = change(controller, job)
    assert value(controller.metrics, name, namespace="default") == 0
    job = change(controller, job, progress={"lostBatches": 7.5, "batches": 2.5, "attainedSeconds": 20.0})
    assert value(controller.metrics, name, namespace="default") == 15
    change(controller, job, progress={"lostBatches": 9.0, "batches": 3.0, "attainedSeconds": 48.0})
    assert value(controller.metrics, "tranche_lost_batches_total") == 9
    assert value(controller.metrics, name, namespace="default") == 15 + 1.5 * 4


SITES = (
    SiteObject.model_validate({"metadata": {"name": "edge"}, "spec": {"nodeSelector": {"zone": "good"}}}),
    SiteObject.model_validate(
        {"metadata": {"name": "cloud"}, "spec": {"nodeSelector": {"zone": "far"}, "tier": "Cloud"}}
    ),
)


def test_gpu_time_is_counted_by_site_when_a_worker_has_ended() -> None:
    before = {"sites": [{"site": "edge", "gpuSeconds": 5000, "copiedBytes": 70}]}  # of an earlier leader
    controller = asyncio.run(taken_over(resource("cats", progress=before), sites=SITES))
    metrics, name = controller.metrics, "tranche_site_gpu_seconds_total"
    assert value(metrics, name, site="edge", tier="Edge") == 0
    assert value(metrics, name, site="cloud", tier="Cloud") == 0
    attempt = min(controller.planner.cluster.jobs["default/cats"].runs)
    change(controller, resource("cats", progress=before), progress=before)
    assert value(metrics, "tranche_namespace_gpu_seconds_total", namespace="default") == 0
    controller.handle(WorkerStarted("default/cats", attempt, NOW + 10))
    controller.handle(WorkerEnded("default/cats", attempt, "Succeeded", NOW + 100))
    assert value(metrics, name, site="edge", tier="Edge") == 100
    assert value(metrics, "tranche_namespace_gpu_seconds_total", namespace="default") == 100
    assert value(metrics, "tranche_namespace_trained_gpu_seconds_total", namespace="default") == 100
    assert value(metrics, "tranche_site_copied_bytes_total", site="edge", tier="Edge") == 0
    progress = written(controller, "cats")["progress"]
    assert [(one["site"], one["gpuSeconds"], one["copiedBytes"]) for one in progress["sites"]] == [("edge", 5100, 70)]


def test_a_ledger_that_was_there_before_us_is_not_counted_again() -> None:
    job = resource("cats", progress={"lostBatches": 7.5})
    controller = asyncio.run(taken_over(job))
    change(controller, job, progress={"lostBatches": 8.5})
    assert value(controller.metrics, "tranche_lost_batches_total") == 1


def test_waiting_jobs_are_counted_by_reason_of_last_written_plan() -> None:
    controller, job = started()
    crowd = resource("crowd", data={"chunks": 2})
    reported(controller, "jobs", crowd.key, crowd)
    assert waiting(controller) == {"Unknown": 2}, "nothing is written yet"
    written(controller, "cats")
    written(controller, "crowd")
    assert waiting(controller) == {"Opened": 1, "Room": 1}
    change(controller, job, phase="Running")
    assert waiting(controller) == {"Room": 1}


def waiting(controller: Controller) -> dict[str, float]:
    """By reason, of the jobs that are in the store."""
    controller.metrics.set_jobs(JobCounts(controller.watches.jobs.store.values()))
    counts = {reason: value(controller.metrics, "tranche_jobs_waiting", reason=reason) for reason in REASONS}
    return {reason: count for reason, count in counts.items() if count}


def test_lost_running_worker_counts_as_preempted_with_run_time() -> None:
    controller, job = started()
    attempts = [window["attempt"] for window in written(controller, "cats")["plan"]["workers"]]
    controller.handle(WorkerStarted(job.key, attempts[0], NOW))
    controller.handle(WorkerEnded(job.key, attempts[0], "Lost", NOW + 30))
    controller.handle(WorkerEnded(job.key, attempts[1], "Lost", NOW + 30))
    assert value(controller.metrics, "tranche_preemptions_total", reason="lost") == 1, "the other never ran"
    assert value(controller.metrics, "tranche_preempted_worker_seconds_sum") == 30
    assert value(controller.metrics, "tranche_window_start_seconds_count", handover="no") == 1


def test_worker_stopped_by_the_plan_counts_as_planned() -> None:
    controller, job = started()
    attempt = min(controller.planner.cluster.jobs[job.key].runs)
    controller.handle(WorkerStarted(job.key, attempt, NOW))
    state = controller.planner.cluster.jobs[job.key]
    close_window(controller.planner.context, state, run_of(controller, attempt), "test")
    controller.handle(WorkerEnded(job.key, attempt, "Preempted", NOW + 30))
    assert value(controller.metrics, "tranche_preemptions_total", reason="planned") == 1
    assert value(controller.metrics, "tranche_preemptions_total", reason="preempted") == 0


def run_of(controller: Controller, attempt: int) -> TrackedWindow:
    return controller.planner.cluster.jobs["default/cats"].runs[attempt]


def test_planned_starts_are_cumulative_and_oldest_wait_has_age() -> None:
    now = datetime.fromtimestamp(NOW, UTC)
    metrics = Metrics(lambda: now + timedelta(seconds=50))
    starts: list[dict[str, Any]] = [
        {"plan": {**plan(99), "estimatedStart": after(start)}} for start in (60, 400, 10**6)
    ]
    metrics.set_jobs(JobCounts(resource(f"j{i}", **status) for i, status in enumerate(starts)))
    found = [value(metrics, "tranche_jobs_planned_start", within=within) for within in ("60", "900", "86400", "+Inf")]
    assert found == [1, 2, 2, 3]
    assert value(metrics, "tranche_jobs_oldest_waiting_seconds") == 50


def test_uploads_are_counted_per_link_with_its_busy_time() -> None:
    metrics = Metrics()
    metrics.count_uploads("edge-a", "cloud", 3, 3e6)
    assert value(metrics, "tranche_uploads_total", source="edge-a", target="cloud") == 3
    assert value(metrics, "tranche_upload_bytes_total", source="edge-a", target="cloud") == 3e6
    links = [{"to": "cloud", "bandwidth": "8M"}]
    site = {"metadata": {"name": "edge-a"}, "spec": {"nodeSelector": {"zone": "a"}, "links": links}}
    controller = asyncio.run(taken_over(sites=(SiteObject.model_validate(site),)))
    assert value(controller.metrics, "tranche_uploads_total", source="edge-a", target="cloud") == 0
    controller.planner.cluster.uploads.begin(("edge-a", "cloud"), Link(8e6), 12e6, NOW)
    assert value(controller.metrics, "tranche_link_busy_seconds", source="edge-a", target="cloud") == 12


def test_sources_that_jobs_invent_have_one_series() -> None:
    site = {"metadata": {"name": "cloud"}, "spec": {"nodeSelector": {"zone": "c"}}}
    controller = asyncio.run(taken_over(sites=(SiteObject.model_validate(site),)))
    for number, seconds in enumerate((5, 7, 6)):
        controller.planner.cluster.uploads.begin((f"invented-{number}", "cloud"), Link(8e6), seconds * 1e6, NOW)
    assert value(controller.metrics, "tranche_link_busy_seconds", source="", target="cloud") == 7
    assert "invented" not in generate_latest(controller.metrics.registry).decode()


def test_refused_and_stopped_pods_are_counted_by_reason() -> None:
    controller, _ = started()
    controller.handle(WorkerEnded("default/cats", 1, "Refused", NOW, reason="OutOfcpu"))
    controller.handle(PodStartFailed("default/cats", 2, "ErrImagePull", kind="ImagePull"))
    name = "tranche_pods_not_started_total"
    assert value(controller.metrics, name, reason="refused") == 1
    assert value(controller.metrics, name, reason="ImagePull") == 1
    assert value(controller.metrics, name, reason="Creation") == 0


def worker_pod(index: int, attempt: int, **status: Any) -> Pod:
    """Return the pod of a worker of the job cats on node n1."""
    values = {"job": "cats", "role": "worker", "index": str(index), "attempt": str(attempt)}
    labels = {f"tranche.dev/{key}": text for key, text in values.items()}
    owner = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "uid": "cats", "controller": True}
    name = f"cats-worker-{index}-{attempt}"
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": labels, "ownerReferences": [owner]}
    spec = {"nodeName": "n1", "containers": [{"name": "t", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]}
    return decode_pod(msgspec.json.encode({"metadata": metadata, "spec": spec, "status": status}))


def running(index: int, attempt: int, since: float) -> Pod:
    states = [{"name": "t", "state": {"running": {"startedAt": after(since)}}}]
    return worker_pod(index, attempt, phase="Running", containerStatuses=states)


def successor(first: Controller, at: float) -> Controller:
    """Return a controller that takes over from the first one, from what it has written and what it has seen."""
    watches = Informers(None)  # type: ignore[arg-type]
    for kind, reflector in first.watches:
        watches.by_kind(kind).store.update(reflector.store)
    watches.jobs.store["default/cats"] = resource("cats", **written(first, "cats"))
    planner = PlannerConfig("chunk").planner(validate=True)
    found = Controller(None, watches, planner, Metrics(), clock=lambda: at, stopwatch=lambda: 0.0)  # type: ignore[arg-type]
    found.term = 3
    found.restore()
    return found


def test_start_that_the_last_leader_counted_is_not_counted() -> None:
    first = asyncio.run(taken_over(resource("cats"), policy="chunk"))
    reported(first, "pods", "default/cats-worker-0-1", running(0, 1, since=0))
    name = "tranche_window_start_seconds"
    assert value(first.metrics, f"{name}_count", handover="no") == 1
    second = successor(first, NOW + 20)
    assert value(second.metrics, f"{name}_count", handover="no") == 0
    for pod in (worker_pod(1, 2, phase="Pending"), running(1, 2, since=18)):
        reported(second, "pods", pod.key, pod)
    assert value(second.metrics, f"{name}_count", handover="no") == 1
    assert value(second.metrics, f"{name}_sum", handover="no") == 20, "the window opened under the last leader"


def test_kept_refused_pod_is_not_counted_at_a_takeover() -> None:
    first = asyncio.run(taken_over(resource("cats"), policy="chunk"))
    refused = worker_pod(0, 1, phase="Failed", reason="UnexpectedAdmissionError")
    reported(first, "pods", refused.key, refused)
    name = "tranche_pods_not_started_total"
    assert value(first.metrics, name, reason="refused") == 1
    assert value(successor(first, NOW + 20).metrics, name, reason="refused") == 0


def test_pod_refused_while_no_planner_led_is_counted() -> None:
    first = asyncio.run(taken_over(resource("cats"), policy="chunk"))
    written(first, "cats")
    refused = worker_pod(0, 1, phase="Failed", reason="UnexpectedAdmissionError")
    first.watches.pods.store[refused.key] = refused
    assert value(successor(first, NOW + 20).metrics, "tranche_pods_not_started_total", reason="refused") == 1


def test_excluded_nodes_are_counted_by_site() -> None:
    controller, _ = started()
    cluster = controller.planner.cluster
    (site,) = {node.node.site for node in cluster.nodes.values()}
    health, name = cluster.health, next(iter(cluster.nodes))
    health.exclusions[name] = Exclusion(name, site, NOW, NOW + 300, 2, 1, "exit code 1")
    assert value(controller.metrics, "tranche_site_excluded_nodes", site=site) == 1


def test_series_of_a_namespace_end_an_hour_after_its_last_job() -> None:
    controller, job = started()
    now = [NOW]
    measured = PlannerMetrics(controller.metrics, controller.planner, lambda: now[0])
    other = job.model_copy(update={"metadata": job.metadata.model_copy(update={"namespace": "vision"})})
    name = "tranche_job_completion_seconds_count"
    measured.changed(job.key, None, job)
    measured.changed(job.key, job, None)
    assert value(controller.metrics, name, namespace="default") == 0
    now[0] += EMPTY_NAMESPACE_SECONDS
    measured.changed(other.key, None, other)
    measured.changed(other.key, other, None)
    assert value(controller.metrics, name, namespace="default") is None
    assert value(controller.metrics, name, namespace="vision") == 0
    lost = "tranche_namespace_lost_gpu_seconds_total"
    assert value(controller.metrics, lost, namespace="default") is None
    assert value(controller.metrics, lost, namespace="vision") == 0


def test_series_of_a_namespace_continue_with_its_next_job() -> None:
    controller, job = started()
    now = [NOW]
    measured = PlannerMetrics(controller.metrics, controller.planner, lambda: now[0])
    for version in (job, None, job):
        measured.changed(job.key, None if version else job, version)
    now[0] += EMPTY_NAMESPACE_SECONDS
    other = job.model_copy(update={"metadata": job.metadata.model_copy(update={"namespace": "vision"})})
    measured.changed(other.key, None, other)
    measured.changed(other.key, other, None)
    assert value(controller.metrics, "tranche_job_completion_seconds_count", namespace="default") == 0


def test_silent_kube_scheduler_is_a_condition_of_each_site() -> None:
    def site(name: str, **more: Any) -> SiteObject:
        fields = {"metadata": {"name": name}, "spec": {"nodeSelector": {"zone": name}}, **more}
        return SiteObject.model_validate(fields)

    controller = asyncio.run(taken_over(sites=(site("good"), site("empty"))))
    for responds, at in ((False, NOW + 2.0), (True, NOW + 4.0)):
        controller.handle(KubeSchedulerChanged(responds=responds))
        controller._sites.refresh(at)
        for name in ("good", "empty"):
            status = controller.writer._builds[f"/apis/tranche.dev/v1alpha1/sites/{name}/status"]()["status"]  # type: ignore[index]
            (condition,) = status["conditions"]
            assert (condition["type"], condition["status"]) == ("KubeSchedulerSilent", str(not responds))
            reported(controller, "sites", name, site(name, status=status))


def test_site_whose_nodes_belong_to_another_one_has_a_condition() -> None:
    def site(name: str, **selector: str) -> SiteObject:
        return SiteObject.model_validate({"metadata": {"name": name}, "spec": {"nodeSelector": selector}})

    controller = asyncio.run(taken_over(sites=(site("early", zone="good"), site("late", zone="good"))))
    controller._sites.refresh(NOW + 2.0)
    statuses = {
        name: controller.writer._builds[f"/apis/tranche.dev/v1alpha1/sites/{name}/status"]()["status"]  # type: ignore[index]
        for name in ("early", "late")
    }
    assert "conditions" not in statuses["early"]
    (condition,) = statuses["late"]["conditions"]
    assert (condition["type"], condition["status"]) == ("NodesShared", "True")
    assert "n1 (early)" in condition["message"]


def test_status_of_an_unlimited_site_reads_only_nodes_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is computed each second, and a cluster may have thousands of nodes at other sites."""

    def site(name: str, *, unlimited: bool) -> SiteObject:
        spec = {"nodeSelector": {"zone": name}, "unlimited": unlimited}
        return SiteObject.model_validate({"metadata": {"name": name}, "spec": spec})

    sites = (site("good", unlimited=False), site("cloud", unlimited=True))
    controller = asyncio.run(taken_over(sites=sites, nodes=9))
    node = controller.watches.nodes.store["n1"]
    metadata = msgspec.structs.replace(node.metadata, name="c1", labels={"zone": "cloud"})
    reported(controller, "nodes", "c1", msgspec.structs.replace(node, metadata=metadata))
    looked: list[Mapping[str, str]] = []

    def look(labels: Mapping[str, str], known: Mapping[str, SiteObject]) -> str | None:
        looked.append(labels)
        return site_of(labels, known)

    monkeypatch.setattr("tranche.live.site_status.site_of", look)
    controller._sites.refresh(NOW + 2.0)
    assert looked == [{"zone": "cloud"}]
    status = controller.writer._builds["/apis/tranche.dev/v1alpha1/sites/cloud/status"]()["status"]  # type: ignore[index]
    assert (status["nodes"], status["gpus"]) == (1, 2)


def test_site_that_replaces_an_equal_one_gets_a_status() -> None:
    def site(uid: str) -> SiteObject:
        spec = {"nodeSelector": {"zone": "good"}}
        return SiteObject.model_validate({"metadata": {"name": "good", "uid": uid}, "spec": spec})

    controller = asyncio.run(taken_over(sites=(site("first"),)))
    controller._sites.refresh(NOW + 2.0)
    path = "/apis/tranche.dev/v1alpha1/sites/good/status"
    assert controller.writer._builds.pop(path)()["metadata"]["uid"] == "first"  # type: ignore[index]
    reported(controller, "sites", "good", site("second"))
    controller._sites.refresh(NOW + 4.0)
    assert controller.writer._builds[path]()["metadata"]["uid"] == "second"  # type: ignore[index]
