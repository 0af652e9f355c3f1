from typing import Any

import pytest

from support.builders import job, node, planner, worker
from tranche.model import Checkpoint, Report, Timings
from tranche.planner import (
    JobSubmitted,
    ParameterServerEnded,
    Planner,
    ProgressReported,
    WorkerEnded,
    WorkerStarted,
)
from tranche.planner.handlers.progress import is_superseded, reported_chunks, training_progress
from tranche.state.job import JobState

KEY = "default/cats"
POLICIES = ["chunk", "chunk-faithful"]


def running(policy: str = "chunk", servers: int = 1, chunks: int = 2, **changes: Any) -> Planner:
    """A planner with a job of `chunks` chunks, 100 mini-batches of 1 s each, whose workers train since 0 s."""
    p = planner(policy, [node("n1", gpus=chunks), node("n2", gpus=0)])
    fields: dict[str, Any] = {"server": worker(0), "servers": servers} if servers else {}
    p.handle(JobSubmitted(job("cats", chunks=chunks, **fields, **changes)), 0.0)
    for attempt in list(state_of(p).runs):
        p.handle(WorkerStarted(KEY, attempt, 0.0), 0.0)
    return p


def state_of(p: Planner) -> JobState:
    return p.cluster.jobs[KEY]


def server(p: Planner) -> int:
    return state_of(p).servers[0].planned.attempt


def attempt_of(p: Planner, chunk: int) -> int:
    return state_of(p).chunk_runs[chunk].window.attempt


def report(p: Planner, attempt: int, applied: dict[int, float], durable: dict[int, float], at: float) -> None:
    p.handle(ProgressReported(Report(KEY, attempt, applied, durable), at), at)


def rest(p: Planner, chunk: int, now: float) -> float:
    return state_of(p).remaining_seconds(chunk, now, 1.0)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_applied_and_not_saved_counts_for_estimates_only(policy: str) -> None:
    p = running(policy)
    report(p, server(p), {0: 60, 1: 10}, {0: 50}, 40.0)
    assert p.progress_of(KEY).partial == {0: 50}
    assert (rest(p, 0, 40.0), rest(p, 1, 40.0)) == (40.0, 90.0)
    assert (rest(p, 0, 45.0), rest(p, 1, 45.0)) == (35.0, 85.0)  # by the pace since the report
    assert training_progress(state_of(p), 45.0).batches == pytest.approx(80.0)


def test_job_without_reports_is_estimated_from_its_run_time() -> None:
    p = running()
    silent = training_progress(state_of(p), 30.0)
    assert silent.batches == pytest.approx(60.0)
    assert (silent.total_batches, silent.estimated, silent.reported) == (200, True, None)
    timings = Timings(1.5, 0.5, 1.0)
    p.handle(ProgressReported(Report(KEY, server(p), {0: 1, 1: 1}, {}, timings), 40.0), 40.0)
    progress = training_progress(state_of(p), 40.0)
    assert progress.batches == pytest.approx(2.0)
    assert (progress.estimated, progress.reported, progress.timings) == (False, 40.0, timings)


@pytest.mark.parametrize("least", [5e-324, 1e-290, 1e-20])
def test_vanishing_gain_between_reports_sets_no_pace(least: float) -> None:
    p = running(servers=0)
    before = [run.batch_seconds for run in state_of(p).runs.values()]
    for reports in range(3):
        for attempt, run in list(state_of(p).runs.items()):
            gained = {run.window.chunks[0]: least * reports}
            report(p, attempt, gained, gained, 15.0 * reports)
    assert [run.batch_seconds for run in state_of(p).runs.values()] == before
    p.handle(JobSubmitted(job("dogs", 40.0)), 40.0)
    p.forecast(50.0)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_report_twice_and_an_older_one_change_nothing(policy: str) -> None:
    p = running(policy)
    report(p, server(p), {0: 20, 1: 20}, {0: 10}, 20.0)
    report(p, server(p), {0: 60, 1: 50}, {0: 50, 1: 40}, 50.0)
    ledger, left = p.progress_of(KEY), rest(p, 0, 50.0)
    report(p, server(p), {0: 60, 1: 50}, {0: 50, 1: 40}, 50.0)
    report(p, server(p), {0: 20, 1: 20}, {0: 10}, 50.0)
    assert p.progress_of(KEY) == ledger
    assert rest(p, 0, 50.0) == left


@pytest.mark.parametrize("policy", POLICIES)
def test_a_report_of_an_attempt_that_is_over_is_not_counted(policy: str) -> None:
    p = running(policy)
    old = server(p)
    p.handle(ParameterServerEnded(KEY, 0, old), 10.0)
    assert server(p) > old
    report(p, old, {0: 100}, {0: 100}, 11.0)
    assert p.progress_of(KEY).partial == {}
    assert not reported_chunks(state_of(p), old)
    assert list(reported_chunks(state_of(p), server(p))) == [0, 1]


