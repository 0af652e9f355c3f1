"""Planning on GPUs of several kinds: declared and learned speeds, and chunks that wait for faster GPUs."""

from typing import Any

import pytest

from support.builders import gang, job, node, of_type, planner, worker
from tranche.estimate import LevelNetwork
from tranche.model import ChunkRequest, Link, Node, Site, Tier
from tranche.model.gpu_kind import GpuKinds
from tranche.planner import (
    ChunksRequested,
    ExtendWindow,
    JobSubmitted,
    NodeChanged,
    OpenWindow,
    PlaceParameterServer,
    Planner,
    Tick,
    WorkerEnded,
    WorkerStarted,
)
from tranche.planner.learned_state import learned_state_of, recall
from tranche.planner.scheduling.gpu_choice import nodes_to_start_on

LABEL = "nvidia.com/gpu.product"
FAST, SLOW = "A100", "T4"
SPEEDS = {FAST: 1.0, SLOW: 0.25}


def kind(name: str, what: str, gpus: int = 1, site: str = "edge-a") -> Node:
    return node(name, site, gpus, labels={LABEL: what})


def made(*nodes: Node, policy: str = "chunk", speeds: dict[str, float] | None = None, **settings: Any) -> Planner:
    kinds = GpuKinds(speeds=SPEEDS if speeds is None else speeds)
    return planner(policy, list(nodes), gpu_kinds=kinds, **settings)


def opened(instructions: list[Any]) -> list[tuple[str | None, Any]]:
    windows = [one.window for one in of_type(OpenWindow, instructions)]
    return [(window.node, window.end - window.start) for window in windows]


def test_kind_comes_from_the_configured_label() -> None:
    kinds = GpuKinds(labels=("example.org/gpu", LABEL), speeds={"T4": 0.5})
    one = planner("chunk", [node("n", labels={"example.org/gpu": "T4", LABEL: "A100"})], gpu_kinds=kinds)
    known = one.cluster.nodes["n"].node
    assert (known.gpu_kind, known.speed) == ("T4", 0.5)
    plain = planner("chunk", [node("n")], gpu_kinds=kinds).cluster.nodes["n"].node
    assert (plain.gpu_kind, plain.speed) == ("", 1.0)


def test_window_on_slow_gpu_has_its_declared_time() -> None:
    found = opened(made(kind("n", SLOW)).handle(JobSubmitted(job("j", seconds=100.0)), 0.0))
    assert found == [("n", pytest.approx(400.0))]


def test_job_declares_its_own_time_on_a_kind() -> None:
    one = job("j", seconds=100.0, step_seconds_by_kind={SLOW: 1.5})
    assert opened(made(kind("n", SLOW)).handle(JobSubmitted(one), 0.0)) == [("n", pytest.approx(150.0))]


@pytest.mark.parametrize("whole", [False, True])
def test_job_starts_on_its_fastest_free_gpus(whole: bool) -> None:
    nodes = (kind("a", SLOW, 2), kind("b", FAST, 4), kind("c", SLOW))
    one = gang("j", members=3) if whole else job("j", chunks=3)
    assert [name for name, _ in opened(made(*nodes).handle(JobSubmitted(one), 0.0))] == ["b", "b", "b"]


def test_own_times_decide_which_kind_is_fastest() -> None:
    one = job("j", seconds=100.0, step_seconds_by_kind={SLOW: 0.5})
    assert opened(made(kind("a", FAST), kind("b", SLOW)).handle(JobSubmitted(one), 0.0)) == [("b", pytest.approx(50.0))]


def test_last_chunk_waits_for_the_faster_gpu_of_its_job() -> None:
    one = made(kind("a", FAST), kind("b", SLOW))
    assert [name for name, _ in opened(one.handle(JobSubmitted(job("j", chunks=2)), 0.0))] == ["a"]
    one.handle(WorkerStarted("default/j", 1, 0.0), 0.0)
    assert "free GPUs are slower" in one.plan_of("default/j", 1.0).explanation
    assert one.handle(Tick(), 50.0) == []
    assert [name for name, _ in opened(one.handle(WorkerEnded("default/j", 1, "Succeeded", 100.0), 100.0))] == ["a"]


