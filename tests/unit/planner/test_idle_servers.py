"""Idle parameter servers: asked to save and stop, and placed again when the next window opens."""

from dataclasses import replace
from typing import Any

import pytest

from support.builders import job, node, of_type, planner, worker
from tranche.model import Report, Resources, WindowState
from tranche.planner import (
    CloseParameterServer,
    CloseWindow,
    Event,
    EvictionRefused,
    Instruction,
    JobChanged,
    JobRemoved,
    JobSubmitted,
    NodeChanged,
    NodeRemoved,
    OpenWindow,
    ParameterServerEnded,
    PlaceParameterServer,
    Planner,
    ProgressReported,
    Tick,
    WorkerBound,
    WorkerEnded,
    WorkerRejected,
    WorkerStarted,
    WorkerUnschedulable,
)
from tranche.state.job import JobState

KEY = "default/cats"
POLICIES = ["chunk", "chunk-faithful"]
GPU = Resources(gpus=1)
IDLE_AT = 10.0 + 300.0


def idle(policy: str = "chunk", *, saved: float = 0.0, trained: bool = True, **changes: Any) -> Planner:
    """A planner with a job of two chunks, idle since 10 s, since somebody else has taken the only GPU."""
    p = planner(policy, [node("n1"), node("n2", gpus=0)])
    p.handle(JobSubmitted(job("cats", chunks=2, servers=1, server=worker(0), **changes)), 0.0)
    for attempt in list(state_of(p).runs) if trained else []:
        p.handle(WorkerStarted(KEY, attempt, 1.0), 1.0)
    if saved:
        p.handle(ProgressReported(Report(KEY, server(p), {0: 40}, {0: saved}), 5.0), 5.0)
    p.handle(NodeChanged(node("n1", foreign=GPU)), 9.0)
    for attempt in list(state_of(p).runs):
        p.handle(WorkerEnded(KEY, attempt, "Preempted", 10.0), 10.0)
    assert not state_of(p).runs
    return p


def state_of(p: Planner) -> JobState:
    return p.cluster.jobs[KEY]


def server(p: Planner) -> int:
    return state_of(p).servers[0].planned.attempt


def tick(p: Planner, at: float) -> list[Instruction]:
    return p.handle(Tick(), at)


def ended(attempt: int, outcome: Any = "Preempted", exit_code: int | None = 143) -> Event:
    return ParameterServerEnded(KEY, 0, attempt, outcome, exit_code)


@pytest.mark.parametrize("policy", POLICIES)
def test_idle_server_with_durable_state_closes_after_timeout(policy: str) -> None:
    p = idle(policy, durable=True)
    assert not of_type(CloseParameterServer, tick(p, IDLE_AT - 1))
    assert p.next_wakeup() == IDLE_AT
    assert len(of_type(CloseParameterServer, tick(p, IDLE_AT))) == 1
    assert [s.state for s in p.plan_of(KEY, IDLE_AT).servers] == [WindowState.CLOSING]
    assert not of_type(CloseParameterServer, tick(p, IDLE_AT + 1)), "once is enough"


@pytest.mark.parametrize("policy", POLICIES)
def test_closing_server_keeps_room_and_blocks_windows_until_end(
    policy: str,
) -> None:
    p = idle(policy, durable=True)
    old, host = server(p), p.cluster.nodes[state_of(p).servers[0].planned.node or ""]
    tick(p, IDLE_AT)
    held = host.reserved
    assert held.cpu
    back = p.handle(NodeChanged(node("n1")), IDLE_AT + 1)
    assert not of_type(OpenWindow, back), "its successor would read an older checkpoint than it saves"
    out = p.handle(ended(old), IDLE_AT + 5)
    placed = of_type(PlaceParameterServer, out)
    assert [one.server.attempt > old for one in placed] == [True]
    assert len(of_type(OpenWindow, out)) == 1


def test_ended_idle_server_without_windows_frees_room_and_quota() -> None:
    p = idle(durable=True)
    tick(p, IDLE_AT)
    assert not of_type(PlaceParameterServer, p.handle(ended(server(p)), IDLE_AT + 5))
    assert not state_of(p).servers
    assert not p.cluster.nodes["n2"].reserved.cpu


@pytest.mark.parametrize(
    ("saved", "durable", "goes"),
    [(0.0, None, False), (30.0, None, True), (0.0, True, True), (30.0, False, False), (0.0, False, False)],
)
def test_only_idle_server_with_durable_state_is_released(saved: float, durable: bool | None, goes: bool) -> None:
    p = idle(saved=saved, durable=durable)
    assert bool(of_type(CloseParameterServer, tick(p, IDLE_AT + 1000))) is goes


