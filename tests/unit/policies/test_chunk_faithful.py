"""The published dispatch rule by exact numbers, and against a brute-force minimum of its cost."""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import fmean

import pytest

from support.builders import job, node, planner, worker
from support.take_over import successor
from tranche.model import Job, JobProgress, Link, Node, PodShape, Resources, Site, Tier
from tranche.planner import JobSubmitted, Planner, Tick, WorkerStarted
from tranche.policies import Placement, get_policy
from tranche.policies.binding.chunk_faithful import ChunkFaithful
from tranche.policies.binding.slot_projection import project_node
from tranche.simulation import SimulationResult, simulate
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState, QueuedChunk
from tranche.state.node import NodeState
from tranche.state.window import SlotBinding

Place = tuple[str, int]
"""Node and slot."""
SERVER = PodShape(Resources(cpu=1000, memory=2**30, gpus=0, pods=1))
RATE = 1e9
"""Bandwidth of every link below, in bit/s."""


def link(seconds: float = 0.0) -> Link:
    """A link whose latency is Δ: the chunks below have next to no data."""
    return Link(RATE, seconds, dedicated=True)


def weighted_flow(result: SimulationResult, jobs: list[Job]) -> float:
    """F = Σ (1/D)(C − r), in seconds."""
    chunks = {one.key: one.chunks for one in jobs}
    return sum((end - one.submitted) / chunks[one.key] for one in result.jobs for end in one.chunk_completions)


def run(jobs: list[Job], nodes: list[Node], sites: tuple[Site, ...] = (), policy: str = "chunk-faithful") -> float:
    """JCT of the last job to complete."""
    result = simulate(jobs, nodes, sites, get_policy(policy))
    assert not result.unfinished
    return max(one.jct_seconds for one in result.jobs)


def entry_of(p: Planner, name: str, chunk: int = 0) -> QueuedChunk:
    return p.cluster.jobs[f"default/{name}"].entries[chunk]


# ---- exact numbers


@pytest.mark.parametrize(
    ("colocated", "batch", "chunk", "density"),
    [(False, 31.65, 36_714.0, 1.0087987e-6), (True, 30.05, 34_858.0, 1.0625118e-6)],
)
def test_speed_and_density_of_a_chunk(colocated: bool, batch: float, chunk: float, density: float) -> None:
    p = planner("chunk-faithful", [node("n1")])
    one = job(
        "a",
        chunks=27,
        epochs=20,
        batches_per_chunk=58,
        step_seconds=30 + 0.05,
        gradient_bits=8e8,
        bits_per_second=1e9,
        server=SERVER,
        servers=1,
    )
    state = JobState(one)
    seconds = p.cluster.batch_seconds(state, "edge-a", colocated=colocated)
    assert seconds == pytest.approx(batch, rel=1e-12)
    assert one.batches_per_chunk_total * seconds == pytest.approx(chunk, rel=1e-12)
    assert state.density(seconds) == pytest.approx(density, rel=1e-7)


def test_cost_counts_transfer_wait_own_work_and_delay_of_others() -> None:
    sites = [Site("edge-a", links={"edge-b": link(20.0)}), Site("edge-b")]
    p = planner("chunk-faithful", [node("n1", "edge-b")], sites)
    a1 = JobSubmitted(job("a1", chunks=2, seconds=80.0), progress=JobProgress(done=frozenset({1})))
    a2 = JobSubmitted(job("a2", chunks=10, seconds=100.0), progress=JobProgress(done=frozenset(range(1, 10))))
    p.handle_all([a1, a2], 0.0)
    p.handle(WorkerStarted("default/a1", 1, 0.0), 0.0)
    new = job("new", 30.0, chunks=4, seconds=50.0, data_site="edge-a", chunk_bytes=1e-9)
    before = entry_of(p, "a2").planned_end
    p.handle(JobSubmitted(new, progress=JobProgress(done=frozenset({1, 2, 3}))), 30.0)
    entry = entry_of(p, "new")
    assert entry.cost == pytest.approx(5 + 7.5 + 12.5 + 5)
    assert entry.ready_at == pytest.approx(50.0)
    assert [entry.planned_start, entry.planned_end] == pytest.approx([80.0, 130.0])
    assert before == pytest.approx(180.0)


