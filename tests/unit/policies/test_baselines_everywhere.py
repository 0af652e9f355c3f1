"""The policies that are modelled after unread systems complete every job, wherever there is room for it."""

import pytest

from support.builders import gang, job, node, worker
from tranche.model import Job, Link, Preemption, Site
from tranche.simulation.scenario import Scenario, run

BASELINES = ["themis", "optimus", "dorm", "rrh", "oasis:slot=60", "pd-ors-like:slot=60"]
CLOUD = Site("cloud", unlimited=True)
EDGE = Site("edge-a", links={"cloud": Link(8e6)})


def mixed_jobs() -> list[Job]:
    """Chunked jobs of one and two GPUs, with parameter servers or without, and gangs."""
    jobs = [
        job(f"j{i}", 20.0 * i, chunks=1 + i * 3 % 7, seconds=20.0 + 31 * i % 90, max_workers=1 + i % 4)
        for i in range(18)
    ]
    jobs += [job(f"wide{i}", 33.0 * i, chunks=3, worker=worker(2)) for i in range(3)]
    jobs += [job(f"served{i}", 41.0 * i, chunks=4, servers=1, server=worker(0)) for i in range(3)]
    jobs += [job(f"kept{i}", 50.0 * i, chunks=3, preemption=Preemption.NEVER) for i in range(2)]
    return jobs + [gang(f"gang{i}", 35.0 * i, members=2 + i % 2) for i in range(4)]


@pytest.mark.parametrize("restart", [0.0, 7.0])
@pytest.mark.parametrize("policy", BASELINES)
def test_all_jobs_complete_on_two_small_nodes(policy: str, restart: float) -> None:
    nodes = (node("n0", gpus=2), node("n1", gpus=2))
    result = run(Scenario(tuple(mixed_jobs()), nodes, (Site("edge-a"),), policy=policy, restart_seconds=restart))
    assert not result.unfinished


@pytest.mark.parametrize("policy", BASELINES)
def test_all_chunks_train_at_once_at_an_unlimited_site(policy: str) -> None:
    result = run(Scenario((job("a", chunks=3, seconds=60.0),), (), (CLOUD,), policy=policy))
    assert result.average_jct_seconds == 60.0


@pytest.mark.parametrize("policy", BASELINES)
def test_what_the_edge_cannot_hold_starts_in_the_cloud(policy: str) -> None:
    result = run(Scenario((job("a", chunks=10, seconds=60.0),), (node("n0"),), (EDGE, CLOUD), policy=policy))
    assert result.average_jct_seconds == 60.0


@pytest.mark.parametrize("policy", BASELINES)
def test_cloud_never_makes_the_average_jct_longer(policy: str) -> None:
    nodes, jobs = (node("n0", gpus=2), node("n1", gpus=2)), tuple(mixed_jobs())
    alone = run(Scenario(jobs, nodes, (Site("edge-a"),), policy=policy))
    both = run(Scenario(jobs, nodes, (EDGE, CLOUD), policy=policy))
    assert not both.unfinished
    assert both.average_jct_seconds < alone.average_jct_seconds


@pytest.mark.parametrize("policy", [*BASELINES, "fifo", "fifo-skip", "first-fit", "drf"])
def test_chunk_bound_for_the_cloud_starts_while_nodes_are_full(policy: str) -> None:
    jobs = [
        job(f"j{i}", 20.0 * i, chunks=1 + i * 3 % 7, seconds=20.0 + 31 * i % 90, max_workers=1 + i % 4)
        for i in range(25)
    ]
    jobs += [gang(f"gang{i}", 35.0 * i, members=2 + i % 2) for i in range(6)]
    nodes = (node("n0", gpus=2), node("n1", gpus=1))
    result = run(Scenario(tuple(jobs), nodes, (EDGE, CLOUD), policy=policy))
    assert not result.unfinished


@pytest.mark.parametrize("policy", BASELINES)
def test_data_are_awaited_without_holding_a_gpu(policy: str) -> None:
    near, far = Site("edge-a", links={"edge-b": Link(8e6)}), Site("edge-b", links={"edge-a": Link(8e6)})
    moved = job("moved", seconds=100.0, data_site="edge-a", chunk_bytes=2e8)  # 200 s to edge-b
    nodes = (node("n0", "edge-b"),)
    result = run(Scenario((moved, job("local", 1.0, seconds=150.0)), nodes, (near, far), policy=policy))
    ends = {one.key: one.completed for one in result.jobs}
    assert ends == {"default/local": 151.0, "default/moved": 300.0}