def test_slow_gpu_is_used_if_the_chunk_completes_sooner_there() -> None:
    one = made(kind("a", FAST), kind("b", SLOW))
    found = opened(one.handle(JobSubmitted(job("j", chunks=5)), 0.0))
    assert sorted(name or "" for name, _ in found) == ["a", "b"]


def test_job_that_waits_first_waits_for_a_faster_gpu() -> None:
    one = made(kind("a", FAST), kind("b", SLOW), policy="srsf")
    one.handle(JobSubmitted(job("first", seconds=100.0)), 0.0)
    one.handle(WorkerStarted("default/first", 1, 0.0), 0.0)
    assert opened(one.handle(JobSubmitted(job("second", 50.0, seconds=200.0)), 50.0)) == []
    assert "free GPUs are slower" in one.plan_of("default/second", 50.0).explanation
    assert [name for name, _ in opened(one.handle(JobSubmitted(job("third", 60.0, seconds=300.0)), 60.0))] == ["b"]
    ended = one.handle(WorkerEnded("default/first", 1, "Succeeded", 100.0), 100.0)
    assert [name for name, _ in opened(ended)] == ["a"]


@pytest.mark.parametrize("policy", ["chunk", "srsf"])
def test_job_that_waits_for_a_faster_gpu_has_no_servers(policy: str) -> None:
    """They would be idle, stop after five minutes, and start again at once."""
    one = made(kind("a", FAST), kind("b", SLOW), policy=policy)
    one.handle(JobSubmitted(job("first", seconds=2000.0)), 0.0)
    one.handle(WorkerStarted("default/first", 1, 0.0), 0.0)
    second = job("second", 50.0, seconds=4000.0, servers=1, server=worker(gpus=0))
    assert not of_type(PlaceParameterServer, one.handle(JobSubmitted(second), 50.0))
    assert "free GPUs are slower" in one.plan_of("default/second", 50.0).explanation
    ended = one.handle(WorkerEnded("default/first", 1, "Succeeded", 1000.0), 1000.0)
    assert (len(of_type(PlaceParameterServer, ended)), [name for name, _ in opened(ended)]) == (1, ["a"])


def test_gpu_beside_the_server_is_faster_than_its_kind() -> None:
    nodes = [kind("a", FAST, 2), kind("b", FAST, 2), kind("c", SLOW)]
    one = made(*nodes, policy="srsf", level_network=LevelNetwork((300e9, 100e9, 10e9, 1e9)))
    one.handle(JobSubmitted(job("j", servers=1, server=worker(gpus=0), gradient_bits=1e10)), 0.0)
    state = one.cluster.jobs["default/j"]
    (beside,) = {server.planned.node for server in state.servers}
    chosen = [one.cluster.nodes[name] for name in ("a", "b")]
    kept, _ = nodes_to_start_on(one.cluster, state, chosen, [0], 0.0, first=False)
    assert [known.node.name for known in kept] == [beside]


def test_gpu_that_is_not_free_in_time_is_not_awaited() -> None:
    one = made(kind("a", FAST), kind("b", SLOW), policy="srsf")
    one.handle(JobSubmitted(job("first", seconds=100.0)), 0.0)
    one.handle(WorkerStarted("default/first", 1, 0.0), 0.0)
    assert opened(one.handle(JobSubmitted(job("second", 50.0, seconds=200.0)), 50.0)) == []
    assert [name for name, _ in opened(one.handle(Tick(), 110.1))] == ["b"]


