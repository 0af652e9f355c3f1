"""The worked numbers of docs/explanation/algorithms.md for the production policy."""

import pytest

from support.builders import job, node, of_type, planner
from tranche.model import Link, PodShape, Resources, Site
from tranche.planner import JobSubmitted, PlaceParameterServer
from tranche.policies.queue.chunk import Chunk

PREEMPTOR = job("preemptor", chunks=5, seconds=60.0)
RUNNING = job("running", chunks=6, seconds=600.0, restart_seconds=30.0, restart_declared=True)


def test_preemption_needs_a_gain_above_the_loss() -> None:
    p = planner("chunk:aging=0", [node("n1", gpus=0)])
    p.handle_all([JobSubmitted(RUNNING), JobSubmitted(PREEMPTOR)], 0.0)
    running, preemptor = p.cluster.jobs[RUNNING.key], p.cluster.jobs[PREEMPTOR.key]
    threshold = Chunk(aging=0.0).min_remaining_to_preempt(preemptor, 60.0, running, 0.0)
    assert threshold == pytest.approx((60 + 30) * 300 / 3600)
    assert 5.0 < threshold < 600.0


@pytest.mark.parametrize(("waited", "work"), [(0.0, 300.0), (1.0, 300 / 1.1**7)])
def test_job_that_waited_theta_ideals_counts_half(waited: float, work: float) -> None:
    p = planner("chunk:aging=30", [node("n1", gpus=0)])
    p.handle(JobSubmitted(PREEMPTOR), 0.0)
    state = p.cluster.jobs[PREEMPTOR.key]
    now = waited * 30 * state.ideal_seconds
    assert Chunk(aging=30.0).rank(state, p.cluster, now)[0] == pytest.approx(work)


def test_server_goes_where_the_slowest_exchange_is_fastest() -> None:
    fast, slow, middle = Link(10e9), Link(1e9), Link(2e9)
    sites = [
        Site("a", links={"a": fast, "b": slow, "c": middle}),
        Site("b", links={"b": fast, "c": middle}),
        Site("c", links={"c": fast}),
    ]
    p = planner("chunk", [node("a-1", "a"), node("b-1", "b"), node("c-1", "c")], sites)
    server = PodShape(Resources(cpu=1000, memory=2**30, gpus=0, pods=1))
    one = job("j", chunks=2, server=server, servers=1, gradient_bits=1e9, data_site="a", chunk_bytes=1.0)
    (placed,) = of_type(PlaceParameterServer, p.handle(JobSubmitted(one), 0.0))
    assert placed.server.site == "c"
