"""Gangs with a chief: all pods start together or none, and the chief's end is the end of all."""

from typing import Any

import pytest

from support.builders import job, node, of_type, planner, worker
from tranche.model import Job, PlannedServer, Report, Resources, WindowState
from tranche.planner import (
    ChiefEnded,
    CloseParameterServer,
    CloseWindow,
    EvictionRefused,
    Instruction,
    JobChanged,
    JobSubmitted,
    NodeChanged,
    OpenWindow,
    ParameterServerEnded,
    PlaceParameterServer,
    Planner,
    ProgressReported,
    Tick,
    WorkerEnded,
    WorkerRejected,
    WorkerStarted,
    WorkerUnschedulable,
)
from tranche.planner.helper_end import helper_end
from tranche.policies import get_policy
from tranche.simulation import simulate
from tranche.state.job import JobState

KEY = "default/cats"
POLICIES = ["chunk", "fifo", "srsf"]


def gang(name: str = "cats", submitted: float = 0.0, members: int = 2, **changes: Any) -> Job:
    fields: dict[str, Any] = {
        "chunks": members,
        "is_gang": True,
        "servers": 1,
        "server": worker(0),
        "chief": worker(0),
        **changes,
    }
    return job(name, submitted, **fields)


def started(policy: str = "chunk", **changes: Any) -> Planner:
    """A planner with a gang of two, its chief and its server, all of them up."""
    p = planner(policy, [node("n1", gpus=2), node("n2", gpus=0)])
    p.handle(JobSubmitted(gang(**changes)), 0.0)
    for attempt in state_of(p).runs:
        p.handle(WorkerStarted(KEY, attempt, 1.0), 1.0)
    return p


def state_of(p: Planner, key: str = KEY) -> JobState:
    return p.cluster.jobs[key]


def chief(p: Planner) -> PlannedServer:
    found = state_of(p).chief
    assert found is not None
    return found.planned


def chief_ends(p: Planner, outcome: Any, now: float, exit_code: int | None = None) -> list[Instruction]:
    return p.handle(ChiefEnded(KEY, chief(p).attempt, outcome, exit_code), now)


def stop_all(p: Planner, now: float) -> list[Instruction]:
    """Report the end of every closing pod, and return the instructions that follow."""
    state, out = state_of(p), list[Instruction]()
    for server in [one for one in state.servers if one.closing]:
        out += p.handle(helper_end(KEY, server.planned, "Preempted", 143), now)
    for attempt in [attempt for attempt, run in state.runs.items() if run.closing]:
        out += p.handle(WorkerEnded(KEY, attempt, "Preempted", now), now)
    return out


def stopping(out: list[Instruction]) -> tuple[int, int]:
    return len(of_type(CloseWindow, out)), len(of_type(CloseParameterServer, out))


@pytest.mark.parametrize("policy", POLICIES)
def test_members_servers_and_chief_start_in_one_decision(policy: str) -> None:
    p = planner(policy, [node("n1", gpus=2)])
    out = p.handle(JobSubmitted(gang(servers=2)), 0.0)
    assert len(of_type(OpenWindow, out)) == 2
    assert [s.server.is_chief for s in of_type(PlaceParameterServer, out)] == [True, False, False]
    attempts = [s.server.attempt for s in of_type(PlaceParameterServer, out)]
    attempts += [one.window.attempt for one in of_type(OpenWindow, out)]
    assert len(set(attempts)) == 5
    assert [s.is_chief for s in p.plan_of(KEY, 0.0).servers] == [True, False, False]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "changes",
    [{"chief": worker(1)}, {"chief": worker(0, cpu=65_000)}, {"server": worker(0, cpu=65_000)}, {"members": 3}],
    ids=["a GPU for the chief", "a CPU for the chief", "a CPU for the server", "a GPU for a member"],
)
def test_nothing_starts_where_one_pod_finds_no_room(policy: str, changes: dict[str, Any]) -> None:
    p = planner(policy, [node("n1", gpus=2)])
    out = p.handle(JobSubmitted(gang(**changes)), 0.0)
    assert not of_type(OpenWindow, out)
    assert not of_type(PlaceParameterServer, out)
    assert p.cluster.nodes["n1"].reserved == Resources()
    members = changes.get("members", 2)
    assert p.plan_of(KEY, 0.0).explanation == (
        f"needs {members} workers of 1 GPU, a chief and 1 parameter server at once, more than the cluster can hold"
        + (" (2 GPUs in all)" if members > 2 else "")
    )
    p.handle(NodeChanged(node("n2", gpus=1)), 1.0)
    p.handle(NodeChanged(node("n3", gpus=1)), 1.0)
    fits = "server" not in changes and changes.get("chief") != worker(0, cpu=65_000)
    assert bool(state_of(p).runs) == fits