def test_events_add_no_timers_to_a_wait_for_a_faster_gpu() -> None:
    one = made(kind("a", FAST), kind("b", SLOW))
    one.handle(JobSubmitted(job("j", chunks=2)), 0.0)
    one.handle(WorkerStarted("default/j", 1, 0.0), 0.0)
    before = one.context.timers.copied({"default/j"}).due(float("inf")).count("default/j")
    for number in range(5):
        one.handle(NodeChanged(kind("c", SLOW, gpus=number % 2)), 10.0 + number)
    assert "free GPUs are slower" in one.plan_of("default/j", 20.0).explanation
    assert one.context.timers.due(float("inf")).count("default/j") == before


@pytest.mark.parametrize(("chunks", "more"), [(4, False), (9, True)])
def test_slow_worker_gets_more_chunks_if_they_complete_sooner(chunks: int, more: bool) -> None:
    one = planner("chunk", [kind("a", FAST), kind("b", SLOW)], gpu_kinds=GpuKinds(speeds={SLOW: 0.5}))
    one.handle(JobSubmitted(job("j", chunks=chunks)), 0.0)
    for attempt in (1, 2):
        one.handle(WorkerStarted("default/j", attempt, 0.0), 0.0)
    ended = one.handle(WorkerEnded("default/j", 1, "Succeeded", 100.0), 100.0)
    (third,) = of_type(OpenWindow, ended)
    one.handle(WorkerStarted("default/j", third.window.attempt, 100.0), 100.0)
    run = one.cluster.jobs["default/j"].runs[2]
    assert run.home.node == "b"
    request = ChunkRequest("default/j", 2, run.window.fence, {run.window.chunks[0]: 100.0})
    found = of_type(ExtendWindow, one.handle(ChunksRequested(request, 199.0), 199.0))
    assert bool(found) is more


def test_restored_window_has_the_time_of_its_kind() -> None:
    first = made(kind("b", SLOW))
    first.handle(JobSubmitted(job("j", seconds=100.0)), 0.0)
    plan = first.plan_of("default/j", 0.0)
    second = made(kind("b", SLOW))
    second.restore([JobSubmitted(job("j", seconds=100.0), plan=plan)], 10.0)
    (run,) = second.cluster.jobs["default/j"].runs.values()
    assert run.batch_seconds == pytest.approx(4.0)


def test_forecast_has_the_wait_for_the_faster_gpu() -> None:
    one = made(kind("a", FAST), kind("b", SLOW))
    one.handle(JobSubmitted(job("j", chunks=2, seconds=100.0)), 0.0)
    one.handle(WorkerStarted("default/j", 1, 0.0), 0.0)
    one.forecast(0.0)
    assert one.plan_of("default/j", 0.0).estimated_completion == pytest.approx(200.0)


def test_unlimited_site_has_the_speed_of_its_kind() -> None:
    sites = [Site("edge-a"), Site("cloud", Tier.CLOUD, unlimited=True, gpu_kind=SLOW)]
    one = planner("chunk", [kind("a", FAST)], sites, gpu_kinds=GpuKinds(speeds=SPEEDS))
    one.handle(JobSubmitted(job("j", seconds=100.0)), 0.0)
    state = one.cluster.jobs["default/j"]
    assert one.cluster.batch_seconds(state, "cloud") == pytest.approx(4.0)


def trained(one: Planner, team: str, number: int, pace: dict[str, float], now: float, **changes: Any) -> float:
    """Train a job of eight chunks, each window as long as its kind really needs."""
    key = f"{team}/{number}"
    found = one.handle(JobSubmitted(job(str(number), now, key=key, uid=key, chunks=8, max_workers=4, **changes)), now)
    while windows := of_type(OpenWindow, found):
        for window in (w.window for w in windows):
            one.handle(WorkerStarted(key, window.attempt, now), now)
        found, at = [], now
        for window in (w.window for w in windows):
            kind_of = one.cluster.nodes[window.node or ""].node.gpu_kind
            at = now + 100.0 * len(window.chunks) * pace[kind_of]
            found += one.handle(WorkerEnded(key, window.attempt, "Succeeded", at), at)
        now = max(now, at) + 1.0
    return now


