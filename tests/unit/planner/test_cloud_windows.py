"""Windows of unlimited sites whose pods kube-scheduler binds to nodes that the planner does not know."""

import pytest

from support.builders import job, node, of_type, planner
from tranche.model import Link, Quota, QuotaLimit, Site, Tier
from tranche.planner import (
    JobSubmitted,
    NodeChanged,
    OpenWindow,
    Planner,
    QuotaChanged,
    WorkerBound,
    WorkerEnded,
    WorkerStarted,
)

FAST = Link(1e12)


def burst(policy: str) -> Planner:
    """An edge of one GPU, which trains chunk 0 of a job, and a cloud, where chunk 1 has a window."""
    sites = [Site("edge-a", links={"cloud": FAST}), Site("cloud", Tier.CLOUD, unlimited=True)]
    p = planner(policy, [node("n1")], sites)
    p.handle(JobSubmitted(job("a", chunks=2, chunk_bytes=1, data_site="edge-a")), 0.0)
    out = p.handle(JobSubmitted(job("later", 1.0)), 1.0)
    out += p.handle(NodeChanged(node("n1")), 2.0)
    return p


def cloud_attempt(p: Planner) -> int:
    runs = p.cluster.jobs["default/a"].runs
    (attempt,) = [attempt for attempt, run in runs.items() if run.window.site == "cloud"]
    assert runs[attempt].window.node is None
    return attempt


@pytest.mark.parametrize("policy", ["chunk", "chunk-faithful"])
def test_a_bound_pod_of_the_cloud_names_its_node_only(policy: str) -> None:
    p = burst(policy)
    attempt = cloud_attempt(p)
    entries = dict(p.cluster.jobs["default/a"].entries)
    p.handle(WorkerBound("default/a", attempt, "cloud-7"), 3.0)
    run = p.cluster.jobs["default/a"].runs[attempt]
    assert (run.window.node, run.window.site, run.home.node) == ("cloud-7", "cloud", None)
    assert p.cluster.jobs["default/a"].entries == entries
    assert "default/a" in p.changed


@pytest.mark.parametrize("policy", ["chunk", "chunk-faithful"])
def test_a_cloud_window_that_is_taken_over_keeps_no_node(policy: str) -> None:
    p = burst(policy)
    attempt = cloud_attempt(p)
    p.handle(WorkerBound("default/a", attempt, "cloud-7"), 3.0)
    plan, progress = p.plan_of("default/a", 4.0), p.progress_of("default/a")
    sites = [Site("edge-a", links={"cloud": FAST}), Site("cloud", Tier.CLOUD, unlimited=True)]
    other = planner(policy, [node("n1")], sites)
    state = p.cluster.jobs["default/a"]
    opened = of_type(OpenWindow, other.restore([JobSubmitted(state.job, plan, progress)], 5.0))
    run = other.cluster.jobs["default/a"].runs[attempt]
    assert (run.window.node, run.home.site, run.home.node) == ("cloud-7", "cloud", None)
    assert opened == []
    other.handle(WorkerEnded("default/a", attempt, "Succeeded", 105.0), 105.0)
    assert run.window.chunks[0] in other.cluster.jobs["default/a"].done


def test_a_start_that_waited_for_a_node_teaches_no_restart_cost() -> None:
    p = burst("chunk")
    attempts = sorted(p.cluster.jobs["default/a"].runs)
    cloud = cloud_attempt(p)
    (edge,) = [attempt for attempt in attempts if attempt != cloud]
    p.handle(WorkerStarted("default/a", cloud, 180.0), 180.0)
    assert p.cluster.restarts.of_job("default").seconds == 0.0
    p.handle(WorkerStarted("default/a", edge, 181.0), 181.0)
    assert p.cluster.restarts.of_job("default").seconds > 0.0


@pytest.mark.parametrize("policy", ["chunk", "chunk-faithful"])
def test_planned_completion_counts_the_start_of_a_node(policy: str) -> None:
    p = planner(policy, [], [Site("cloud", Tier.CLOUD, unlimited=True, start_seconds=180.0)])
    p.handle(JobSubmitted(job("a")), 0.0)
    (attempt,) = p.cluster.jobs["default/a"].runs
    assert p.forecast(0.0)["default/a"].completion == 280.0
    p.handle(WorkerBound("default/a", attempt, "cloud-7"), 30.0)
    assert p.forecast(30.0)["default/a"].completion == 130.0, "the node was idle"


def test_planned_completion_counts_a_node_for_each_pod() -> None:
    """A job that waits for its quota gets a pod, and with it a node, when another one has ended."""
    p = planner("chunk", [], [Site("cloud", Tier.CLOUD, unlimited=True, start_seconds=180.0)])
    p.handle(QuotaChanged(Quota("default", "pods", (QuotaLimit("pods", "pods", 1),))), 0.0)
    p.handle_all([JobSubmitted(job("a")), JobSubmitted(job("b", 1.0))], 1.0)
    assert not p.cluster.jobs["default/b"].runs
    assert p.forecast(1.0)["default/b"].completion == 561.0