def test_gang_with_unplaceable_chief_does_not_block_strict_queue() -> None:
    p = planner("fifo", [node("n1", gpus=2)])
    p.handle(JobSubmitted(gang(chief=worker(1))), 0.0)
    assert of_type(OpenWindow, p.handle(JobSubmitted(job("dogs", 1.0)), 1.0))


def test_gang_waiting_for_chief_gpu_lets_gang_with_cpu_chief_go() -> None:
    p = planner("fifo-skip", [node("n1", gpus=3)])
    p.handle(JobSubmitted(job("dogs", seconds=1000.0)), 0.0)
    p.handle(JobSubmitted(gang(submitted=1.0, chief=worker(1))), 1.0)
    out = p.handle(JobSubmitted(gang("eels", 2.0)), 2.0)
    assert [one.job for one in of_type(OpenWindow, out)] == ["default/eels"] * 2


def test_chief_with_gpu_is_placed_where_members_still_fit() -> None:
    p = planner("chunk", [node("n1", gpus=4), node("n2", gpus=2), node("n3", gpus=2)])
    p.handle(JobSubmitted(job("dogs", worker=worker(3))), 0.0)
    p.handle(JobSubmitted(gang(worker=worker(2), members=1, chief=worker(1))), 0.0)
    assert chief(p).node == "n1", "where the fewest GPUs are left over"
    assert [run.window.node for run in state_of(p).runs.values()] == ["n2"]


def test_it_is_placed_at_the_site_of_the_members() -> None:
    p = planner("chunk", [node("a1", "edge-a", gpus=0), node("b1", "edge-b", gpus=2), node("b2", "edge-b", gpus=0)])
    p.handle(JobSubmitted(gang()), 0.0)
    assert [server.planned.node for server in state_of(p).servers] == ["b2", "b2"]


def test_others_make_way_for_the_chief_too() -> None:
    p = planner("chunk", [node("n1", gpus=3)])
    p.handle(JobSubmitted(job("dogs", chunks=3, seconds=10_000.0)), 0.0)
    out = p.handle(JobSubmitted(gang(submitted=1.0, seconds=10.0, chief=worker(1), priority=-8)), 1.0)
    assert len(of_type(CloseWindow, out)) == 3
    assert chief(p).node == "n1"
    assert len(state_of(p).runs) == 2


def test_success_of_chief_ends_job_regardless_of_members() -> None:
    p = started()
    out = chief_ends(p, "Succeeded", 50.0, 0)
    assert stopping(out) == (0, 0)
    plan = p.plan_of(KEY, 50.0)
    assert state_of(p).finished
    assert p.progress_of(KEY).done == {0, 1}
    assert (plan.windows, plan.servers) == ((), ())
    assert p.progress_of(KEY).attained_gpu_seconds == 2 * 49.0
    assert all(one.reserved == Resources() for one in p.cluster.nodes.values())


def test_success_of_members_does_not_end_job_before_chief() -> None:
    p = started()
    for attempt in list(state_of(p).runs):
        p.handle(WorkerEnded(KEY, attempt, "Succeeded", 40.0), 40.0)
    assert not state_of(p).finished
    assert not state_of(p).runs
    assert "chief continues" in p.plan_of(KEY, 41.0).explanation
    again = planner("chunk", [node("n1", gpus=2), node("n2", gpus=0)])
    again.restore([JobSubmitted(gang(), p.plan_of(KEY, 41.0), p.progress_of(KEY))], 41.0)
    for one in (p, again):
        assert not state_of(one).finished
        chief_ends(one, "Succeeded", 50.0, 0)
        assert state_of(one).finished


