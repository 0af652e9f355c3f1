"""Splitting the chunks of a worker that lags behind idle slots (option `split` of `chunk`)."""

from dataclasses import replace
from random import Random

import pytest

from support.builders import job, node, of_type, planner
from tranche.model import Preemption, Site
from tranche.planner import JobSubmitted, OpenWindow
from tranche.simulation.scenario import Scenario, run

NODES = (node("fast"), node("slow", speed=0.25))
CHUNKS = job("a", chunks=3, seconds=100.0)
"""The fast node trains two chunks by 200 s, and the slow one half of the third: 50 mini-batches are left."""


def completed(policy: str, one: object = CHUNKS, nodes: object = NODES, sites: tuple[Site, ...] = ()) -> float:
    """Return when the job completes."""
    result = run(Scenario((one,), nodes, sites, policy))  # type: ignore[arg-type]
    return result.jobs[0].completed


def test_idle_fast_node_takes_the_rest_of_a_lagging_chunk() -> None:
    assert completed("chunk") == 400.0
    assert completed("chunk:split=2") == 250.0


def test_worker_that_is_as_fast_to_the_end_goes_on() -> None:
    assert completed("chunk:split=5") == 400.0, "the rest takes 4 times as long as on the fast node"
    assert completed("chunk:split=2", replace(CHUNKS, restart_seconds=60.0)) == 400.0, "110 s there, 200 s here"


def test_worker_that_may_not_be_stopped_goes_on() -> None:
    assert completed("chunk:split=2", replace(CHUNKS, preemption=Preemption.AT_CHUNK_END)) == 400.0


def test_lagging_chunk_goes_on_while_another_job_waits() -> None:
    late = job("b", 150.0, seconds=1000.0)
    result = run(Scenario((CHUNKS, late), NODES, policy="chunk:split=2:aging=0"))
    assert {one.key: one.completed for one in result.jobs}["default/a"] == 400.0


def test_chunk_stays_where_its_data_are() -> None:
    nodes = (node("fast", "edge-a"), node("slow", "edge-b", speed=0.25))
    held = replace(CHUNKS, chunks=1, max_workers=1, data_site="edge-b", chunk_bytes=10**15)
    two = replace(held, chunks=2, max_workers=2)  # indivisible jobs are left alone
    sites = (Site("edge-a"), Site("edge-b"))
    assert completed("chunk:split=1:copies=0", two, nodes, sites) == 800.0


def test_waiting_chunks_are_spread_over_idle_nodes() -> None:
    four = job("a", chunks=4, seconds=10.0, restart_seconds=20.0, max_workers=4)
    for policy, windows in (("chunk", 1), ("chunk:split=2", 4)):
        made = planner(policy, [node(f"n{i}") for i in range(4)])
        assert len(of_type(OpenWindow, made.handle(JobSubmitted(four), 0.0))) == windows


def test_window_is_not_split_before_it_has_trained_for_a_while() -> None:
    """Otherwise, a rest that is placed on the same site again is split without end at one instant."""
    short = job("a", chunks=3, seconds=7.0)
    assert completed("chunk:split=2", short) == pytest.approx(28.0), "the slow node never trains for 30 s"
    longer = job("a", chunks=3, seconds=16.0)
    assert completed("chunk:split=2", longer) == pytest.approx(40.0), "half of chunk 3 is left by 32 s"


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("factor", [1, 2])
def test_splitting_never_delays_a_job_that_is_alone(seed: int, factor: int) -> None:
    draw = Random(seed)
    nodes = tuple(node(f"n{n}", speed=draw.choice([0.25, 0.5, 1.0, 1.5])) for n in range(draw.randint(2, 4)))
    restart = draw.choice([0.0, 10.0])
    one = job("a", chunks=draw.randint(2, 9), seconds=draw.uniform(40, 300), restart_seconds=restart)
    assert completed(f"chunk:faster=0:split={factor}", one, nodes) <= completed("chunk:faster=0", one, nodes) * (
        1 + 1e-9
    )