@pytest.mark.parametrize("durable", [None, False])
def test_idle_server_of_job_that_never_trained_is_released(durable: bool | None) -> None:
    """No training is lost, and the room of the server may be what another job waits for."""
    p = idle(trained=False, durable=durable)
    tick(p, IDLE_AT)
    p.handle(ended(server(p)), IDLE_AT + 5)
    assert not state_of(p).servers, "it returns only beside a worker"
    assert of_type(OpenWindow, p.handle(NodeChanged(node("n1")), IDLE_AT + 10))


def test_the_first_checkpoint_of_an_idle_server_lets_it_go() -> None:
    p = idle()
    assert not of_type(CloseParameterServer, tick(p, IDLE_AT + 100))
    report = ProgressReported(Report(KEY, server(p), {0: 40}, {0: 40}), IDLE_AT + 101)
    assert of_type(CloseParameterServer, p.handle(report, IDLE_AT + 101))


def test_a_window_that_opens_in_time_keeps_the_server() -> None:
    p = idle(durable=True)
    attempt = server(p)
    p.handle(NodeChanged(node("n1")), 200.0)
    assert state_of(p).runs
    assert not of_type(CloseParameterServer, tick(p, 2000.0))
    assert server(p) == attempt


def test_server_that_saved_loses_nothing_and_killed_one_does() -> None:
    for exit_code, left in ((143, {0: 100.0}), (0, {0: 100.0}), (137, {0: 30.0}), (None, {0: 30.0})):
        p = idle(saved=30.0)
        state_of(p).done, state_of(p).partial = {0}, {}
        state_of(p).ledger_changed()
        tick(p, IDLE_AT)
        p.handle(ended(server(p), "Lost" if exit_code is None else "Preempted", exit_code), IDLE_AT + 5)
        known = {0: 100.0} if 0 in state_of(p).done else dict(state_of(p).partial)
        assert known == left, exit_code


def test_report_of_closing_server_counts_and_successor_overrides() -> None:
    p = idle(saved=30.0)
    old = server(p)
    tick(p, IDLE_AT)
    p.handle(ProgressReported(Report(KEY, old, {0: 40}, {0: 40}), IDLE_AT + 2), IDLE_AT + 2)
    p.handle(ended(old), IDLE_AT + 3)
    assert state_of(p).partial == {0: 40}
    p.handle(NodeChanged(node("n1")), IDLE_AT + 10)
    p.handle(ProgressReported(Report(KEY, server(p), {0: 35}, {0: 35}), IDLE_AT + 12), IDLE_AT + 12)
    assert state_of(p).partial == {0: 35}


def test_restarted_planner_keeps_closing_server_and_new_timeout() -> None:
    p = idle(durable=True)
    q = planner("chunk", [node("n1", foreign=GPU), node("n2", gpus=0)])
    q.restore([JobSubmitted(state_of(p).job, p.plan_of(KEY, 50.0), p.progress_of(KEY))], 50.0)
    assert not of_type(CloseParameterServer, tick(q, IDLE_AT))
    assert of_type(CloseParameterServer, tick(q, 350.0))
    r = planner("chunk", [node("n1"), node("n2", gpus=0)])
    out = r.restore([JobSubmitted(state_of(q).job, q.plan_of(KEY, 350.0), q.progress_of(KEY))], 351.0)
    assert not of_type(OpenWindow, out), "the old server still saves"
    assert of_type(OpenWindow, r.handle(ended(server(r)), 352.0))


def test_server_kept_by_budget_reopens_and_is_closed_again_later() -> None:
    p = idle(durable=True)
    attempt = server(p)
    tick(p, IDLE_AT)
    p.handle(EvictionRefused(KEY, (attempt,), "budget"), IDLE_AT + 1)
    assert [s.state for s in p.plan_of(KEY, IDLE_AT + 1).servers] == [WindowState.OPEN]
    assert of_type(CloseParameterServer, tick(p, IDLE_AT + 301))
    p.handle(EvictionRefused(KEY, (attempt,), "budget"), IDLE_AT + 302)
    assert of_type(OpenWindow, p.handle(NodeChanged(node("n1")), IDLE_AT + 303))
    assert server(p) == attempt