@pytest.mark.parametrize("policy", POLICIES)
def test_failed_chief_stops_gang_and_restarts_it_after_backoff(policy: str) -> None:
    p = started(policy)
    before = {*state_of(p).runs, *(s.planned.attempt for s in state_of(p).servers)}
    assert stopping(chief_ends(p, "Failed", 50.0, 1)) == (2, 1)
    assert p.progress_of(KEY).failures == 1
    record = p.progress_of(KEY).records[-1]
    assert (record.exit_code, record.role) == (1, "chief")
    assert not of_type(OpenWindow, stop_all(p, 52.0))
    assert "its chief failed with exit code 1" in p.plan_of(KEY, 52.0).explanation
    assert not of_type(OpenWindow, p.handle(Tick(), 59.0))
    out = p.handle(Tick(), 60.0)
    assert (len(of_type(OpenWindow, out)), len(of_type(PlaceParameterServer, out))) == (2, 2)
    assert min(*state_of(p).runs, *(s.planned.attempt for s in state_of(p).servers)) > max(before)


def test_nothing_starts_again_before_the_last_pod_has_gone() -> None:
    p = started()
    chief_ends(p, "Lost", 50.0)
    for attempt in list(state_of(p).runs):
        assert not of_type(OpenWindow, p.handle(WorkerEnded(KEY, attempt, "Preempted", 51.0), 51.0))
    assert not of_type(OpenWindow, p.handle(Tick(), 500.0))
    assert len(of_type(OpenWindow, stop_all(p, 501.0))) == 2
    assert p.progress_of(KEY).failures == 0


def test_a_chief_that_fails_too_often_ends_the_job() -> None:
    p = started(backoff_limit=0)
    chief_ends(p, "Failed", 50.0, 1)
    assert state_of(p).failed
    assert not state_of(p).servers
    assert all(run.closing for run in state_of(p).runs.values())


@pytest.mark.parametrize(("outcome", "failures"), [("Failed", 1), ("Preempted", 0), ("Lost", 0)])
def test_a_lost_member_or_server_takes_the_chief_with_it(outcome: Any, failures: int) -> None:
    for event in (WorkerEnded(KEY, 3, outcome, 50.0, exit_code=1), ParameterServerEnded(KEY, 0, 2, outcome, 1)):
        p = started()
        assert list(state_of(p).runs) == [3, 4]
        p.handle(event, 50.0)
        assert chief(p).state is WindowState.CLOSING
        assert all(run.closing for run in state_of(p).runs.values())
        assert p.progress_of(KEY).failures == failures


def test_what_members_finish_after_a_failed_chief_is_not_done() -> None:
    p = started()
    chief_ends(p, "Failed", 50.0, 1)
    for attempt in list(state_of(p).runs):
        p.handle(WorkerEnded(KEY, attempt, "Succeeded", 51.0), 51.0)
    assert not state_of(p).done


@pytest.mark.parametrize("policy", ["chunk", "srsf"])
def test_a_preempted_gang_stops_with_chief_and_servers(policy: str) -> None:
    p = started(policy, seconds=10_000.0)
    out = p.handle(JobSubmitted(job("dogs", 2.0, chunks=2, seconds=1.0, priority=-8)), 2.0)
    assert stopping(out) == (2, 2)
    stop_all(p, 3.0)
    assert not state_of(p).servers
    assert all(run.job == "default/dogs" for run in of_type(OpenWindow, out))


def test_suspended_gang_keeps_closing_servers_until_they_ended() -> None:
    p = started()
    p.handle(JobChanged(gang(suspended=True, generation=2)), 50.0)
    assert [s.state for s in p.plan_of(KEY, 50.0).servers] == [WindowState.CLOSING] * 2
    stop_all(p, 51.0)
    assert p.plan_of(KEY, 51.0).servers == ()
    assert len(of_type(OpenWindow, p.handle(JobChanged(gang(generation=3)), 60.0))) == 2


def test_closing_chief_that_exits_with_0_does_not_end_the_job() -> None:
    p = started()
    p.handle(JobChanged(gang(suspended=True, generation=2)), 50.0)
    chief_ends(p, "Preempted", 51.0, 0)
    stop_all(p, 52.0)
    assert not state_of(p).finished
    assert not state_of(p).done
    assert p.progress_of(KEY).failures == 0
    assert len(of_type(OpenWindow, p.handle(JobChanged(gang(generation=3)), 60.0))) == 2