def test_slot_of_least_weighted_wait_and_delay_is_taken() -> None:
    p = planner("chunk-faithful", [node("n1", gpus=2)])
    dense = JobSubmitted(job("dense", chunks=1, seconds=60.0))
    light = JobSubmitted(
        job("light", chunks=50, seconds=1000.0, max_workers=1), progress=JobProgress(done=frozenset(range(1, 50)))
    )
    p.handle_all([dense, light], 0.0)
    assert (entry_of(p, "dense").home.slots, entry_of(p, "light").home.slots) == ((0,), (1,))
    p.handle(JobSubmitted(job("new", chunks=100, seconds=100.0)), 0.0)
    entry = entry_of(p, "new")
    assert entry.home.slots == (0,)
    assert entry.cost == pytest.approx(1.6)


@pytest.mark.parametrize(
    ("policy", "chunks", "costs", "seconds", "flow"),
    [
        ("chunk-faithful", 2, [5.0, 5.5], 11.0, 10.5),
        ("chunk-faithful:refresh=printed", 2, [5.0, 10.0], 20.0, 15.0),
        ("chunk-faithful", 3, [10 / 3, 11 / 3, 20 / 3], 20.0, 41 / 3),
    ],
)
def test_keys_are_refreshed_until_the_least_is_fresh(
    policy: str, chunks: int, costs: list[float], seconds: float, flow: float
) -> None:
    nodes = [node("n1"), node("n2", speed=10 / 11)]
    one = job("a", chunks=chunks, seconds=10.0)
    p = planner(policy, nodes)
    p.handle(JobSubmitted(one), 0.0)
    assert [entry_of(p, "a", chunk).cost for chunk in range(chunks)] == pytest.approx(costs)
    result = simulate([one], nodes, (), get_policy(policy))
    assert result.jobs[0].jct_seconds == pytest.approx(seconds)
    assert weighted_flow(result, [one]) == pytest.approx(flow)


def test_an_unknown_refresh_is_refused_with_what_exists() -> None:
    with pytest.raises(ValueError, match="refresh of policy chunk-faithful is fresh or printed, not 'never'"):
        get_policy("chunk-faithful:refresh=never")


def test_costs_of_two_jobs_sum_to_their_flows() -> None:
    jobs = [job("long", seconds=10.0), job("short", 4.0, seconds=2.0)]
    p = planner("chunk-faithful", [node("n1")])
    p.handle(JobSubmitted(jobs[0]), 0.0)
    p.handle(WorkerStarted("default/long", 1, 0.0), 0.0)
    p.handle(JobSubmitted(jobs[1]), 4.0)
    assert (entry_of(p, "long").cost, entry_of(p, "short").cost) == (10.0, 4.0)
    result = simulate(jobs, [node("n1")], (), get_policy("chunk-faithful"))
    assert {one.key: one.jct_seconds for one in result.jobs} == {"default/long": 12.0, "default/short": 2.0}


def test_chunk_in_transit_splits_running_window_on_arrival() -> None:
    sites = (Site("edge-a", links={"edge-b": link(5.0)}), Site("edge-b"))
    a, c = (
        job("a", chunks=4, seconds=100.0),
        job("c", 30.0, chunks=4, seconds=10.0, data_site="edge-a", chunk_bytes=1e-9),
    )
    one_left = JobProgress(done=frozenset({1, 2, 3}))
    p = planner("chunk-faithful", [node("n1", "edge-b")], list(sites))
    p.handle(JobSubmitted(a, progress=one_left), 0.0)
    p.handle(WorkerStarted("default/a", 1, 0.0), 0.0)
    p.handle(JobSubmitted(c, progress=one_left), 30.0)
    entry = entry_of(p, "c")
    assert entry_of(p, "a").cost == 25.0
    assert entry.cost == pytest.approx(1.25 + 0 + 2.5 + 2.5)
    assert [entry.planned_start, entry.planned_end] == pytest.approx([35.0, 45.0])
    (host,) = p.cluster.nodes.values()
    windows = {one.entry.state.job.key: one.windows for one in project_node(host, 30.0)}
    assert windows["default/c"] == [pytest.approx((35.0, 45.0))]
    assert windows["default/a"] == [pytest.approx((30.0, 35.0)), pytest.approx((45.0, 110.0))]