def test_job_with_closing_server_has_estimate_and_can_be_removed() -> None:
    p = idle(durable=True)
    tick(p, IDLE_AT)
    p.handle(NodeChanged(node("n1")), IDLE_AT + 1)
    estimate = p.forecast(IDLE_AT + 1)[KEY]
    assert estimate.completion == pytest.approx(IDLE_AT + 1 + 200.0)
    assert p.plan_of(KEY, IDLE_AT + 1).explanation
    p.handle(JobRemoved(KEY), IDLE_AT + 2)
    assert not p.cluster.nodes["n2"].reserved.cpu


def suspend(p: Planner, at: float, *, suspended: bool = True) -> list[Instruction]:
    old = state_of(p).job
    return p.handle(JobChanged(replace(old, suspended=suspended, generation=old.generation + 1)), at)


def trains(policy: str = "chunk", **changes: Any) -> Planner:
    """A planner with a job of one worker on n1 and a parameter server on n2."""
    p = planner(policy, [node("n1"), node("n2", gpus=0)])
    p.handle(JobSubmitted(job("cats", servers=1, server=worker(0, cpu=63_500), **changes)), 0.0)
    assert state_of(p).servers[0].planned.node == "n2"
    return p


def worker_ends(p: Planner, at: float) -> list[Instruction]:
    (attempt,) = state_of(p).runs
    return p.handle(WorkerEnded(KEY, attempt, "Preempted", at), at)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("durable", [True, None, False])
def test_server_of_suspended_job_closes_after_its_workers_ended(policy: str, durable: bool | None) -> None:
    p = trains(policy, durable=durable)
    out = suspend(p, 10.0)
    assert len(of_type(CloseWindow, out)) == 1
    assert not of_type(CloseParameterServer, out)
    assert [s.state for s in p.plan_of(KEY, 10.0).servers] == [WindowState.OPEN]
    assert len(of_type(CloseParameterServer, worker_ends(p, 12.0))) == 1
    assert p.cluster.nodes["n2"].reserved.cpu, "it saves there"
    p.handle(ended(server(p)), 14.0)
    assert not state_of(p).servers
    assert not p.cluster.nodes["n2"].reserved.cpu


def test_resumed_job_keeps_open_server_and_awaits_closing_one() -> None:
    p = trains()
    attempt = server(p)
    suspend(p, 10.0)
    suspend(p, 11.0, suspended=False)
    worker_ends(p, 12.0)
    assert (server(p), len(state_of(p).runs)) == (attempt, 1)
    suspend(p, 20.0)
    worker_ends(p, 21.0)
    assert not of_type(OpenWindow, suspend(p, 22.0, suspended=False))
    assert of_type(OpenWindow, p.handle(ended(attempt), 23.0))
    assert server(p) > attempt


def test_server_of_permanently_rejected_job_closes_too() -> None:
    p = trains()
    assert not of_type(CloseParameterServer, p.handle(WorkerRejected(KEY, "Invalid", "no", permanent=True), 5.0))
    assert of_type(CloseParameterServer, worker_ends(p, 6.0))


def test_failed_server_of_suspended_job_loses_unsaved_batches() -> None:
    p = trains()
    p.handle(ProgressReported(Report(KEY, server(p), {0: 40}, {0: 40}), 5.0), 5.0)
    state_of(p).partial[0] = 60.0
    state_of(p).ledger_changed()
    suspend(p, 10.0)
    p.handle(ended(server(p), "Failed", 137), 11.0)
    assert state_of(p).partial == {0: 40.0}
    assert not state_of(p).servers, "and none takes its place"


def test_job_suspended_without_scheduler_is_stopped_by_the_next() -> None:
    p = trains()
    q = planner("chunk", [node("n1"), node("n2", gpus=0)])
    halted = replace(state_of(p).job, suspended=True, generation=2)
    out = q.restore([JobSubmitted(halted, p.plan_of(KEY, 50.0), p.progress_of(KEY))], 50.0)
    assert len(of_type(CloseWindow, out)) == 1
    assert of_type(CloseParameterServer, worker_ends(q, 51.0))
    r = planner("chunk", [node("n1"), node("n2", gpus=0)])
    q.handle(EvictionRefused(KEY, (server(q),), "budget"), 52.0)
    out = r.restore([JobSubmitted(halted, replace(q.plan_of(KEY, 52.0)), q.progress_of(KEY))], 53.0)
    assert [s.state for s in r.plan_of(KEY, 53.0).servers] == [WindowState.CLOSING]