def test_chief_that_succeeds_as_its_gang_closes_ends_the_job() -> None:
    """It has ended before its pod was deleted, or its termination message says that everything is saved."""
    p = started()
    p.handle(JobChanged(gang(suspended=True, generation=2)), 50.0)
    chief_ends(p, "Succeeded", 51.0, 0)
    stop_all(p, 52.0)
    assert state_of(p).finished


def test_refused_eviction_reopens_gang_only_if_all_members_stay() -> None:
    for everybody in (True, False):
        p = started(seconds=10_000.0)
        p.handle(JobSubmitted(job("dogs", 2.0, chunks=2, seconds=1.0, priority=-8)), 2.0)
        attempts = tuple(state_of(p).runs) + ((1, 2) if everybody else (1,))
        p.handle(EvictionRefused(KEY, attempts, "budget"), 3.0)
        states = {run.window.state for run in state_of(p).runs.values()}
        states |= {server.planned.state for server in state_of(p).servers}
        assert states == {WindowState.OPEN if everybody else WindowState.CLOSING}


def test_unschedulable_chief_stops_gang_with_growing_backoff() -> None:
    p = planner("chunk", [node("n1", gpus=2)], node_exclusion_seconds=0.0)
    p.handle(JobSubmitted(gang()), 0.0)
    now = 0.0
    for pause in (10.0, 20.0):
        out = p.handle(WorkerUnschedulable(KEY, chief(p).attempt, "no free ports"), now)
        assert stopping(out) == (2, 2)
        assert "chief found no place: no free ports" in p.plan_of(KEY, now).explanation
        stop_all(p, now)
        assert not of_type(OpenWindow, p.handle(Tick(), now + pause - 0.1))
        now += pause
        assert len(of_type(OpenWindow, p.handle(Tick(), now))) == 2


def test_gang_with_refused_chief_stops_its_started_members() -> None:
    p = started()
    out = p.handle(WorkerRejected(KEY, "QuotaExceeded", "exceeded quota: pods"), 2.0)
    assert stopping(out) == (2, 2)
    assert not of_type(OpenWindow, stop_all(p, 3.0))
    assert "exceeded quota: pods" in p.plan_of(KEY, 3.0).explanation
    assert p.progress_of(KEY).failures == 0


def test_rejection_from_before_the_gang_was_complete_stops_none() -> None:
    """The operator withdraws the condition when all pods exist; another planner may read it before."""
    p = started()
    for server in state_of(p).servers:
        p.handle(WorkerStarted(KEY, server.planned.attempt, 1.0), 1.0)
    assert not p.handle(WorkerRejected(KEY, "QuotaExceeded", "exceeded quota: pods"), 2.0)


@pytest.mark.parametrize("servers", [0, 1])
def test_only_the_chief_reports_progress_of_its_job(servers: int) -> None:
    p = started(batches_per_chunk=1, step_seconds=100.0, servers=servers)
    for attempt in range(2, 5):
        p.handle(ProgressReported(Report(KEY, attempt, {0: 0.5}, {0: 0.5}), 20.0), 20.0)
    assert not state_of(p).partial
    p.handle(ProgressReported(Report(KEY, chief(p).attempt, {0: 0.5, 1: 0.5}, {0: 0.25, 1: 0.25}), 20.0), 20.0)
    assert state_of(p).partial == {0: 0.25, 1: 0.25}


def test_gang_with_chief_is_forecast_and_completes_in_simulator() -> None:
    p = started(seconds=100.0)
    p.handle(JobSubmitted(gang("dogs", 2.0)), 2.0)
    estimates = p.forecast(2.0)
    assert estimates[KEY].completion == pytest.approx(101.0, abs=5.0)
    assert estimates["default/dogs"].start == pytest.approx(101.0, abs=5.0)
    done = simulate([gang(), gang("dogs", 2.0)], [node("n1", gpus=2)], [], get_policy("chunk"))
    assert [round(one.completed) for one in done.jobs] == [100, 200]