@pytest.mark.parametrize(
    ("transfer", "cloud_chunks", "colocated", "seconds"), [(30.0, 1, False, 130.0), (10.0, 2, True, 90.0)]
)
def test_all_workers_in_the_cloud_send_nothing(
    transfer: float, cloud_chunks: int, colocated: bool, seconds: float
) -> None:
    sites = [
        Site("edge-a", links={"edge-a": link(), "cloud": link(transfer)}),
        Site("cloud", Tier.CLOUD, unlimited=True, links={"cloud": link()}),
    ]
    one = job(
        "a",
        chunks=2,
        seconds=80.0,
        gradient_bits=0.1 * RATE,
        server=SERVER,
        servers=1,
        data_site="edge-a",
        chunk_bytes=1e-9,
    )
    nodes = [node("n1")]
    p = planner("chunk-faithful", nodes, sites)
    p.handle(JobSubmitted(one), 0.0)
    state = p.cluster.jobs[one.key]
    assert sum(entry.home.site == "cloud" for entry in state.entries.values()) == cloud_chunks
    assert state.colocated is colocated
    assert run([one], nodes, tuple(sites)) == pytest.approx(seconds)


@pytest.mark.parametrize("at", [5.0, 50.0])
def test_job_in_the_cloud_keeps_its_server_there_at_take_over(at: float) -> None:
    """Its data arrive after 10 s. A server near the data would make each mini-batch wait for the link."""
    sites = [
        Site("edge-a", links={"edge-a": link(), "cloud": link(10.0)}),
        Site("cloud", Tier.CLOUD, unlimited=True, links={"cloud": link()}),
    ]
    one = job("a", chunks=2, seconds=80.0, gradient_bits=0.1 * RATE, server=SERVER, servers=1)
    p = planner("chunk-faithful", [node("n1")], sites)
    p.handle(JobSubmitted(replace(one, data_site="edge-a", chunk_bytes=1e-9)), 0.0)
    assert p.cluster.jobs[one.key].servers == []
    p.handle(Tick(), at)
    after = successor(p, at)
    after.handle(Tick(), 60.0)
    state = after.cluster.jobs[one.key]
    assert [server.planned.site for server in state.servers] == ["cloud"]
    assert [run.batch_seconds for run in state.runs.values()] == pytest.approx([0.8, 0.8])


def test_rest_of_a_job_goes_to_the_cloud_when_it_is_cheaper() -> None:
    sites = (Site("edge-a", links={"cloud": link(120.0)}), Site("cloud", Tier.CLOUD, unlimited=True))
    one = job("a", chunks=10, seconds=60.0, data_site="edge-a", chunk_bytes=1e-9)
    nodes = [node("n1")]
    p = planner("chunk-faithful", nodes, list(sites))
    p.handle(JobSubmitted(one), 0.0)
    homes = [entry.home.site for entry in p.cluster.jobs[one.key].entries.values()]
    assert homes == ["edge-a"] * 3 + ["cloud"] * 7
    assert run([one], nodes, sites) == pytest.approx(180.0)


# ---- the minimum of the cost


def left_at(host: NodeState, now: float, until: float) -> dict[QueuedChunk, float]:
    """Remaining seconds of the node's unfinished chunks at t0: the queues are run step by step."""
    left = {entry: entry.remaining_seconds(now) for entry in host.entries()}
    while now < until:
        running: list[QueuedChunk] = []
        for entry in left:  # in the order of the keys
            if entry.ready_at <= now and not any(set(entry.home.slots) & set(other.home.slots) for other in running):
                running.append(entry)
        ends = [now + left[entry] for entry in running]
        then = min([until, *ends, *(entry.ready_at for entry in left if entry.ready_at > now)])
        for entry, end in zip(running, ends, strict=True):
            left[entry] -= then - now
            if end == then:
                del left[entry]
        now = then
    return left


