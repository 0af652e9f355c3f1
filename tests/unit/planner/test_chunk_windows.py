"""Each chunk's place and time window, with exact numbers on small clusters."""

from typing import Any

import pytest

from support.builders import gang, job, node, planner, worker
from tranche.model import ChunkState, ChunkWindow, Link, Preemption, Site
from tranche.planner import JobChanged, JobSubmitted, Planner, WorkerEnded, WorkerStarted
from tranche.planner.forecast import chunk_windows
from tranche.planner.forecast.chunk_windows import chunk_windows as windows_of
from tranche.planner.forecast.chunk_windows import listing

Row = tuple[int, str, str, str | None, tuple[int, ...], float | None, float | None]
DELTA = 5.0
BYTES = 5e6
LINKS = {"far": Link(8e6, dedicated=True)}


def rows(p: Planner, key: str, now: float) -> list[Row]:
    found = windows_of(p, f"default/{key}", now)
    return [(w.chunk, str(w.state), w.site, w.node, w.slots, w.start, w.end) for w in found]


def times(p: Planner, key: str, now: float) -> list[tuple[float | None, float | None]]:
    return [(w.start, w.end) for w in windows_of(p, f"default/{key}", now)]


def with_data(p: Planner, name: str, now: float, **changes: Any) -> None:
    """A job whose data come from another site, each chunk within Δ."""
    p.handle(JobSubmitted(job(name, now, data_site="far", chunk_bytes=BYTES, **changes)), now)


def binding(*nodes: str, gpus: int = 1, policy: str = "chunk-faithful") -> Planner:
    sites = [Site("edge-a", links=LINKS), Site("far", links={"edge-a": LINKS["far"]})]
    return planner(policy, [node(name, gpus=gpus) for name in nodes], sites)


# ---- policies that bind


def test_chunks_of_one_slot_follow_each_other() -> None:
    p = binding("n1")
    p.handle(JobSubmitted(job("a", chunks=3)), 0.0)
    p.handle(WorkerStarted("default/a", 1, 0.0), 0.0)
    assert rows(p, "a", 40.0) == [
        (0, "Running", "edge-a", "n1", (0,), 0.0, 100.0),
        (1, "Planned", "edge-a", "n1", (0,), 100.0, 200.0),
        (2, "Planned", "edge-a", "n1", (0,), 200.0, 300.0),
    ]
    p.handle(WorkerEnded("default/a", 1, "Succeeded", 100.0), 100.0)
    assert rows(p, "a", 100.0)[:2] == [
        (0, "Done", "", None, (), None, None),
        (1, "Planned", "edge-a", "n1", (0,), 100.0, 200.0),
    ]


def test_a_denser_chunk_splits_a_window_when_its_data_come() -> None:
    # a of 100 s runs from 0; c of 10 s arrives at 30 and has its data at 35: c [35, 45), a [0, 35) and [45, 110).
    p = binding("n1")
    p.handle(JobSubmitted(job("a", weight=0.25)), 0.0)
    p.handle(WorkerStarted("default/a", 1, 0.0), 0.0)
    assert times(p, "a", 0.0) == [(0.0, 100.0)]
    with_data(p, "c", 30.0, seconds=10.0, weight=0.25)
    assert times(p, "c", 30.0) == [(35.0, 45.0)]
    assert times(p, "a", 30.0) == [(0.0, 110.0)]


def test_a_denser_chunk_moves_later_ones_by_its_length() -> None:
    p = binding("n1")
    for name, seconds in (("short", 20.0), ("middle", 60.0), ("long", 100.0)):
        p.handle(JobSubmitted(job(name, seconds=seconds)), 0.0)
    assert [times(p, name, 0.0) for name in ("short", "middle", "long")] == [[(0, 20)], [(20, 80)], [(80, 180)]]
    p.handle(JobSubmitted(job("new", 0.0, seconds=30.0)), 0.0)
    assert times(p, "new", 0.0) == [(20.0, 50.0)]
    assert [times(p, name, 0.0) for name in ("short", "middle", "long")] == [[(0, 20)], [(50, 110)], [(110, 210)]]


def test_a_chunk_of_two_gpus_waits_for_both_slots() -> None:
    p = binding("n1", gpus=2)
    p.handle(JobSubmitted(job("narrow", seconds=10.0)), 0.0)
    p.handle(JobSubmitted(job("wide", seconds=40.0, worker=worker(2))), 0.0)
    assert rows(p, "wide", 0.0) == [(0, "Planned", "edge-a", "n1", (0, 1), 10.0, 50.0)]


def test_chunk_windows_run_at_most_max_workers_at_once() -> None:
    p = binding("n1", "n2", "n3")
    p.handle(JobSubmitted(job("a", chunks=3, max_workers=2)), 0.0)
    assert sorted(times(p, "a", 0.0)) == [(0.0, 100.0), (0.0, 100.0), (100.0, 200.0)]


def test_starting_a_pod_counts_each_time() -> None:
    p = binding("n1")
    p.handle(JobSubmitted(job("a", restart_seconds=7.0)), 0.0)
    with_data(p, "b", 0.0, seconds=10.0, restart_seconds=3.0)
    assert times(p, "b", 0.0) == [(DELTA, DELTA + 13.0)]
    assert times(p, "a", 0.0) == [(0.0, 125.0)]  # 5 s of its start are lost; at 18 it starts again


