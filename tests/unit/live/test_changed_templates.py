"""Templates that are changed while no scheduler is there: who takes over does what the one before would have done."""

import asyncio
from typing import Any

import msgspec
import pytest

from support.live_controller import reported, resource, taken_over, written
from tranche.kube.api.resources import TrainingJob
from tranche.kube.convert.pods_and_nodes import Pod
from tranche.live.job_events import submission
from tranche.planner import Planner
from tranche.planner.events import JobSubmitted
from tranche.policies import get_policy

GPU = "nvidia.com/gpu"


def pod(number: int, cpu: str) -> Pod:
    """Return a worker of job j, made from a template that requests ``cpu``."""
    name = f"j-worker-{number}-{number + 1}"
    labels = {"job": "j", "role": "worker", "index": str(number), "attempt": str(number + 1)}
    owner = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "uid": "j", "controller": True}
    metadata = {"labels": {f"tranche.dev/{key}": value for key, value in labels.items()}, "ownerReferences": [owner]}
    container = {"name": "t", "resources": {"requests": {GPU: "1", "cpu": cpu}}}
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "default", "uid": name, **metadata},
            "spec": {"nodeName": "n1", "containers": [container]},
            "status": {"phase": "Running"},
        },
        Pod,
    )


def changed(job: TrainingJob, status: dict[str, Any], cpu: str) -> TrainingJob:
    body = job.model_dump(mode="json", by_alias=True)
    body["metadata"]["generation"] = 2
    body["spec"]["workers"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    return TrainingJob.model_validate({**body, "status": status})


def states(plan: dict[str, Any]) -> list[str]:
    return [window["state"] for window in plan["workers"]]


@pytest.mark.parametrize(("cpu", "state"), [("2", "Closing"), ("1", "Open")], ids=["resized", "something else"])
def test_outdated_pods_are_stopped_live_and_after_takeover_alike(cpu: str, state: str) -> None:
    job = resource("j")
    first = asyncio.run(taken_over(job, policy="chunk"))
    for number in range(2):
        reported(first, "pods", f"default/j-worker-{number}-{number + 1}", pod(number, "1"))
    status = written(first, "j")
    assert states(status["plan"]) == ["Open", "Open"]
    new = changed(job, status, cpu)

    event = submission(new, (GPU,), first.watches.pods.store)
    following = Planner(get_policy("chunk"))
    for node in first.planner.cluster.nodes.values():
        following.cluster.nodes[node.node.name] = type(node)(node.node)
    following.restore([event], 0.0)
    assert [str(one.state) for one in following.plan_of("default/j", 0.0).windows] == [state, state]

    reported(first, "jobs", "default/j", new)
    assert states(written(first, "j")["plan"]) == [state, state]


def test_pods_of_current_template_with_defaulted_fields_stay() -> None:
    job = resource("j")
    first = asyncio.run(taken_over(job, policy="chunk"))
    status = written(first, "j")
    same = TrainingJob.model_validate({**job.model_dump(mode="json", by_alias=True), "status": status})
    found: JobSubmitted = submission(same, (GPU,), {"default/j-worker-0-1": pod(0, "3")})
    assert found.outdated == frozenset()
