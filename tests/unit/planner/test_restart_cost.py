"""Costs of stopping and starting workers, learned where users declare none, and weighed before each preemption."""

from dataclasses import replace

import pytest

from support.builders import job, node, of_type, planner, worker
from tranche.estimate.restart_cost import MAX_SECONDS
from tranche.model.tenancy import ClaimLimits, Tenancy
from tranche.planner import (
    CloseWindow,
    JobChanged,
    JobRemoved,
    JobSubmitted,
    OpenWindow,
    Planner,
    Tick,
    WorkerEnded,
    WorkerStarted,
)
from tranche.planner.learned_state import LearnedState, learned_state_of, recall
from tranche.planner.scheduling.windows import MAX_CHUNKS
from tranche.state.job import JobState


def untold(name: str, at: float = 0.0, **changes: object) -> JobSubmitted:
    return JobSubmitted(job(name, at, restart_declared=False, **changes))  # type: ignore[arg-type]


def start(p: Planner, event: JobSubmitted, seconds: float) -> JobState:
    """Submit the job; its worker starts to train ``seconds`` later."""
    at = event.job.submitted
    (opened,) = of_type(OpenWindow, p.handle(event, at))
    p.handle(WorkerStarted(event.job.key, opened.window.attempt, at + seconds), at + seconds)
    return p.cluster.jobs[event.job.key]


def finish(p: Planner, name: str, at: float) -> None:
    (attempt,) = p.cluster.jobs[f"default/{name}"].runs
    p.handle(WorkerEnded(f"default/{name}", attempt, "Succeeded", at), at)


def test_restart_cost_is_own_start_time_or_average_of_all() -> None:
    p = planner("chunk", [node("n1", gpus=2)])
    first = start(p, untold("first"), 20.0)
    assert first.restart_seconds == 20.0
    second = start(p, untold("second", 30.0), 4.0)
    assert second.restart_seconds == 4.0
    finish(p, "first", 130.0)
    third = start(p, untold("third", 150.0), 0.0)
    assert third.restart_seconds == 0.0
    p.handle(untold("fourth", 160.0), 160.0)
    assert 0.0 < p.cluster.jobs["default/fourth"].restart_seconds < 20.0


def test_restart_cost_includes_save_time_but_not_victim_wait() -> None:
    p = planner("chunk:aging=0", [node("n1")])
    large = start(p, untold("large", seconds=1e5), 10.0)
    out = p.handle(untold("small", 20.0, seconds=1.0), 20.0)
    assert [one.job for one in of_type(CloseWindow, out)] == ["default/large"]
    p.handle(WorkerEnded("default/large", 1, "Preempted", 26.0), 26.0)
    assert large.restart_seconds == 16.0
    p.handle(WorkerStarted("default/small", 1, 27.0), 27.0)
    assert p.cluster.jobs["default/small"].restart_seconds == 16.0, "as all: its pod had to wait for the other one"


def test_what_the_user_says_wins() -> None:
    p = planner("chunk", [node("n1")])
    state = start(p, JobSubmitted(job("told", restart_seconds=7.0)), 30.0)
    assert state.restart_seconds == 7.0
    nothing = start(planner("chunk", [node("n1")]), JobSubmitted(job("nothing")), 30.0)
    assert nothing.restart_seconds == 0.0


@pytest.mark.parametrize(("seconds", "stopped"), [(1.0, True), (60.0, False)])
def test_job_is_not_preempted_for_less_gain_than_cost(seconds: float, stopped: bool) -> None:
    p = planner("chunk:aging=0", [node("n1")])
    start(p, untold("running", seconds=100.0), seconds)
    out = p.handle(untold("waiting", 70.0, seconds=20.0), 70.0)
    assert bool(of_type(CloseWindow, out)) is stopped


@pytest.mark.parametrize(
    ("chunks", "seconds", "stopped"), [(1, 50.0, True), (1, 80.0, False), (2, 130.0, True), (2, 145.0, False)]
)
def test_waiting_job_retries_preemption_after_cheaper_start(chunks: int, seconds: float, stopped: bool) -> None:
    p = planner("chunk:aging=0", [node("n1")])
    recall(p.context, LearnedState(start_seconds=50.0))
    p.handle(untold("running", chunks=chunks, max_workers=1), 0.0)
    assert not of_type(CloseWindow, p.handle(untold("waiting", 1.0, seconds=seconds), 1.0))
    out = p.handle(WorkerStarted("default/running", 1, 2.0), 2.0)
    assert [one.job for one in of_type(CloseWindow, out)] == ["default/running"] * stopped