def test_only_an_attempt_that_another_one_replaces_is_superseded() -> None:
    p = running(chunks=1)
    old = server(p)
    p.handle(ParameterServerEnded(KEY, 0, old), 10.0)
    new = server(p)
    assert is_superseded(state_of(p), old)
    assert not is_superseded(state_of(p), new)
    p.handle(WorkerEnded(KEY, attempt_of(p, 0), "Succeeded", 100.0), 100.0)
    assert state_of(p).finished
    assert not state_of(p).servers
    assert not is_superseded(state_of(p), new), "it still has to save the model"


def test_workers_of_a_job_with_parameter_servers_do_not_report() -> None:
    p = running()
    report(p, attempt_of(p, 0), {0: 50}, {0: 50}, 10.0)
    assert p.progress_of(KEY).partial == {}


@pytest.mark.parametrize("policy", POLICIES)
def test_ledger_is_reset_to_checkpoint_when_the_server_is_lost(policy: str) -> None:
    p = running(policy)
    report(p, server(p), {0: 90, 1: 30}, {0: 70, 1: 20}, 90.0)
    p.handle(WorkerEnded(KEY, attempt_of(p, 0), "Succeeded", 100.0), 100.0)
    assert state_of(p).done == {0}
    p.handle(ParameterServerEnded(KEY, 0, server(p)), 101.0)
    progress = p.progress_of(KEY)
    assert (progress.done, progress.partial) == (frozenset(), {0: 70, 1: 20})
    assert progress.lost_batches == 30 + 10
    assert 0 in state_of(p).chunk_runs, "the chunk that was done is trained again"


@pytest.mark.parametrize("policy", POLICIES)
def test_first_report_of_new_server_overrides_the_ledger(policy: str) -> None:
    p = running(policy)
    report(p, server(p), {0: 90, 1: 30}, {0: 70, 1: 20}, 90.0)
    p.handle(ParameterServerEnded(KEY, 0, server(p)), 91.0)
    report(p, server(p), {0: 60, 1: 25}, {0: 60, 1: 25}, 95.0)  # an older checkpoint than was reported, and a newer one
    assert p.progress_of(KEY).partial == {0: 60, 1: 25}
    report(p, server(p), {0: 50, 1: 10}, {0: 50}, 96.0)  # only the first report of an attempt may take back
    assert p.progress_of(KEY).partial == {0: 60, 1: 25}


def test_lost_server_without_reports_resets_nothing() -> None:
    p = running()
    p.handle(WorkerEnded(KEY, attempt_of(p, 0), "Succeeded", 100.0), 100.0)
    p.handle(ParameterServerEnded(KEY, 0, server(p)), 101.0)
    assert state_of(p).done == {0}


def test_chunk_done_before_first_report_stays_done_until_loss() -> None:
    p = running()
    p.handle(WorkerEnded(KEY, attempt_of(p, 0), "Succeeded", 100.0), 100.0)
    report(p, server(p), {0: 100, 1: 90}, {0: 40, 1: 40}, 100.0)
    assert state_of(p).done == {0}
    p.handle(ParameterServerEnded(KEY, 0, server(p)), 101.0)
    assert p.progress_of(KEY).partial == {0: 40, 1: 40}


def test_preempted_worker_loses_no_batches_while_server_lives() -> None:
    p = running()
    report(p, server(p), {0: 30, 1: 30}, {}, 30.0)
    p.handle(WorkerEnded(KEY, attempt_of(p, 0), "Preempted", 40.0), 40.0)
    assert p.progress_of(KEY).lost_batches == 0
    assert rest(p, 0, 40.0) == 70.0


@pytest.mark.parametrize("policy", POLICIES)
def test_saved_last_chunk_finishes_job_even_if_its_worker_fails(policy: str) -> None:
    p = running(policy, chunks=1)
    report(p, server(p), {0: 100}, {0: 100}, 100.0)
    assert not state_of(p).finished, "its pod still runs: its end is counted"
    p.handle(WorkerEnded(KEY, attempt_of(p, 0), "Failed", 101.0), 101.0)
    assert state_of(p).finished


def test_a_saved_chunk_without_a_worker_is_done() -> None:
    p = running(chunks=1)
    p.handle(WorkerEnded(KEY, attempt_of(p, 0), "Failed", 50.0), 50.0)
    assert not state_of(p).runs, "after a failure the job pauses"
    report(p, server(p), {0: 100}, {0: 100}, 51.0)
    assert state_of(p).finished
    assert not state_of(p).servers


