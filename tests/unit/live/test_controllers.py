"""The controller on watch stores that are filled by hand; what it writes is read from its writer's queue."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec

from tranche.kube.metrics import Metrics
from tranche.kube.objects import NodeObject
from tranche.kube.resources import SiteObject, TrainingJob
from tranche.live import Controller
from tranche.live.views import Watches
from tranche.planner import Planner, PlannerSettings
from tranche.policies import get_policy

NOW = 1_800_000_000.0


def resource(name: str, duration: str = "1h", **status: Any) -> TrainingJob:
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


async def taken_over(*jobs: TrainingJob, sites: tuple[SiteObject, ...] = ()) -> Controller:
    """A controller that has just read these objects; the client is never used: nothing is sent."""
    watches = Watches(None)  # type: ignore[arg-type]
    for job in jobs:
        watches.jobs.store[job.key] = job
    for site in sites:
        watches.sites.store[site.metadata.name] = site
    node = {
        "metadata": {"name": "n1", "labels": {"zone": "good"}},
        "status": {
            "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "2"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    watches.nodes.store["n1"] = msgspec.convert(node, NodeObject)
    planner = Planner(get_policy("chunk-faithful"), PlannerSettings(validate=True))
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
