"""The windows of chunks: planned ones against what the simulator then does, executed ones against the chunks' work."""

from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.builders import job, node, worker
from tranche.model import ChunkState, ChunkWindow, Job, Link, Site
from tranche.planner import JobSubmitted, NodeChanged, Planner, PlannerSettings, SiteChanged
from tranche.planner.forecast.chunk_windows import chunk_windows
from tranche.policies import get_policy
from tranche.simulation import Simulation, SimulationResult

NODES = st.lists(st.integers(1, 3), min_size=1, max_size=3)
SECONDS = st.integers(1, 300)
LINK = Link(8e6, dedicated=True)
BINDING = st.sampled_from(["chunk-faithful", "least-loaded", "round-robin", "random"])


@st.composite
def workloads(draw: st.DrawFn, last_at: int = 300) -> list[Job]:
    """Jobs of one GPU a worker; the data of some come from far, a second a megabyte."""
    return [
        job(
            f"j{number}",
            float(draw(st.integers(0, last_at))),
            chunks=draw(st.integers(1, 4)),
            seconds=float(draw(SECONDS)),
            data_site=draw(st.sampled_from([None, "far"])),
            chunk_bytes=1e6 * draw(st.integers(1, 60)),
        )
        for number in range(draw(st.integers(1, 6)))
    ]


def prepared(policy: str, jobs: list[Job], gpus: list[int], restart: float = 0.0, *, cloud: bool) -> Simulation:
    simulation = Simulation(Planner(get_policy(policy), PlannerSettings(validate=True)), restart, record=True)
    sites = [Site(f"edge-{n % 2}", links={"far": LINK}) for n in range(2)]
    sites += [Site("cloud", unlimited=True, links={"far": LINK})] if cloud else []
    for site in sites:
        simulation.planner.handle(SiteChanged(site), 0.0)
    for number, count in enumerate(gpus):
        simulation.planner.handle(NodeChanged(node(f"n{number}", f"edge-{number % 2}", count)), 0.0)
    for one in jobs:
        simulation.at(one.submitted, JobSubmitted(one))
    return simulation


def finished(simulation: Simulation) -> SimulationResult:
    simulation.run()
    return simulation.result()


@given(jobs=workloads(), gpus=NODES, policy=BINDING, cloud=st.booleans(), restart=st.sampled_from([0.0, 7.0]))
@settings(max_examples=60)
def test_executed_windows_of_a_chunk_sum_to_its_work(
    jobs: list[Job], gpus: list[int], policy: str, cloud: bool, restart: float
) -> None:
    result = finished(prepared(policy, jobs, gpus, restart, cloud=cloud))
    assert len(result.jobs) == len(jobs)
    for one in jobs:
        rows = result.chunks[one.key]
        assert [row.chunk for row in rows] == list(range(one.chunks))
        for row in rows:
            seconds = sum(run.end - run.start for run in row.executed)
            assert seconds == pytest.approx(one.batches_per_chunk * one.step_seconds, rel=1e-9)
            assert row.state is ChunkState.DONE
            assert [run.outcome for run in row.executed] == ["Preempted"] * (len(row.executed) - 1) + ["Succeeded"]


@given(
    jobs=workloads(),
    wide=st.lists(st.booleans(), min_size=6, max_size=6),
    gpus=st.lists(st.integers(2, 4), min_size=1, max_size=2),
    policy=BINDING,
)
@settings(max_examples=60)
def test_windows_on_one_slot_never_overlap(jobs: list[Job], wide: list[bool], gpus: list[int], policy: str) -> None:
    some = [
        job(
            f"w{number}",
            one.submitted,
            chunks=one.chunks,
            seconds=one.step_seconds * 100,
            worker=worker(2 if two else 1),
        )
        for number, (one, two) in enumerate(zip(jobs, wide, strict=False))
    ]
    result = finished(prepared(policy, some, gpus, cloud=False))
    by_slot: dict[tuple[str | None, int], list[tuple[float, float]]] = defaultdict(list)
    for rows in result.chunks.values():
        for run in (run for row in rows for run in row.executed):
            assert run.slots
            for slot in run.slots:
                by_slot[run.node, slot].append((run.start, run.end))
    for times in by_slot.values():
        times.sort()
        assert all(end <= start + 1e-9 for (_, end), (start, _) in pairwise(times))


@given(jobs=workloads(), gpus=NODES, policy=BINDING, cloud=st.booleans())
@settings(max_examples=80)
def test_after_the_last_arrival_a_bound_plan_comes_true(
    jobs: list[Job], gpus: list[int], policy: str, cloud: bool
) -> None:
    simulation = prepared(policy, jobs, gpus, cloud=cloud)
    last = max(one.submitted for one in jobs)
    while simulation.now < last or any(at <= last for at, _, _ in simulation._heap):
        simulation.step()
    planned = {
        key: chunk_windows(simulation.planner, key, simulation.now) for key in list(simulation.planner.cluster.jobs)
    }
    now = simulation.now
    result = finished(simulation)
    for key, rows in planned.items():
        for before, after in zip(rows, result.chunks[key], strict=True):
            assert_came_true(before, after, now)


def assert_came_true(before: ChunkWindow, after: ChunkWindow, now: float) -> None:
    if before.state is ChunkState.DONE:
        return
    assert (before.site, before.node, before.slots) == (after.site, after.node, after.slots)
    assert before.end == pytest.approx(after.end, rel=1e-9)
    if before.state is ChunkState.PLANNED:
        next_start = next(run.start for run in after.executed if run.start > now - 1e-6)
        assert before.start == pytest.approx(next_start, rel=1e-9, abs=1e-6)


@given(jobs=workloads(last_at=0), gpus=NODES)
@settings(max_examples=60)
def test_without_arrivals_the_forecast_of_chunks_comes_true(jobs: list[Job], gpus: list[int]) -> None:
    simulation = prepared("chunk", jobs, gpus, cloud=False)
    simulation.step()
    simulation.planner.forecast(0.0)
    planned = {one.key: chunk_windows(simulation.planner, one.key, 0.0) for one in jobs}
    result = finished(simulation)
    for key, rows in planned.items():
        for before, after in zip(rows, result.chunks[key], strict=True):
            assert before.state is not ChunkState.WAITING
            assert (before.end, before.start) == pytest.approx((after.end, after.executed[0].start), rel=1e-9)
            assert (before.site, before.node) == (after.executed[0].site, after.executed[0].node)


@given(jobs=workloads(), gpus=NODES, cloud=st.booleans())
@settings(max_examples=60)
def test_on_an_idle_cluster_windows_are_as_planned_at_dispatch(jobs: list[Job], gpus: list[int], cloud: bool) -> None:
    result = finished(prepared("chunk-faithful", jobs[:1], gpus, cloud=cloud))
    for row in result.chunks[jobs[0].key]:
        assert row.cost is not None
        [run] = row.executed
        assert (run.start, run.end) == pytest.approx((row.planned_start, row.planned_end), rel=1e-9)