def test_kind_slower_than_declared_is_learned_from_several_jobs() -> None:
    nodes = [kind(f"f{i}", FAST) for i in range(2)] + [kind(f"s{i}", SLOW) for i in range(2)]
    one = made(*nodes, speeds={}, jobs_per_node_factor=3)
    now = 0.0
    for number in range(2):
        now = trained(one, f"team-{number % 2}", number, {FAST: 1.0, SLOW: 1.6}, now)
    assert one.cluster.speed_model.kinds == {}
    for number in range(2, 12):
        now = trained(one, f"team-{number % 2}", number, {FAST: 1.0, SLOW: 1.6}, now)
    speeds = one.cluster.speed_model
    assert speeds.node_factor("new", SLOW) / speeds.node_factor("new", FAST) == pytest.approx(1.6, rel=0.2)
    successor = made(*nodes, speeds={}, jobs_per_node_factor=3)
    recall(successor.context, learned_state_of(one.cluster, 0.0))
    assert successor.cluster.speed_model.node_factor("new", SLOW) == pytest.approx(
        speeds.node_factor("new", SLOW), 1e-4
    )


def test_one_tenant_moves_the_speed_of_a_kind_by_less_than_two() -> None:
    one = made(kind("f", FAST), kind("s", SLOW), speeds={}, jobs_per_node_factor=3)
    now = trained(one, "good", 0, {FAST: 1.0, SLOW: 1.0}, 0.0)
    for number in range(1, 8):
        now = trained(one, "evil", number, {FAST: 1.0, SLOW: 50.0}, now)
    assert 1.0 <= one.cluster.speed_model.node_factor("new", SLOW) < 2.0


def test_own_times_of_jobs_are_no_evidence_on_a_kind() -> None:
    one = made(kind("f", FAST), kind("s", SLOW), speeds={}, jobs_per_node_factor=3)
    now, times = 0.0, {FAST: 0.9, SLOW: 1.1}
    for number in range(6):
        now = trained(one, f"team-{number % 2}", number, {FAST: 1.0, SLOW: 1.9}, now, step_seconds_by_kind=times)
    assert (one.cluster.speed_model.kinds, one.cluster.speed_model.nodes) == ({}, {})


def test_one_kind_alone_has_no_factor() -> None:
    one = made(kind("a", SLOW), kind("b", SLOW), speeds={}, jobs_per_node_factor=3)
    now = 0.0
    for number in range(6):
        now = trained(one, f"team-{number % 2}", number, {SLOW: 1.5}, now)
    assert one.cluster.speed_model.kinds == {}


def arrived(copies: int, near_kind: str, **changes: Any) -> dict[str, set[int]]:
    """Sites with copies of a job's data after its arrival: `near` is 50 s from its data, and `far` 100 s."""
    sites = [Site("here", links={"near": Link(1e9), "far": Link(5e8)}), Site("near"), Site("far")]
    nodes = [kind("a", FAST, 1, "here"), kind("b", near_kind, 4, "near"), kind("c", FAST, 4, "far")]
    p = planner(f"chunk:copies={copies}", nodes, sites, gpu_kinds=GpuKinds(speeds=SPEEDS))
    one = job("j", 0.0, **{"chunks": 4, "data_site": "here", "chunk_bytes": 50 * 1e9 / 8, **changes})
    p.handle(JobSubmitted(one), 0.0)
    return {site: set(chunks) for site, chunks in p.cluster.jobs[one.key].copies.items()}


def test_copies_ahead_go_where_chunks_end_first_by_kind() -> None:
    assert arrived(1, SLOW, seconds=1000.0) == {"far": {0, 1, 2, 3}}  # 100 + 1000 s, and not 50 + 4000 s


def test_copies_ahead_go_to_slow_near_site_if_chunks_are_short() -> None:
    assert set(arrived(1, SLOW, seconds=10.0)) == {"near"}  # 50 + 40 s against 100 + 10 s


def test_copies_ahead_go_to_nearest_site_of_equal_kinds() -> None:
    assert arrived(1, FAST, seconds=1000.0)["near"] == {0, 1, 2, 3}
