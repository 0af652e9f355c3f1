"""The planner plans every object that the schemas admit, or states why not; test_fuzz.py asks the API server."""

import asyncio
import json
import logging
from typing import Any

import msgspec
import pytest

from support.fuzzed_objects import Jobs, node, quota, site, spec_schema
from support.live_controller import reported, taken_over, written
from support.structural_objects import SEED, drawn
from tranche.kube.api.core_types import NodeObject, QuotaObject
from tranche.kube.api.resources import SiteObject, TrainingJob
from tranche.live.controller import Controller

logger = logging.getLogger(__name__)
CALM = "calm"
"""The namespace of the jobs that drawn sites, nodes and quotas do not concern."""
TOGETHER = 10
"""Jobs in one cluster."""


def fuzzed(name: str, spec: dict[str, Any], namespace: str = "default") -> TrainingJob:
    created = "2026-01-01T00:00:00Z"
    metadata = {"name": name, "namespace": namespace, "uid": name, "creationTimestamp": created}
    return TrainingJob.model_validate({"metadata": metadata, "spec": spec})


def ordinary(name: str) -> TrainingJob:
    """A job of one worker that node n1 can hold, in a namespace without quotas."""
    container = {"name": "t", "resources": {"requests": {"nvidia.com/gpu": "1", "cpu": "1"}}}
    workers = {"maxReplicas": 1, "template": {"spec": {"containers": [container]}}}
    return fuzzed(name, {"data": {"chunks": 1}, "estimatedDuration": "1h", "workers": workers}, CALM)


def assert_planned_or_explained(status: dict[str, Any]) -> str:
    """Assert that a job has windows, or a reason why it has none; return the reason of its condition."""
    (planned,) = [condition for condition in status["conditions"] if condition["type"] == "Planned"]
    if planned["status"] == "True":
        assert status["plan"]["workers"] or status["plan"]["explanation"]
    else:
        assert not status.get("plan", {}).get("workers")
        assert planned["message"]
    return str(planned["reason"])


def assert_has_window(controller: Controller, name: str) -> None:
    """Assert that a worker of an ordinary job has a node."""
    plan = written(controller, name, CALM)["plan"]
    assert [window["node"] for window in plan["workers"]], plan


@pytest.mark.parametrize("policy", ["chunk", "chunk-faithful"])
def test_any_job_gets_a_plan_or_a_reason(policy: str) -> None:
    async def scenario() -> None:
        controller = await taken_over(policy=policy)
        reasons: set[str] = set()
        for number, (seed, spec) in enumerate(drawn(200, Jobs(), "jobs")):
            logger.warning("%s: %s", seed, spec)
            if number % TOGETHER == 0:
                controller = await taken_over(policy=policy)
            job = fuzzed(f"j{number}", spec)
            reported(controller, "jobs", job.key, job)
            status = written(controller, job.metadata.name)
            json.dumps(status, allow_nan=False)
            reasons.add(assert_planned_or_explained(status))
        assert reasons >= {"Planned", "NoGpuRequested"}

    asyncio.run(scenario())


def test_any_site_node_and_quota_leaves_the_others_planned() -> None:
    async def scenario() -> None:
        schema = spec_schema("sites")
        drawers = zip(*(drawn(60, lambda random: random, kind) for kind in ("nodes", "sites", "quotas")), strict=True)
        controller = await taken_over(policy="chunk")
        logger.warning("SEED=%s", SEED)
        good = {"metadata": {"name": "good"}, "spec": {"nodeSelector": {"zone": "good"}}}  # the site of node n1
        reported(controller, "sites", "good", SiteObject.model_validate(good))
        resident = ordinary("resident")
        reported(controller, "jobs", resident.key, resident)
        for number, ((_, for_node), (_, for_site), (_, for_quota)) in enumerate(drawers):
            name = f"x{number}"
            spec = {"metadata": {"name": name}, "spec": site(for_site, schema)}
            counted = quota(for_quota, name)
            counted["metadata"]["namespace"] = "default"
            reported(controller, "nodes", name, msgspec.convert(node(for_node, name), NodeObject))
            reported(controller, "sites", name, SiteObject.model_validate(spec))
            reported(controller, "quotas", f"default/{name}", msgspec.convert(counted, QuotaObject))
            job = fuzzed(f"j{number}", {"workers": {"maxReplicas": 1, "template": {"spec": {"containers": []}}}})
            reported(controller, "jobs", job.key, job)
            assert assert_planned_or_explained(written(controller, job.metadata.name)) == "NoGpuRequested"
            visitor = ordinary(f"visitor-{number}")
            reported(controller, "jobs", visitor.key, visitor)
            assert_has_window(controller, visitor.metadata.name)
            assert_has_window(controller, "resident")
            reported(controller, "jobs", visitor.key, None)

    asyncio.run(scenario())