def test_a_worker_without_a_server_reports_its_own_chunks() -> None:
    p = running(servers=0)
    report(p, attempt_of(p, 0), {0: 60, 1: 60}, {0: 50, 1: 50}, 60.0)
    assert p.progress_of(KEY).partial == {0: 50}
    p.handle(WorkerEnded(KEY, attempt_of(p, 0), "Lost", 70.0), 70.0)
    assert p.progress_of(KEY).lost_batches == pytest.approx(60 + 10 - 50)
    assert rest(p, 0, 70.0) == 50.0


def test_worker_with_older_checkpoint_resets_its_chunk() -> None:
    p = running(servers=0, chunks=1)
    p.handle(WorkerEnded(KEY, 1, "Preempted", 60.0, {0: 60}), 60.0)
    p.handle(WorkerStarted(KEY, attempt_of(p, 0), 70.0), 70.0)
    report(p, attempt_of(p, 0), {0: 45}, {0: 45}, 71.0)
    assert p.progress_of(KEY).partial == {0: 45}
    assert p.progress_of(KEY).lost_batches == 15


def test_rank_0_speaks_for_its_gang() -> None:
    p = running("srsf", servers=0, chunks=2, is_gang=True)
    report(p, attempt_of(p, 1), {0: 50, 1: 50}, {}, 50.0)
    assert training_progress(state_of(p), 50.0).estimated
    report(p, attempt_of(p, 0), {0: 50, 1: 50}, {}, 50.0)
    assert not training_progress(state_of(p), 50.0).estimated


def test_the_pace_is_measured_between_reports() -> None:
    p = running()
    report(p, server(p), {0: 10, 1: 10}, {}, 20.0)
    report(p, server(p), {0: 20, 1: 15}, {}, 40.0)
    runs = state_of(p).chunk_runs
    assert (runs[0].batch_seconds, runs[1].batch_seconds) == (2.0, 4.0)
    assert rest(p, 0, 40.0) == 160.0


def test_reports_without_progress_show_none_and_lose_no_more() -> None:
    p = running(servers=0, chunks=1)
    for at in (0.0, 20.0, 40.0):
        report(p, attempt_of(p, 0), {0: at}, {0: at / 2}, at)
    for at in (60.0, 80.0):
        report(p, attempt_of(p, 0), {0: 40}, {0: 20}, at)
    assert training_progress(state_of(p), 80.0).batches == pytest.approx(40.0)
    assert training_progress(state_of(p), 90.0).batches == pytest.approx(50.0)
    assert state_of(p).runs[1].batch_seconds == 1.0
    p.handle(WorkerEnded(KEY, attempt_of(p, 0), "Lost", 80.0), 80.0)
    assert p.progress_of(KEY).lost_batches == pytest.approx(20.0)


def test_reports_between_long_batches_restart_no_estimate() -> None:
    p = running(servers=0, chunks=1, seconds=6000.0)
    report(p, attempt_of(p, 0), {0: 0}, {0: 0}, 0.0)
    report(p, attempt_of(p, 0), {0: 1}, {0: 1}, 60.0)
    report(p, attempt_of(p, 0), {0: 1}, {0: 1}, 110.0)
    assert state_of(p).remaining_seconds(0, 110.0, 60.0) == pytest.approx(6000.0 - 110.0)


def test_first_report_of_new_server_begins_estimates_of_workers() -> None:
    p = running()
    report(p, server(p), {0: 40, 1: 40}, {0: 40, 1: 40}, 40.0)
    p.handle(ParameterServerEnded(KEY, 0, server(p)), 41.0)
    report(p, server(p), {0: 40, 1: 40}, {0: 40, 1: 40}, 70.0)
    assert rest(p, 0, 70.0) == 60.0


def test_a_restarted_planner_knows_the_checkpoint() -> None:
    p = running()
    report(p, server(p), {0: 60, 1: 50}, {0: 50, 1: 40}, 60.0)
    attempt = server(p)
    q = planner("chunk", [node("n1", gpus=2), node("n2", gpus=0)])
    q.restore([JobSubmitted(state_of(p).job, p.plan_of(KEY, 60.0), p.progress_of(KEY))], 61.0)
    assert state_of(q).checkpoint == Checkpoint(attempt, {0: 50, 1: 40})
    report(q, attempt, {0: 40}, {0: 40}, 62.0)  # late: from before the checkpoint
    assert q.progress_of(KEY).partial == {0: 50, 1: 40}
    q.handle(ParameterServerEnded(KEY, 0, attempt), 63.0)
    assert q.progress_of(KEY).partial == {0: 50, 1: 40}


@pytest.mark.parametrize("wild", [{7: 50.0}, {0: -5.0}, {0: 1e300}])
def test_numbers_beyond_the_job_stay_within_it(wild: dict[int, float]) -> None:
    p = running()
    report(p, server(p), wild, wild, 10.0)
    assert all(0 <= batches <= 100 for batches in p.progress_of(KEY).partial.values())
    assert set(p.progress_of(KEY).partial) <= {0, 1}
