"""Planning in an installation with several GPU resources: each job uses nodes with GPUs of its own resource."""

from dataclasses import replace

import pytest

from support.builders import LARGE, job, node, of_type, planner
from tranche.model import Job, Node, PodShape, Quota, QuotaLimit, Resources, Site, Tier
from tranche.planner import (
    CloseWindow,
    JobSubmitted,
    NodeChanged,
    OpenWindow,
    Planner,
    QuotaChanged,
    WorkerBound,
    WorkerStarted,
)
from tranche.policies import live_policies

NVIDIA, AMD = "nvidia.com/gpu", "amd.com/gpu"


def node_with(resource: str, name: str, site: str = "edge-a", gpus: int = 1) -> Node:
    return replace(node(name, site), allocatable=Resources(LARGE.cpu, LARGE.memory, gpus, LARGE.pods, resource))


def job_with(resource: str, name: str, submitted: float = 0.0, *, gpus: int = 1, **changes: object) -> Job:
    shape = PodShape(Resources(1000, 2**30, gpus, 1, resource))
    return job(name, submitted, **{"worker": shape, **changes})  # type: ignore[arg-type]


def opened(made: Planner, one: Job, now: float = 0.0) -> list[str | None]:
    return [window.window.node for window in of_type(OpenWindow, made.handle(JobSubmitted(one), now))]


def explained(made: Planner, key: str, now: float) -> str:
    made.forecast(now)
    return made.plan_of(key, now).explanation


@pytest.mark.parametrize("policy", live_policies())
def test_each_policy_places_workers_on_their_own_resource(policy: str) -> None:
    made = planner(policy, [node_with(NVIDIA, "n0", gpus=4), node_with(AMD, "n1", gpus=2), node_with(NVIDIA, "n2")])
    assert opened(made, job_with(AMD, "amd", chunks=3)) == ["n1", "n1"]  # and its last chunk waits
    assert set(opened(made, job_with(NVIDIA, "nvidia", chunks=5))) == {"n0", "n2"}


def test_gpus_of_another_resource_are_not_taken_by_preemption() -> None:
    made = planner("chunk", [node_with(NVIDIA, "n0"), node_with(AMD, "n1")])
    for number, resource in enumerate((NVIDIA, AMD)):
        assert opened(made, job_with(resource, f"long{number}", seconds=1e5)) == [f"n{number}"]
        made.handle(WorkerStarted(f"default/long{number}", 1, 1.0), 1.0)
    found = made.handle(JobSubmitted(job_with(AMD, "short", 10.0, seconds=1.0)), 10.0)
    assert [one.job for one in of_type(CloseWindow, found)] == ["default/long1"]
    assert [one.window.node for one in of_type(OpenWindow, found)] == ["n1"]


def test_explanation_names_the_resource_that_is_short() -> None:
    made = planner("fifo", [node_with(NVIDIA, "n0"), node_with(AMD, "n1")])
    opened(made, job_with(AMD, "first"))
    opened(made, job_with(AMD, "second"))
    made.handle(WorkerStarted("default/first", 1, 0.0), 0.0)
    text = explained(made, "default/second", 1.0)
    assert text.startswith("waits for 1 amd.com/gpu at edge-a until"), text


def test_explanation_counts_the_free_gpus_of_the_resource() -> None:
    made = planner("chunk", [node_with(NVIDIA, "n0", gpus=8), node_with(AMD, "n1", gpus=3)])
    opened(made, job_with(AMD, "first", chunks=2))
    opened(made, job_with(AMD, "gang", chunks=3, is_gang=True, seconds=1e6))
    text = explained(made, "default/gang", 1.0)
    assert "3 amd.com/gpu at once (1 is free)" in text, text


def test_job_without_a_node_of_its_resource_says_so() -> None:
    made = planner("chunk", [node_with(NVIDIA, "n0"), node_with(NVIDIA, "n1")])
    assert opened(made, job_with(AMD, "amd")) == []
    assert explained(made, "default/amd", 0.0) == "no node takes a worker: 2 of 2 nodes offer no amd.com/gpu"


def test_largest_node_is_one_of_the_resource() -> None:
    made = planner("chunk", [node_with(NVIDIA, "n0", gpus=8), node_with(NVIDIA, "n1", gpus=8), node_with(AMD, "n2")])
    assert opened(made, job_with(AMD, "amd", gpus=4)) == []
    text = explained(made, "default/amd", 0.0)
    assert text == "no node has 4 amd.com/gpu for a worker (the largest has 1 amd.com/gpu)"


def test_quota_of_one_resource_does_not_hold_back_the_other() -> None:
    made = planner("chunk", [node_with(NVIDIA, "n0", gpus=4), node_with(AMD, "n1", gpus=4)])
    limit = QuotaLimit(f"requests.{AMD}", "gpus", 1, gpu_resource=AMD)
    made.handle(QuotaChanged(Quota("default", "q", (limit,))), 0.0)
    assert opened(made, job_with(NVIDIA, "nvidia", chunks=3)) == ["n0"] * 3
    assert opened(made, job_with(AMD, "amd", chunks=3)) == ["n1"]
    assert opened(made, job_with(AMD, "more")) == []
    assert explained(made, "default/more", 0.0) == (
        "waits for the quota default/q: 1 of 1 amd.com/gpu in use, and 1 needed"
    )


def test_unlimited_site_takes_jobs_of_its_resource_only() -> None:
    sites = [Site("edge-a"), Site("cloud", Tier.CLOUD, unlimited=True, gpu_resource=AMD)]
    made = planner("chunk", [node_with(NVIDIA, "n0")], sites)
    assert opened(made, job_with(NVIDIA, "first")) == ["n0"]
    assert opened(made, job_with(NVIDIA, "second")) == []
    found = of_type(OpenWindow, made.handle(JobSubmitted(job_with(AMD, "third")), 0.0))
    assert [(one.window.site, one.window.node) for one in found] == [("cloud", None)]


def test_node_that_changes_its_resource_takes_workers_of_the_new() -> None:
    made = planner("chunk", [node_with(NVIDIA, "n0", gpus=2)])
    assert opened(made, job_with(NVIDIA, "first")) == ["n0"]
    made.handle(WorkerBound("default/first", 1, "n0"), 0.5)
    made.handle(NodeChanged(node_with(AMD, "n0", gpus=2)), 1.0)
    assert opened(made, job_with(NVIDIA, "second"), 1.0) == []
    assert opened(made, job_with(AMD, "third", chunks=2), 1.0) == ["n0"]  # the first one still holds a device
    assert not made.cluster.jobs["default/first"].runs[1].closing
