"""Placement of parameter servers: the published rule, and the placement that the production policy uses."""

from dataclasses import replace
from typing import Any

import pytest

from support.builders import job, node, of_type, planner, worker
from tranche.model import Constraints, Job, Link, Node, PodShape, Preemption, Quota, QuotaLimit, Resources, Site, Tier
from tranche.model.gpu_kind import GpuKinds
from tranche.planner import (
    CloseWindow,
    Instruction,
    JobSubmitted,
    NodeChanged,
    OpenWindow,
    PlaceParameterServer,
    Planner,
    QuotaChanged,
    Tick,
)

KIND = "nvidia.com/gpu.product"
SERVER = PodShape(Resources(cpu=1000, memory=2**30, gpus=0, pods=1))
NARROW, WIDE = Link(1e8), Link(1e9)
SITES = [
    Site("a", links={"a": WIDE, "hub": WIDE, "b": NARROW}),
    Site("b", links={"b": WIDE, "hub": WIDE}),
    Site("hub", links={"hub": WIDE}),
]


def with_server(name: str, **changes: Any) -> Job:
    fields = {"server": SERVER, "servers": 1, "gradient_bits": 1e8, "data_site": "a", "chunk_bytes": 1.0, "chunks": 2}
    return job(name, **{**fields, **changes})


def placed(p: Planner, one: Job) -> list[tuple[str, str | None]]:
    instructions = of_type(PlaceParameterServer, p.handle(JobSubmitted(one), 0.0))
    return [(i.server.site, i.server.node) for i in instructions]


def nodes() -> list[Node]:
    return [node("a-1", "a"), node("b-1", "b"), node("hub-1", "hub")]


def test_chunk_places_server_at_widest_narrowest_path() -> None:
    assert placed(planner("chunk", nodes(), SITES), with_server("j")) == [("hub", "hub-1")]
    assert placed(planner("chunk-faithful", nodes(), SITES), with_server("j")) == [("a", "a-1")]


def test_server_of_bandwidth_limited_job_stays_at_its_data_site() -> None:
    assert placed(planner("chunk", nodes(), SITES), with_server("j", bits_per_second=1e7)) == [("a", "a-1")]


def test_the_next_best_site_is_taken_when_the_best_has_no_room() -> None:
    full = [node("a-1", "a"), node("b-1", "b"), node("hub-1", "hub", unschedulable=True)]
    assert placed(planner("chunk", full, SITES), with_server("j")) == [("a", "a-1")]


@pytest.mark.parametrize("gpus", [0, 4], ids=["workers in the cloud", "workers on nodes"])
def test_server_that_a_cloud_cannot_take_is_placed_on_a_node(gpus: int) -> None:
    wide = {"cloud": WIDE, "b": NARROW}
    cloud = Site("cloud", Tier.CLOUD, unlimited=True, labels={"zone": "cloud"})
    there = {"labels": {"zone": "edge"}}
    nodes = [node("a-1", "a", gpus, **there), node("b-1", "b", gpus, **there)]
    p = planner("chunk", nodes, [Site("a", links=wide), Site("b", links=wide), cloud])
    server = replace(SERVER, constraints=Constraints(selector=(("zone", "edge"),)))
    instructions = p.handle(JobSubmitted(with_server("j", server=server)), 0.0)
    instructions += p.handle(Tick(), 1.0)
    assert [one.server.site for one in of_type(PlaceParameterServer, instructions)] == ["a"]
    assert {one.window.site for one in of_type(OpenWindow, instructions)} == ({"a"} if gpus else {"cloud"})


def test_no_server_starts_while_its_workers_wait_for_a_gpu() -> None:
    """With its server at site b, the chunk ends sooner on the faster GPU there, which another job leaves soon."""
    nodes = [node("a-1", "a", labels={KIND: "slow"}), node("b-1", "b", labels={KIND: "fast"})]
    p = planner("chunk", nodes, SITES[:2], gpu_kinds=GpuKinds(speeds={"slow": 0.5, "fast": 1.0}))
    p.handle(JobSubmitted(job("first", seconds=150.0, data_site="b", preemption=Preemption.AT_CHUNK_END)), 0.0)
    server = replace(SERVER, constraints=Constraints(selector=((KIND, "fast"),)))
    one = with_server("j", server=server, chunks=1, submitted=1.0)
    assert not of_type(PlaceParameterServer, p.handle(JobSubmitted(one), 1.0))
    state = p.cluster.jobs[one.key]
    assert (state.servers, state.awaits_faster, state.unhosted) == ([], True, False)


def test_servers_prefer_nodes_without_gpus() -> None:
    p = planner("chunk", [node("a-1", "a"), node("a-2", "a", gpus=0)], [SITES[0]])
    assert placed(p, with_server("j")) == [("a", "a-2")]


def test_job_with_unplaceable_server_is_not_placed_and_explained() -> None:
    tight = planner("chunk", [node("a-1", "a")], [SITES[0]])
    one = with_server("j", worker=worker(cpu=64_000), server=PodShape(Resources(cpu=65_000, memory=1, gpus=0, pods=1)))
    assert placed(tight, one) == []
    assert tight.plan_of(one.key, 0.0).explanation == (
        "no node at any site can ever hold its parameter server, which needs 65 CPU and 9.31e-10 GiB of memory"
    )


