"""The controller on watch stores that are filled by hand; what it writes is read from its writer's queue."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tranche.kube.metrics import Metrics
from tranche.kube.objects import NodeObject, Pod
from tranche.kube.resources import SiteObject, TrainingJob
from tranche.kube.structs import QuotaObject
from tranche.live import Controller
from tranche.live.views import Watches
from tranche.planner import Planner, PlannerSettings
from tranche.policies import get_policy

NOW = 1_800_000_000.0


def resource(name: str, duration: str | None = "1h", **status: Any) -> TrainingJob:
    requests = {"nvidia.com/gpu": "1", "cpu": "1"}
    template = {"spec": {"containers": [{"name": "t", "resources": {"requests": requests}}]}}
    created = datetime.fromtimestamp(NOW, UTC).isoformat()
    return TrainingJob.model_validate(
        {
            "metadata": {"name": name, "namespace": "default", "uid": name, "creationTimestamp": created},
            "spec": {
                "data": {"chunks": 2},
                "estimatedDuration": duration,
                "workers": {"maxReplicas": 2, "template": template},
            },
            "status": status,
        }
    )


async def taken_over(
    *jobs: TrainingJob,
    sites: tuple[SiteObject, ...] = (),
    quotas: tuple[QuotaObject, ...] = (),
    policy: str = "chunk-faithful",
) -> Controller:
    """A controller that has just read these objects; the client is never used: nothing is sent."""
    watches = Watches(None)  # type: ignore[arg-type]
    for job in jobs:
        watches.jobs.store[job.key] = job
    for site in sites:
        watches.sites.store[site.metadata.name] = site
    for quota in quotas:
        watches.quotas.store[f"{quota.metadata.namespace}/{quota.metadata.name}"] = quota
    node = {
        "metadata": {"name": "n1", "labels": {"zone": "good"}},
        "status": {
            "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "2"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    watches.nodes.store["n1"] = msgspec.convert(node, NodeObject)
    planner = Planner(get_policy(policy), PlannerSettings(validate=True))
    controller = Controller(None, watches, planner, Metrics(), clock=lambda: NOW)  # type: ignore[arg-type]
    controller.term = 1
    controller._restore()
    return controller


def written(controller: Controller, name: str) -> dict[str, Any]:
    build = controller.writer._builds[f"/apis/tranche.dev/v1alpha1/namespaces/default/trainingjobs/{name}/status"]
    body = build()
    assert body is not None
    return dict(body["status"])


def test_a_job_that_cannot_be_read_is_told_so_and_keeps_its_ledger_while_others_are_planned() -> None:
    progress = {"done": "0", "chunks": "1/2"}
    plan = {"term": 1, "revision": 4, "observedGeneration": 1}
    bad = resource("bad", "soon", plan=plan, progress=progress)
    controller = asyncio.run(taken_over(bad, resource("good")))
    status = written(controller, "bad")
    assert status["conditions"][0]["reason"] == "InvalidSpec"
    assert "soon" in status["conditions"][0]["message"]
    assert status["progress"]["done"] == "0"
    assert status["plan"]["revision"] == 4
    assert len(written(controller, "good")["plan"]["workers"]) == 2


def test_a_site_that_cannot_be_read_does_not_stop_the_others() -> None:
    def site(name: str, bandwidth: str) -> SiteObject:
        links = [{"to": "elsewhere", "bandwidth": bandwidth}]
        spec = {"nodeSelector": {"zone": name}, "links": links}
        return SiteObject.model_validate({"metadata": {"name": name}, "spec": spec})

    controller = asyncio.run(taken_over(resource("good"), sites=(site("bad", "fast"), site("good", "1G"))))
    assert set(controller.planner.cluster.sites) == {"good"}
    assert written(controller, "good")["plan"]["workers"][0]["site"] == "good"


def test_a_window_that_closes_before_any_plan_told_of_it_ends_at_once() -> None:
    controller = asyncio.run(taken_over(resource("long")))
    state = controller.planner.cluster.jobs["default/long"]
    first, second = state.runs.values()
    written(controller, "long")  # both are told of now
    controller.planner.close(state, first)
    controller._step()
    assert first.window.attempt in state.runs  # its pod may be on its way: it is waited for

    controller._untold.add(("default/long", second.window.attempt))
    controller.planner.close(state, second)
    controller._next_timeouts = 0.0
    controller._step()
    assert second.window.attempt not in state.runs
    assert ("default/long", second.window.attempt) not in controller._untold


def test_windows_count_as_told_of_once_a_plan_with_them_is_written() -> None:
    controller = asyncio.run(taken_over(resource("long")))
    opened = {("default/long", attempt) for attempt in controller.planner.cluster.jobs["default/long"].runs}
    assert controller._untold == opened
    written(controller, "long")
    assert controller._untold == set()


def quota(hard: int, used: int, name: str = "gpus") -> QuotaObject:
    limits = {"hard": {"requests.nvidia.com/gpu": str(hard)}, "used": {"requests.nvidia.com/gpu": str(used)}}
    metadata = {"name": name, "namespace": "default"}
    return msgspec.convert({"metadata": metadata, "spec": {"hard": limits["hard"]}, "status": limits}, QuotaObject)


def worker_pod(attempt: int, phase: str = "Pending") -> Pod:
    labels = {"job": "long", "role": "worker", "index": "0", "attempt": str(attempt)}
    metadata = {"name": f"long-worker-0-{attempt}", "namespace": "default", "uid": f"u{attempt}"}
    metadata["labels"] = {f"tranche.dev/{key}": value for key, value in labels.items()}  # type: ignore[assignment]
    spec = {"priority": -9, "containers": [{"name": "t", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": phase}}, Pod)


def reported(controller: Controller, kind: str, key: str, new: Any) -> None:
    """What a watch says."""
    store = controller.watches.by_kind(kind).store
    old = store.pop(key, None)
    if new is not None:
        store[key] = new
    controller._changes.append((kind, key, old, new))
    controller._step()


def foreign(controller: Controller) -> int:
    return controller.planner.cluster.quotas.by_namespace["default"]["gpus"].limits[0].foreign


def test_a_quota_that_is_there_already_holds_for_the_first_plan() -> None:
    controller = asyncio.run(taken_over(resource("long"), quotas=(quota(1, 0),)))
    assert len(written(controller, "long")["plan"]["workers"]) == 1


def test_our_own_pods_are_not_counted_twice_and_pods_of_others_are_counted() -> None:
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


def test_an_ended_pod_holds_the_quota_until_the_api_server_counts_it_no_more() -> None:
    controller = asyncio.run(taken_over(resource("long"), quotas=(quota(1, 0),)))
    reported(controller, "pods", "default/long-worker-0-1", worker_pod(1))
    reported(controller, "quotas", "default/gpus", quota(1, 1))
    reported(controller, "pods", "default/long-worker-0-1", worker_pod(1, "Succeeded"))
    state = controller.planner.cluster.jobs["default/long"]
    assert (len(state.done), len(state.runs)) == (1, 0)
    reported(controller, "quotas", "default/gpus", quota(1, 0))
    assert len(state.runs) == 1


def test_a_quota_that_is_gone_holds_nobody_back() -> None:
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


def test_a_restarted_planner_knows_how_long_jobs_of_a_template_took_and_what_a_job_taught() -> None:
    progress = {"done": "0-1", "attainedSeconds": 5000.0}
    before = resource("before", phase="Succeeded", progress=progress)
    unsized = resource("unsized", None, progress={"done": "", "learnt": 2.0})
    fresh = resource("fresh", None)
    planner = asyncio.run(taken_over(before, unsized, fresh, policy="chunk")).planner
    states = planner.cluster.jobs
    assert states["default/fresh"].nominal_batch_seconds == pytest.approx(5000.0 / 2)
    told = planner.cluster.told_batch_seconds(states["default/unsized"], "")
    assert states["default/unsized"].nominal_batch_seconds == pytest.approx(2.0 * told)
