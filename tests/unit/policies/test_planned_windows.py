"""Planned windows of chunks under chunk-faithful: cost, t*, planned end, and how an arrival shifts them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.builders import job, node, of_type, planner, worker
from tranche.model import Job, JobProgress, Link, Node, Site, Tier
from tranche.planner import CloseWindow, JobSubmitted, NodeChanged, OpenWindow, Planner, PlannerSettings
from tranche.policies import get_policy
from tranche.policies.binding.slot_projection import Interval, project_node
from tranche.simulation import Simulation
from tranche.state.job import QueuedChunk

Chunk = tuple[str, int]


def planned(p: Planner, now: float) -> dict[str, dict[Chunk, list[Interval]]]:
    """The windows of every chunk as the projection has them now, by node."""
    return {
        name: {(one.entry.state.job.key, one.entry.chunk): one.windows for one in project_node(host, now)}
        for name, host in p.cluster.nodes.items()
    }


def entry_of(p: Planner, key: str, chunk: int = 0) -> QueuedChunk:
    return p.cluster.jobs[key].entries[chunk]


def simulated(jobs: list[Job], nodes: list[Node]) -> Simulation:
    simulation = Simulation(Planner(get_policy("chunk-faithful"), PlannerSettings(validate=True)))
    for host in nodes:
        simulation.planner.handle(NodeChanged(host), 0.0)
    for one in jobs:
        simulation.at(one.submitted, JobSubmitted(one))
    return simulation


@st.composite
def workloads(draw: st.DrawFn) -> list[Job]:
    count = draw(st.integers(2, 8))
    arrivals = draw(st.lists(st.integers(0, 300), min_size=count, max_size=count))
    return [
        job(f"j{i}", float(at), chunks=draw(st.integers(1, 5)), seconds=float(draw(st.integers(1, 200))))
        for i, at in enumerate(sorted(arrivals))
    ]


def test_dispatch_on_an_idle_slot_plans_what_is_executed() -> None:
    p = planner("chunk-faithful", [node("n1"), node("n2")])
    opened = of_type(OpenWindow, p.handle(JobSubmitted(job("a", 7.0, chunks=2, seconds=50.0)), 7.0))
    for chunk, one in enumerate(opened):
        entry = entry_of(p, "default/a", chunk)
        assert (entry.planned_start, entry.planned_end) == (one.window.start, one.window.end) == (7.0, 57.0)
        assert entry.cost == 25.0


def test_chunks_of_one_job_on_one_slot_are_planned_one_by_one() -> None:
    p = planner("chunk-faithful", [node("n1")])
    p.handle(JobSubmitted(job("a", chunks=3, seconds=10.0)), 0.0)
    entries = [entry_of(p, "default/a", chunk) for chunk in range(3)]
    assert [(e.planned_start, e.planned_end) for e in entries] == [(0.0, 10.0), (10.0, 20.0), (20.0, 30.0)]


def test_a_denser_chunk_in_transit_splits_the_planned_window() -> None:
    sites = [Site("edge-a", links={"edge-b": Link(8.0, dedicated=True)}), Site("edge-b")]
    p = planner("chunk-faithful", [node("n1", "edge-b")], sites)
    p.handle(JobSubmitted(job("dense", seconds=10.0, data_site="edge-a", chunk_bytes=40.0)), 0.0)
    p.handle(JobSubmitted(job("long", seconds=100.0)), 0.0)
    dense, long = entry_of(p, "default/dense"), entry_of(p, "default/long")
    assert (dense.ready_at, dense.planned_start, dense.planned_end) == (40.0, 40.0, 50.0)
    assert (long.planned_start, long.planned_end) == (0.0, 110.0)
    assert planned(p, 0.0)["n1"]["default/long", 0] == [(0.0, 40.0), (50.0, 110.0)]


def test_chunk_at_unlimited_site_is_planned_from_its_arrival() -> None:
    sites = [Site("edge-a", links={"cloud": Link(8.0, dedicated=True)}), Site("cloud", Tier.CLOUD, unlimited=True)]
    p = planner("chunk-faithful", [], sites)
    p.handle(JobSubmitted(job("a", chunks=2, seconds=10.0, data_site="edge-a", chunk_bytes=5.0)), 1.0)
    entry = entry_of(p, "default/a", 1)
    assert (entry.cost, entry.planned_start, entry.planned_end) == (7.5, 6.0, 16.0)


def test_worker_of_two_gpus_is_planned_when_both_slots_are_free() -> None:
    p = planner("chunk-faithful", [node("n1", gpus=2)])
    p.handle(JobSubmitted(job("a", seconds=30.0)), 0.0)
    p.handle(JobSubmitted(job("b", seconds=20.0)), 0.0)
    p.handle(JobSubmitted(job("wide", seconds=40.0, worker=worker(gpus=2))), 0.0)
    wide = entry_of(p, "default/wide")
    assert (wide.planned_start, wide.planned_end) == (30.0, 70.0)


def test_a_chunk_restored_from_a_status_has_no_planned_window() -> None:
    first = planner("chunk-faithful", [node("n1")])
    a = job("a", seconds=100.0)
    first.handle(JobSubmitted(a), 0.0)
    second = planner("chunk-faithful", [node("n1")])
    second.restore([JobSubmitted(a, first.plan_of(a.key, 5.0), JobProgress())], 5.0)
    entry = entry_of(second, a.key)
    assert (entry.cost, entry.planned_start, entry.planned_end) == (None, None, None)


@given(jobs=workloads(), gpus=st.lists(st.integers(1, 3), min_size=1, max_size=3))
@settings(max_examples=60)
def test_an_arrival_shifts_less_dense_chunks_by_its_length(jobs: list[Job], gpus: list[int]) -> None:
    *before, last = jobs
    nodes = [node(f"n{i}", gpus=count) for i, count in enumerate(gpus)]
    simulation = simulated(before, nodes)
    while simulation._heap and simulation._heap[0][0] <= last.submitted:
        simulation.step()
    p, now = simulation.planner, last.submitted
    old = planned(p, now)
    one = job("one", now, seconds=last.step_seconds * 100)
    p.handle(JobSubmitted(one), now)
    entry = entry_of(p, one.key)
    new = planned(p, now)
    home = entry.home
    assert home.node is not None
    assert entry.planned_start is not None
    seconds = last.step_seconds * 100
    for name, windows in old.items():
        for key, planned_before in windows.items():
            other = entry_of(p, *key)
            expected = planned_before
            if name == home.node and other.home.slots == home.slots and other.key > entry.key:
                expected = shifted(planned_before, entry.planned_start, seconds)
            assert len(new[name][key]) == len(expected)
            for got, wanted in zip(new[name][key], expected, strict=True):
                assert got == pytest.approx(wanted, abs=1e-6)


def shifted(windows: list[Interval], after: float, seconds: float) -> list[Interval]:
    """Return the windows with every part after the moment ``after`` moved by ``seconds``."""
    moved: list[Interval] = []
    for start, end in windows:
        if start < after - 1e-9:
            moved.append(Interval(start, min(end, after)))
        if end > after + 1e-9:
            moved.append(Interval(max(start, after) + seconds, end + seconds))
    return moved


@given(jobs=workloads(), count=st.integers(1, 4))
@settings(max_examples=60)
def test_executed_windows_of_a_chunk_sum_to_its_length(jobs: list[Job], count: int) -> None:
    simulation = simulated(jobs, [node(f"n{i}") for i in range(count)])
    simulation.run()
    completions = {done.key: done.chunk_completions for done in simulation.result().jobs}
    windows: dict[tuple[str, int], tuple[str | None, Chunk, Interval]] = {}
    for at, step in simulation.history:
        if isinstance(step, OpenWindow):
            (chunk,) = step.window.chunks
            executed = Interval(at, completions[step.job][chunk])
            windows[step.job, step.window.attempt] = (
                step.window.node,
                (step.job, chunk),
                executed,
            )
        elif isinstance(step, CloseWindow):
            host, place, (start, _) = windows[step.job, step.window.attempt]
            windows[step.job, step.window.attempt] = (host, place, Interval(start, at))
    for one in jobs:
        for chunk in range(one.chunks):
            trained = sum(w.end - w.start for _, place, w in windows.values() if place == (one.key, chunk))
            assert trained == pytest.approx(one.step_seconds * 100)
    for name in simulation.planner.cluster.nodes:
        assert not overlaps(w for host, _, w in windows.values() if host == name)


@given(jobs=workloads(), gpus=st.lists(st.integers(1, 3), min_size=1, max_size=3))
@settings(max_examples=60)
def test_planned_windows_on_one_slot_never_overlap(jobs: list[Job], gpus: list[int]) -> None:
    simulation = simulated(jobs, [node(f"n{i}", gpus=count) for i, count in enumerate(gpus)])
    while simulation._heap:
        simulation.step()
        for host in simulation.planner.cluster.nodes.values():
            slots: dict[int, list[Interval]] = {}
            for one in project_node(host, simulation.now):
                slots.setdefault(one.entry.home.slots[0], []).extend(one.windows)
            assert not any(overlaps(windows) for windows in slots.values())


def overlaps(windows: Iterable[Interval]) -> bool:
    """Return whether two of the windows share more than a rounding error."""
    return any(first.end > second.start + 1e-9 for first, second in pairwise(sorted(windows)))