def test_published_rule_with_full_data_site_uses_site_of_chunks() -> None:
    host = {"labels": {"role": "ps"}}
    shape = replace(SERVER, constraints=Constraints(selector=(("role", "ps"),)))
    one = with_server("j", chunks=4, gradient_bits=1.0, server=shape)
    bare = [node("a-1", "a"), node("b-1", "b", gpus=3), node("b-ps", "b", gpus=0, **host)]
    assert placed(planner("chunk-faithful", bare, SITES), one) == [("b", "b-ps")]
    with_room = [*bare, node("a-ps", "a", gpus=0, **host)]
    assert placed(planner("chunk-faithful", with_room, SITES), one) == [("a", "a-ps")]


def small(name: str, cpu: int, gpus: int = 1) -> Node:
    return Node(name, "edge-a", Resources(cpu, 2**36, gpus, 110))


def submit(p: Planner, name: str, at: float, cpu: int, **changes: Any) -> list[Instruction]:
    return p.handle(JobSubmitted(job(name, at, worker=worker(cpu=cpu), **changes)), at)


def submit_large(p: Planner, at: float = 0.0) -> list[Instruction]:
    """Submit a short job whose worker needs 8 CPU of a node and whose parameter server needs 2 CPU."""
    return submit(p, "large", at, 8000, server=worker(0, cpu=2000), servers=1)


def places(out: list[Instruction]) -> list[tuple[str, str | None]]:
    """Return the parameter servers and workers that start, with their nodes."""
    servers = [("server", i.server.node) for i in of_type(PlaceParameterServer, out)]
    return servers + [("worker", i.window.node) for i in of_type(OpenWindow, out)]


@pytest.mark.parametrize("other", [small("n1", 6000), small("n1", 4000, gpus=0)], ids=["GPU", "no GPU"])
@pytest.mark.parametrize("policy", ["chunk", "fifo", "srsf", "drf", "chunk-faithful", "least-loaded"])
def test_server_leaves_the_only_node_of_its_worker(policy: str, other: Node) -> None:
    for seed in range(4):
        p = planner(policy, [small("n0", 8000), other], seed=seed)
        assert places(submit_large(p)) == [("server", "n1"), ("worker", "n0")]


def test_server_without_room_beside_its_worker_waits_for_it() -> None:
    p = planner("chunk", [small("n0", 8000)])
    assert places(submit_large(p)) == []
    assert p.cluster.nodes["n0"].reserved.cpu == 0
    assert p.plan_of("default/large", 0.0).explanation == "its workers do not fit beside its parameter servers"
    assert places(p.handle(NodeChanged(small("n1", 2000, gpus=0)), 1.0)) == [("server", "n1"), ("worker", "n0")]


@pytest.mark.parametrize("policy", ["chunk", "srsf"])
def test_preemptor_stops_none_if_its_server_takes_the_room(policy: str) -> None:
    p = planner(policy, [small("n0", 8000)])
    submit(p, "victim", 0.0, 6000, seconds=1e6)
    assert not of_type(CloseWindow, submit_large(p, 60.0))
    assert p.cluster.nodes["n0"].reserved.cpu == 6000


@pytest.mark.parametrize("policy", ["chunk", "srsf"])
def test_preemptor_places_its_server_beside_its_worker(policy: str) -> None:
    for seed in range(4):
        p = planner(policy, [small("n0", 8000), small("n1", 8000)], seed=seed)
        for name in ("first", "second"):
            submit(p, name, 0.0, 6000, seconds=1e6)
        out = submit_large(p, 60.0)
        assert len(of_type(CloseWindow, out)) == 1
        assert {node for _, node in places(out)} == {"n0", "n1"}


def test_no_quota_is_freed_if_the_server_takes_the_room() -> None:
    p = planner("chunk", [small("n1", 6000)])
    limit = QuotaLimit("requests.nvidia.com/gpu", "gpus", 1)
    p.handle(QuotaChanged(Quota("default", "gpus", (limit,))), 0.0)
    submit(p, "victim", 0.0, 5000, seconds=1e6)
    p.handle(NodeChanged(small("n0", 8000)), 1.0)
    assert not of_type(CloseWindow, submit_large(p, 60.0))


@pytest.mark.parametrize("cpu", [64_000, 1000])
def test_job_that_never_fits_beside_its_server_blocks_no_queue(cpu: int) -> None:
    p = planner("fifo", [node("n1")])
    placed(p, with_server("large", server=worker(0, cpu=cpu), chunks=1))
    (started,) = of_type(OpenWindow, p.handle(JobSubmitted(job("small", 1.0)), 1.0))
    assert started.job == ("default/small" if cpu > 1000 else "default/large")


@pytest.mark.parametrize("policy", ["chunk-faithful", "round-robin", "least-loaded", "random"])
@pytest.mark.parametrize("edge_gpus", [0, 1])
def test_bound_job_keeps_its_server_off_a_cloud_it_excludes(policy: str, edge_gpus: int) -> None:
    """The only GPU at the edge is too slow, so that all chunks go to the cloud, where the server may not."""
    cloud = Site("cloud", Tier.CLOUD, unlimited=True, labels={"zone": "cloud"}, links={"edge": Link(1e9)})
    edge = node("e", "edge", edge_gpus, labels={"zone": "edge"}, speed=1e-3)
    server = replace(SERVER, constraints=Constraints(selector=(("zone", "edge"),)))
    p = planner(policy, [edge], [cloud, Site("edge")])
    assert placed(p, with_server("j", server=server, data_site=None)) == [("edge", "e")]
    state = p.cluster.jobs["default/j"]
    assert {run.home.site for run in state.runs.values()} == {"cloud"}
    # gradients cross the link: 2 q / b is 0.2 s of each mini-batch
    assert {run.declared_batch_seconds for run in state.runs.values()} == {1.0 + 0.2}