@pytest.mark.parametrize("policy", POLICIES)
def test_unschedulable_server_closes_with_workers_and_moves(policy: str) -> None:
    p = trains(policy)
    p.handle(NodeChanged(node("n3", gpus=0)), 1.0)
    lost = server(p)
    out = p.handle(WorkerUnschedulable(KEY, lost, "no free ports"), 31.0)
    assert (len(of_type(CloseWindow, out)), len(of_type(CloseParameterServer, out))) == (1, 1)
    p.handle(WorkerUnschedulable(KEY, lost, "no free ports"), 31.5)
    worker_ends(p, 32.0)
    placed = of_type(PlaceParameterServer, p.handle(ended(lost, "Lost", None), 33.0))
    assert [one.server.node for one in placed] == ["n3"]
    assert len(state_of(p).runs) == 1


def test_a_server_that_never_had_a_node_has_lost_nothing() -> None:
    p = idle(saved=30.0)
    state_of(p).partial[0] = 60.0
    state_of(p).ledger_changed()
    p.handle(WorkerUnschedulable(KEY, server(p), "no free ports"), 31.0)
    p.handle(ended(server(p), "Lost", None), 33.0)
    assert state_of(p).partial == {0: 60.0}


def test_lost_idle_server_returns_with_the_next_worker() -> None:
    p = idle()
    assert not of_type(PlaceParameterServer, p.handle(ended(server(p), "Lost", None), 20.0))
    out = p.handle(NodeChanged(node("n1")), 30.0)
    assert len(of_type(PlaceParameterServer, out)) == len(of_type(OpenWindow, out)) == 1


def replaced(done: set[int]) -> Planner:
    """A planner whose job has done these chunks and has a new server; the last report of the former one is missing."""
    p = idle(saved=30.0)
    tick(p, IDLE_AT)
    state_of(p).done, state_of(p).partial = done, {}
    state_of(p).ledger_changed()
    p.handle(ended(server(p)), IDLE_AT + 5)
    p.handle(NodeChanged(node("n1")), IDLE_AT + 10)
    return p


def test_server_drained_before_its_start_has_lost_nothing() -> None:
    p = replaced({0})
    p.handle(WorkerBound(KEY, server(p), "n2"), IDLE_AT + 11)
    p.handle(ended(server(p), "Preempted", None), IDLE_AT + 12)
    assert state_of(p).done == {0}


def test_server_suspended_before_its_start_has_lost_nothing() -> None:
    p = replaced({0})
    suspend(p, IDLE_AT + 11)
    for attempt in list(state_of(p).runs):
        p.handle(WorkerEnded(KEY, attempt, "Lost", IDLE_AT + 12), IDLE_AT + 12)
    p.handle(ended(server(p), "Lost", None), IDLE_AT + 13)
    assert state_of(p).done == {0}


def test_started_server_without_report_has_lost_what_is_unsaved() -> None:
    p = replaced({0})
    p.handle(WorkerStarted(KEY, server(p), IDLE_AT + 11), IDLE_AT + 11)
    p.handle(ended(server(p), "Preempted", None), IDLE_AT + 12)
    assert (state_of(p).done, state_of(p).partial) == (set(), {0: 30.0})


def test_server_that_ended_without_planner_may_have_trained() -> None:
    p = replaced({0})
    q = planner("chunk", [node("n1"), node("n2", gpus=0)])
    q.restore([JobSubmitted(state_of(p).job, p.plan_of(KEY, IDLE_AT + 11), p.progress_of(KEY))], IDLE_AT + 11)
    q.handle(ended(server(q), "Lost", None), IDLE_AT + 12)
    assert (state_of(q).done, state_of(q).partial) == (set(), {0: 30.0})


@pytest.mark.parametrize("policy", POLICIES)
def test_workers_of_unplaceable_lost_server_are_closed(policy: str) -> None:
    p = trains(policy)
    p.handle(NodeRemoved("n2"), 5.0)
    p.handle(NodeChanged(node("n1", foreign=Resources(cpu=60_000))), 6.0)
    out = p.handle(ended(server(p), "Lost", None), 7.0)
    assert len(of_type(CloseWindow, out)) == 1
    assert not of_type(PlaceParameterServer, worker_ends(p, 8.0))
    out = p.handle(NodeChanged(node("n2", gpus=0)), 9.0)
    assert len(of_type(PlaceParameterServer, out)) == len(of_type(OpenWindow, out)) == 1
