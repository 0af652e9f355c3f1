"""Parameter servers of chunked jobs that fail by themselves."""

import pytest

from support.builders import job, node, of_type, planner, worker
from tranche.model import ChunkGrant, ChunkRequest, Report
from tranche.planner import (
    ChunksRequested,
    JobSubmitted,
    ParameterServerEnded,
    PlaceParameterServer,
    Planner,
    ProgressReported,
    Tick,
    WorkerEnded,
    WorkerStarted,
)
from tranche.planner.handlers.chunk_request import chunk_grant
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


def report(p: Planner, batches: float, at: float) -> None:
    """Report chunk 0 by the server that runs."""
    [server] = state_of(p).servers
    p.handle(ProgressReported(Report(KEY, server.planned.attempt, {0: batches}, {0: batches}), at), at)


def attempt(p: Planner) -> int:
    """Return the attempt of the only worker."""
    (number,) = state_of(p).runs
    return number


def reloaded() -> Planner:
    """A planner whose server failed at 101 s; its successor has 90 of the 100 mini-batches that its worker trained."""
    p = running(max_workers=1)
    p.handle(WorkerStarted(KEY, attempt(p), 0.0), 0.0)
    report(p, 90, 90.0)
    fail(p, 101.0)
    report(p, 90, 111.0)
    return p


@pytest.mark.parametrize("finished", [None, 100.0])
def test_end_from_before_a_server_failed_makes_no_chunk_done(finished: float | None) -> None:
    p = reloaded()
    p.handle(WorkerEnded(KEY, attempt(p), "Succeeded", 112.0, {0: 100}, finished=finished), 112.0)
    assert (state_of(p).done, state_of(p).partial) == (set(), {0: 90})
    assert 0 in state_of(p).chunk_runs, "its last mini-batches are trained again"


def test_end_under_the_new_server_makes_the_chunk_done() -> None:
    p = reloaded()
    p.handle(WorkerEnded(KEY, attempt(p), "Succeeded", 125.0, {0: 100}, finished=124.0), 125.0)
    assert state_of(p).done == {0}


def ask(p: Planner, at: float) -> ChunkGrant | None:
    asking = attempt(p)
    p.handle(ChunksRequested(ChunkRequest(KEY, asking, asking, {0: 100}), at), at)
    return chunk_grant(state_of(p), asking, asking, {0: 100})


def test_request_from_before_a_server_failed_gets_chunk_again() -> None:
    p = reloaded()
    assert ask(p, 112.0) == ChunkGrant((0,), attempt(p), {0: 90})
    report(p, 100, 130.0)
    given = ask(p, 131.0)
    assert given is not None
    assert given.chunks == (1,)
    assert state_of(p).done == {0}


def test_request_long_after_a_server_failed_makes_the_chunk_done() -> None:
    p = reloaded()
    given = ask(p, 200.0)
    assert given is not None
    assert given.chunks == (1,)
    assert state_of(p).done == {0}


def test_no_server_replaces_one_that_failed_beside_last_worker() -> None:
    """A planner that takes over reads both ends at once."""
    p = running(max_workers=1)
    p.handle(WorkerStarted(KEY, attempt(p), 0.0), 0.0)
    p.handle(WorkerEnded(KEY, attempt(p), "Succeeded", 100.0, {0: 100}), 100.0)
    [server], last = state_of(p).servers, attempt(p)
    p.handle(WorkerStarted(KEY, last, 101.0), 101.0)
    failed = ParameterServerEnded(KEY, 0, server.planned.attempt, "Failed", 1)
    out = p.handle_all([failed, WorkerEnded(KEY, last, "Succeeded", 201.0, {1: 100})], 201.0)
    assert of_type(PlaceParameterServer, out) == []
    assert state_of(p).finished
    assert state_of(p).servers == []