def test_a_worker_that_may_not_be_stopped_ends_first() -> None:
    p = binding("n1")
    p.handle(JobSubmitted(job("a", preemption=Preemption.NEVER)), 0.0)
    p.handle(JobSubmitted(job("b", seconds=10.0)), 0.0)
    assert times(p, "b", 0.0) == [(100.0, 110.0)]


def test_chunks_in_the_cloud_start_with_their_data() -> None:
    sites = [Site("cloud", unlimited=True, links=LINKS), Site("far", links={"cloud": LINKS["far"]})]
    p = planner("chunk-faithful", [], sites)
    with_data(p, "a", 0.0, chunks=2)
    assert rows(p, "a", 0.0) == [(chunk, "Planned", "cloud", None, (), 5.0, 105.0) for chunk in (0, 1)]
    assert all(window.on_demand for window in windows_of(p, "default/a", 0.0))


def test_gang_members_at_unlimited_site_have_nodes_on_demand() -> None:
    p = planner("chunk", [node("n1", gpus=1)], [Site("cloud", unlimited=True, links=LINKS)])
    p.handle(JobSubmitted(gang("a", members=2)), 0.0)
    p.handle(JobSubmitted(job("b", chunks=1)), 0.0)
    found = [(w.state, w.site, w.node, w.on_demand) for w in windows_of(p, "default/a", 0.0)]
    assert found == [(ChunkState.PLANNED, "cloud", None, True)] * 2
    assert not any(window.on_demand for window in windows_of(p, "default/b", 0.0))


def test_a_suspended_job_keeps_its_places_and_has_no_times() -> None:
    p = binding("n1", "n2")
    p.handle(JobSubmitted(job("a", chunks=2)), 0.0)
    p.handle(JobChanged(job("a", chunks=2, suspended=True, generation=2)), 10.0)
    assert {(w.state, w.start, w.end) for w in windows_of(p, "default/a", 10.0)} == {(ChunkState.WAITING, None, None)}


def test_what_is_too_much_to_play_is_lined_up(monkeypatch: pytest.MonkeyPatch) -> None:
    p = binding("n1")
    p.handle(JobSubmitted(job("a", chunks=6)), 0.0)
    whole = times(p, "a", 0.0)
    monkeypatch.setattr(chunk_windows, "MAX_STEPS", 2)
    assert times(p, "a", 0.0) == whole == [(100.0 * n, 100.0 * (n + 1)) for n in range(6)]


def test_the_listing_comes_in_pieces() -> None:
    p = binding("n1")
    p.handle(JobSubmitted(job("a", chunks=300, seconds=1.0)), 0.0)
    assert sum(1 for _ in listing(p, "default/a", 0.0)) > 2


# ---- policies with one queue


def test_chunk_windows_mix_open_windows_and_forecast() -> None:
    p = planner("chunk", [node("n1"), node("n2")])
    p.handle(JobSubmitted(job("a", chunks=3)), 0.0)
    p.handle(WorkerStarted("default/a", 1, 0.0), 0.0)
    p.handle(JobSubmitted(job("b", seconds=1000.0)), 0.0)
    assert rows(p, "a", 0.0)[2] == (2, "Waiting", "", None, (), None, None)
    p.forecast(0.0)
    assert rows(p, "a", 30.0) == [
        (0, "Running", "edge-a", "n1", (), 0.0, 100.0),
        (1, "Planned", "edge-a", "n2", (), 0.0, 130.0),  # its pod has not started yet
        (2, "Planned", "edge-a", "n1", (), 100.0, 200.0),
    ]
    assert rows(p, "b", 30.0) == [(0, "Planned", "edge-a", "n2", (), 100.0, 1100.0)]


def test_a_gang_has_one_row_a_member() -> None:
    p = planner("chunk", [node("n1"), node("n2")])
    p.handle(JobSubmitted(job("first", chunks=2, seconds=10.0)), 0.0)
    p.handle(JobSubmitted(gang("g", members=2)), 0.0)
    p.forecast(0.0)
    assert rows(p, "g", 0.0) == [
        (0, "Planned", "edge-a", "n1", (), 10.0, 110.0),
        (1, "Planned", "edge-a", "n2", (), 10.0, 110.0),
    ]


def test_chunks_of_one_window_train_one_after_the_other() -> None:
    p = planner("chunk", [node("n1")])
    p.handle(JobSubmitted(job("a", chunks=6, seconds=10.0, restart_seconds=10.0)), 0.0)
    p.forecast(0.0)
    assert times(p, "a", 0.0) == [(0, 20), (20, 30), (30, 40), (40, 60), (60, 70), (70, 80)]


def test_chunk_windows_of_unknown_job_are_empty() -> None:
    assert windows_of(binding("n1"), "default/ghost", 0.0) == ()


def test_a_job_that_can_never_run_waits_without_a_time() -> None:
    p = planner("chunk", [node("n1")])
    p.handle(JobSubmitted(job("a", worker=worker(4))), 0.0)
    p.forecast(0.0)
    assert windows_of(p, "default/a", 0.0) == (ChunkWindow(0, ChunkState.WAITING),)