@pytest.mark.parametrize(("began", "stopped"), [(25.0, True), (2.0, False)])
def test_waiting_job_retries_preemption_after_later_start(began: float, stopped: bool) -> None:
    p = planner("chunk:aging=0", [node("n1")])
    p.handle(JobSubmitted(job("running", chunks=3, max_workers=1)), 0.0)
    assert not of_type(CloseWindow, p.handle(JobSubmitted(job("waiting", 20.0, seconds=160.0)), 20.0))
    out = p.handle(WorkerStarted("default/running", 1, began), 25.0)
    assert [one.job for one in of_type(CloseWindow, out)] == ["default/running"] * stopped


@pytest.mark.parametrize(("saved", "stopped"), [(2.0, 1), (25.0, 0)])
def test_waiting_job_retries_preemption_after_faster_save(saved: float, stopped: int) -> None:
    p = planner("chunk:aging=0", [node("n1", gpus=2)])
    recall(p.context, LearnedState(save_seconds=40.0))
    p.handle(untold("running", chunks=2), 0.0)
    p.handle_all([WorkerStarted("default/running", attempt, 0.0) for attempt in (1, 2)], 0.0)
    (closed,) = of_type(CloseWindow, p.handle(untold("small", 10.0, seconds=1.0), 10.0))
    assert not of_type(CloseWindow, p.handle(untold("waiting", 10.0, seconds=120.0), 10.0))
    at, progress = 10.0 + saved, dict.fromkeys(closed.window.chunks, 10.0 + saved)
    out = p.handle(WorkerEnded("default/running", closed.window.attempt, "Preempted", at, progress), at)
    assert [one.job for one in of_type(CloseWindow, out)] == ["default/running"] * stopped


def test_waiting_job_retries_preemption_after_other_jobs_save() -> None:
    p = planner("chunk:aging=0", [node("n1"), node("n2", "edge-b", gpus=2)])
    recall(p.context, LearnedState(save_seconds=60.0))
    start(p, untold("running", seconds=180.0), 0.0)
    start(p, untold("other", seconds=1000.0, worker=worker(gpus=2), priority=1), 0.0)
    assert not of_type(CloseWindow, p.handle(untold("waiting", 10.0, seconds=55.0, data_site="edge-a"), 10.0))
    urgent = untold("urgent", 20.0, seconds=10.0, worker=worker(gpus=2), priority=2)
    assert [one.job for one in of_type(CloseWindow, p.handle(urgent, 20.0))] == ["default/other"]
    p.handle(WorkerEnded("default/other", 1, "Preempted", 20.0, {0: 2.0}), 20.0)
    assert p.cluster.jobs["default/running"].restart_seconds == 45.0, "what all took, for its worker has not saved yet"
    assert [one.job for one in of_type(CloseWindow, p.handle(Tick(), 30.0))] == ["default/running"]


def test_restored_planner_recalls_restart_costs_and_learns_on() -> None:
    p = planner("chunk", [node("n1"), node("n2")])
    state = start(p, untold("first", seconds=1e4), 20.0)
    q = planner("chunk", [node("n1"), node("n2")])
    recall(q.context, learned_state_of(p.cluster, 0.0))
    q.restore([JobSubmitted(state.job, p.plan_of(state.job.key, 50.0), p.progress_of(state.job.key))], 50.0)
    q.handle(WorkerStarted(state.job.key, 1, 51.0), 51.0)
    assert q.cluster.jobs[state.job.key].restart_seconds == 20.0, "the opening of its window is unknown"
    q.handle(untold("second", 60.0), 60.0)
    assert q.cluster.jobs["default/second"].restart_seconds == 20.0, "as all"
    q.handle(WorkerStarted("default/second", 1, 72.0), 72.0)
    assert q.cluster.jobs["default/second"].restart_seconds == 12.0
    q.handle(untold("third", 80.0), 80.0)
    assert q.cluster.jobs["default/third"].restart_seconds == 18.0, "as both"


def stop(p: Planner, key: str, at: float, seconds: float) -> None:
    """Suspend the job, whose worker takes this time to stop."""
    state = p.cluster.jobs[key]
    (attempt,) = state.runs
    p.handle(JobChanged(replace(state.job, suspended=True, generation=state.job.generation + 1)), at)
    p.handle(WorkerEnded(key, attempt, "Preempted", at + seconds, {}), at + seconds)