def costs(cluster: ClusterState, state: JobState, now: float, own: dict[Place, float]) -> dict[SlotBinding, float]:
    """Eq. (5) for all sets of slots of all nodes, and the cloud; each less dense chunk counts once.

    Args:
        cluster: Everything that was bound before.
        state: The arriving job.
        now: Clock, in seconds.
        own: Seconds of the job's own chunks that were placed before, by node and slot.
    """
    one = state.job
    weight = one.weight / one.chunks
    seconds = one.batches_per_chunk_total * one.step_seconds
    found = {
        SlotBinding(site.name, None): weight * (cluster.transfer_seconds(state, site.name) + seconds)
        for site in map(cluster.sites.__getitem__, cluster.clouds)
    }
    for name, host in cluster.nodes.items():
        length = seconds / host.node.speed
        density = weight / (length * one.gpus)
        transfer = cluster.transfer_seconds(state, host.node.site)
        left = left_at(host, now, now + transfer)
        denser = [(entry, rest) for entry, rest in left.items() if -entry.key.value >= density]
        lighter = [entry for entry in left if -entry.key.value < density]
        waits = [
            own.get((name, slot), 0.0) + sum(rest for entry, rest in denser if slot in entry.home.slots)
            for slot in range(len(host.queues))
        ]
        for slots in combinations(range(len(host.queues)), one.gpus):
            behind = [entry.state.job for entry in lighter if not set(slots).isdisjoint(entry.home.slots)]
            delayed = sum(other.weight / other.chunks for other in behind)
            home = SlotBinding(host.node.site, name, slots)
            found[home] = weight * (transfer + max(waits[slot] for slot in slots) + length) + length * delayed
    return found


@dataclass(frozen=True)
class Compared(ChunkFaithful):
    """The production policy; notes how far the cost of each placement is above the least, and where it is."""

    excess: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    """How far each cost is from that of its own slots."""
    homes: list[SlotBinding] = field(default_factory=list)

    def dispatch(
        self,
        cluster: ClusterState,
        state: JobState,
        chunks: Sequence[int],
        now: float,
        sites: Collection[str] | None = None,
    ) -> tuple[list[Placement], bool]:
        placements, colocated = super().dispatch(cluster, state, chunks, now, sites)
        own: dict[Place, float] = {}
        for placed in placements:
            found = costs(cluster, state, now, own)
            self.excess.append(placed.cost / min(found.values()) - 1.0)
            self.errors.append(placed.cost / found[placed.home] - 1.0)
            self.homes.append(placed.home)
            for slot in placed.home.slots:
                place = (placed.home.node or "", slot)
                length = state.job.batches_per_chunk_total * placed.batch_seconds
                own[place] = own.get(place, 0.0) + length
        return placements, colocated


def drawn_jobs(draw: random.Random, widths: tuple[int, ...]) -> list[Job]:
    return [
        job(
            f"j{i}",
            float(draw.randint(0, 200)),
            chunks=draw.randint(1, 10),
            seconds=float(draw.randint(1, 300)),
            worker=worker(gpus=draw.choice(widths)),
            data_site=draw.choice(["edge-a", "edge-b", None]),
            chunk_bytes=draw.choice([0.0, 1.0, 20.0]),
            weight=draw.choice([0.5, 1.0, 3.0]),
        )
        for i in range(12)
    ]


@pytest.mark.parametrize("widths", [(1,), (1, 2, 3, 4)])
@pytest.mark.parametrize("cloud", [False, True])
def test_every_placement_costs_the_least_over_all_slots(widths: tuple[int, ...], cloud: bool) -> None:
    links = {"edge-a": Link(8.0, 1.0, dedicated=True), "edge-b": Link(8.0, 1.0, dedicated=True)}
    sites = [Site("edge-a", links=links), Site("edge-b", links=links)]
    if cloud:
        to_cloud = {site: Link(8.0, 300.0, dedicated=True) for site in links}
        sites.append(Site("cloud", Tier.CLOUD, unlimited=True, links=to_cloud))
    policy = Compared()
    for seed in range(12):
        draw = random.Random(seed)
        hosts = [
            node(f"n{i}", draw.choice(sorted(links)), draw.randint(max(widths), 8), speed=draw.choice([0.5, 1.0]))
            for i in range(draw.randint(1, 3))
        ]
        jobs = drawn_jobs(draw, widths)
        assert len(simulate(jobs, hosts, sites, policy).jobs) == len(jobs)
    assert max(map(abs, policy.errors)) == pytest.approx(0.0, abs=1e-9)
    assert min(policy.excess) == pytest.approx(0.0, abs=1e-9)
    assert fmean(policy.excess) == pytest.approx(0.0, abs=1e-9 if widths == (1,) else 0.05)  # [I] not all sets compared
    assert {len(home.slots) for home in policy.homes if home.node} == set(widths)
    assert any(home.node is None for home in policy.homes) is cloud
