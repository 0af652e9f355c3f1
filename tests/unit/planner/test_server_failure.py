"""Parameter servers of chunked jobs that fail by themselves."""

import pytest

from support.builders import job, node, planner, worker
from tranche.planner import JobSubmitted, ParameterServerEnded, Planner, Tick
from tranche.planner.settings import PlannerSettings
from tranche.state.job import JobState

KEY = "default/cats"
PAUSE = PlannerSettings().failure_backoff_seconds


def running(**changes: object) -> Planner:
    p = planner("chunk", [node("n1"), node("n2", gpus=0), node("n3", gpus=0)])
    p.handle(JobSubmitted(job("cats", chunks=2, servers=1, server=worker(0), **changes)), 0.0)  # type: ignore[arg-type]
    return p


def state_of(p: Planner) -> JobState:
    return p.cluster.jobs[KEY]


def fail(p: Planner, at: float) -> None:
    """Let the server that runs fail."""
    [server] = state_of(p).servers
    p.handle(ParameterServerEnded(KEY, 0, server.planned.attempt, "Failed", 1), at)


def test_first_failed_server_is_replaced_at_once() -> None:
    p = running()
    fail(p, 5.0)
    assert len(state_of(p).servers) == 1
    assert state_of(p).failures == 1
    assert not any(run.closing for run in state_of(p).runs.values())


def test_second_failed_server_stops_the_workers_for_a_pause() -> None:
    p = running()
    fail(p, 5.0)
    fail(p, 10.0)
    assert state_of(p).servers == []
    assert all(run.closing for run in state_of(p).runs.values())
    assert state_of(p).held_until == pytest.approx(10.0 + 2 * PAUSE)
    assert "parameter server 0 failed with exit code 1" in p.plan_of(KEY, 11.0).explanation


def test_servers_that_fail_beyond_the_limit_fail_the_job() -> None:
    p = running(backoff_limit=1)
    fail(p, 5.0)
    fail(p, 10.0)
    assert state_of(p).failed


@pytest.mark.parametrize("outcome", ["Lost", "Preempted"])
def test_server_that_did_not_fail_itself_does_not_count(outcome: str) -> None:
    p = running()
    [server] = state_of(p).servers
    p.handle(ParameterServerEnded(KEY, 0, server.planned.attempt, outcome), 5.0)  # type: ignore[arg-type]
    p.handle(Tick(), 6.0)
    assert state_of(p).failures == 0