def test_one_tenant_does_not_teach_restart_costs_to_others() -> None:
    p = planner("chunk:aging=0", [node("n1")])
    start(p, untold("x", key="evil/x", seconds=1e5), 3e4)
    stop(p, "evil/x", 4e4, 3.6e4)
    assert p.cluster.jobs["evil/x"].restart_seconds == 6.6e4, "its own job costs what it costs"
    long = start(p, untold("long", 1e5, seconds=1e4), 5.0)
    assert long.restart_seconds == 5.0
    out = p.handle(untold("short", 100_060.0, key="good/short", seconds=600.0), 100_060.0)
    assert [one.job for one in of_type(CloseWindow, out)] == ["default/long"]


@pytest.mark.parametrize("declared", [True, False])
def test_restart_cost_above_the_limit_is_no_free_never(declared: bool) -> None:
    p = planner("chunk:aging=0", [node("n1")], tenancy=Tenancy(ClaimLimits(max_restart_seconds=600.0)))
    long = job("long", seconds=1e5, restart_declared=declared, restart_seconds=3e8 if declared else 0.0)
    assert start(p, JobSubmitted(long), 9e4).restart_seconds == 600.0
    out = p.handle(untold("short", 100_060.0, seconds=60.0), 100_060.0)
    assert [one.job for one in of_type(CloseWindow, out)] == ["default/long"]


def test_restart_cost_of_others_is_a_bounded_lower_median() -> None:
    p = planner("chunk", [node("n1", gpus=8)])
    for number, (namespace, seconds) in enumerate((("a", 30.0), ("b", 7200.0), ("c", 7200.0))):
        start(p, untold("x", 1e4 * number, key=f"{namespace}/x"), seconds)
    assert p.cluster.restarts.start_seconds == MAX_SECONDS
    start(p, untold("x", 4e4, key="d/x"), 20.0)
    assert p.cluster.restarts.start_seconds == 30.0


def test_namespaces_without_jobs_decide_no_restart_cost() -> None:
    """Such as those of users who have left: their pods may have started faster or slower than those of today."""
    p, at = planner("chunk", [node("n1", gpus=8)]), 0.0
    for number in range(20):
        start(p, untold("x", at, key=f"old-{number}/x"), 300.0)
        p.handle(JobRemoved(f"old-{number}/x"), at := at + 1000.0)
    restarts = p.cluster.restarts
    assert restarts.start_seconds == 300.0, "no others are known"
    for namespace in ("a", "b"):
        start(p, untold("x", at := at + 1000.0, key=f"{namespace}/x"), 10.0)
    assert restarts.start_seconds == 10.0
    p.handle(JobRemoved("a/x"), at + 1000.0)
    start(p, untold("y", at + 2000.0, key="b/y"), 10.0)
    assert restarts.start_seconds == 10.0, "one namespace with jobs suffices if there is no other"


def test_progress_includes_restart_cost() -> None:
    p = planner("chunk", [node("n1")])
    start(p, untold("first"), 20.0)
    assert p.progress_of("default/first").restart_seconds == 20.0
    p = planner("chunk", [node("n1")])
    start(p, JobSubmitted(job("told", restart_seconds=7.0)), 30.0)
    assert p.progress_of("default/told").restart_seconds == 7.0


def test_forecast_does_not_change_learnt_restart_cost() -> None:
    p = planner("chunk", [node("n1")])
    start(p, untold("first"), 20.0)
    p.handle(untold("second", 30.0), 30.0)
    p.forecast(31.0)
    p.handle(Tick(), 32.0)
    assert p.cluster.restarts.of_job("default").seconds == 20.0


def test_window_of_short_chunks_and_long_restarts_is_capped() -> None:
    p = planner("chunk", [node("n1")])
    p.handle(JobSubmitted(job("j", chunks=2000, seconds=1.0, max_workers=1, restart_seconds=180.0)), 0.0)
    assert [len(run.window.chunks) for run in p.cluster.jobs["default/j"].runs.values()] == [MAX_CHUNKS]


@pytest.mark.parametrize(("ran", "seconds"), [(40.0, None), (70.0, 20.0), (None, 450.0)])
def test_worker_that_ended_before_its_stop_teaches_no_save(ran: float | None, seconds: float | None) -> None:
    p = planner("chunk", [node("n1")])
    state = start(p, untold("a", seconds=1e4), 0.0)
    p.handle(JobChanged(replace(state.job, suspended=True)), 50.0)
    p.handle(WorkerEnded("default/a", 1, "Preempted", 500.0, {}, ran=ran), 500.0)
    assert p.cluster.restarts.save_seconds == seconds
