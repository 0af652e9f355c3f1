"""Estimates of the planner for jobs whose size or speed was not declared, or was declared wrongly."""

from math import inf
from typing import Any

import pytest

from support.builders import job, node, of_type, planner, worker
from tranche.live.planner_config import PlannerConfig
from tranche.model import Node, Report
from tranche.planner import (
    CloseWindow,
    Event,
    JobChanged,
    JobSubmitted,
    OpenWindow,
    ParameterServerEnded,
    Planner,
    ProgressReported,
    Tick,
    WorkerEnded,
    WorkerStarted,
)
from tranche.state.remaining_work import rest_gpu_seconds


def submitted(p: Planner, name: str, at: float = 0.0, **fields: Any) -> OpenWindow:
    (opened,) = of_type(OpenWindow, p.handle(JobSubmitted(job(name, at, **fields)), at))
    p.handle(WorkerStarted(opened.job, opened.window.attempt, at), at)
    return opened


def ended(p: Planner, name: str, attempt: int, at: float) -> list[OpenWindow]:
    return of_type(OpenWindow, p.handle(WorkerEnded(f"default/{name}", attempt, "Succeeded", at), at))


def test_job_that_overruns_its_size_yields_to_shorter_job() -> None:
    p = planner("chunk:aging=0", [node("n1")])
    submitted(p, "late", seconds=100)
    assert p.next_wakeup() == pytest.approx(105.0)
    p.handle(JobSubmitted(job("short", 104.0, seconds=10)), 104.0)
    assert not p.cluster.jobs["default/short"].runs
    wakeup = p.next_wakeup()
    assert wakeup is not None
    out = p.handle_all((), wakeup)
    assert [closed.job for closed in of_type(CloseWindow, out)] == ["default/late"]
    assert [opened.job for opened in of_type(OpenWindow, out)] == ["default/short"]


@pytest.mark.parametrize("least", [5e-324, 1e-290])
def test_vanishing_progress_at_an_end_teaches_no_speed(least: float) -> None:
    p = planner("chunk", [node("n1")], learns_from_silent_windows=True)
    opened = submitted(p, "late", chunks=2, max_workers=1)
    end = WorkerEnded(opened.job, opened.window.attempt, "Preempted", 50.0, progress={0: least})
    p.handle(end, 50.0)
    assert p.cluster.speed_model.job_factor("default/late") == 1.0
    p.forecast(60.0)


def test_published_policy_trusts_declared_size() -> None:
    p = planner("srsf", [node("n1")])
    submitted(p, "late", seconds=100)
    p.handle(JobSubmitted(job("short", 150.0, seconds=10)), 150.0)
    assert not p.cluster.jobs["default/short"].runs
    assert p.next_wakeup() is None


def test_job_of_known_template_is_sized_like_completed_ones() -> None:
    p = planner("chunk:aging=0", [node("n1")])
    for number, seconds in enumerate((30.0, 50.0, 70.0)):
        opened = submitted(p, f"j{number}", 1000.0 * number, seconds=3600, size_declared=False, template="t")
        ended(p, f"j{number}", opened.window.attempt, 1000.0 * number + seconds)
    submitted(p, "next", 9000.0, seconds=3600, size_declared=False, template="t")
    state = p.cluster.jobs["default/next"]
    assert rest_gpu_seconds(state, 9000.0) == pytest.approx(50.0)
    assert state.runs[1].window.end == pytest.approx(9050.0)


def test_restore_rebuilds_size_history_from_completed_jobs() -> None:
    p, q = planner("chunk:aging=0", [node("n1")]), planner("chunk:aging=0", [node("n1")])
    done = job("done", seconds=3600, size_declared=False, template="t")
    submitted(p, "done", seconds=3600, size_declared=False, template="t")
    ended(p, "done", 1, 40.0)
    q.restore([JobSubmitted(done, p.plan_of("default/done", 40.0), p.progress_of("default/done"))], 50.0)
    submitted(q, "next", 60.0, seconds=3600, size_declared=False, template="t")
    assert rest_gpu_seconds(q.cluster.jobs["default/next"], 60.0) == pytest.approx(40.0)


def test_job_of_unknown_size_descends_attained_service_classes() -> None:
    p = planner("chunk:aging=0", [node("n1")])
    submitted(p, "mystery", seconds=100, size_declared=False)
    state = p.cluster.jobs["default/mystery"]
    rests = [rest_gpu_seconds(state, at) for at in (0.0, 50.0, 110.0, 300.0, 1000.0)]
    assert rests == pytest.approx([100.0, 50.0, 90.0, 100.0, 600.0])


def test_the_first_chunk_tells_the_size_of_a_chunked_job() -> None:
    p = planner("chunk:aging=0", [node("n1")])
    submitted(p, "mystery", chunks=10, seconds=100, size_declared=False)
    ended(p, "mystery", 1, 700.0)
    state = p.cluster.jobs["default/mystery"]
    assert not state.assumed
    assert rest_gpu_seconds(state, 700.0) == pytest.approx(9 * 700.0, rel=0.1)


def slow_and_fast() -> list[Node]:
    return [node("a-slow"), node("b-fast")]


def taught(nodes: list[Node]) -> Planner:
    """Jobs took three times as long on one of the nodes, and as long as predicted on the other."""
    p = planner("chunk:aging=0", nodes)
    for number in range(6):
        at = 10_000.0 * number
        windows = of_type(OpenWindow, p.handle(JobSubmitted(job(f"j{number}", at, chunks=2)), at))
        for opened in sorted(windows, key=lambda one: one.window.node or "", reverse=True):
            p.handle(WorkerStarted(opened.job, opened.window.attempt, at), at)
            seconds = 300.0 if opened.window.node == "a-slow" else 100.0
            p.handle(WorkerEnded(opened.job, opened.window.attempt, "Succeeded", at + seconds), at + seconds)
    return p


def test_a_chunk_goes_to_the_faster_of_two_free_nodes() -> None:
    p = taught(slow_and_fast())
    at = 70_000.0
    windows = of_type(OpenWindow, p.handle(JobSubmitted(job("next", at, chunks=2, max_workers=1)), at))
    assert [opened.window.node for opened in windows] == ["b-fast"]


def test_windows_end_later_on_a_slow_node() -> None:
    p = taught(slow_and_fast())
    at = 70_000.0
    windows = of_type(OpenWindow, p.handle(JobSubmitted(job("next", at, chunks=2)), at))
    ends = {opened.window.node: opened.window.end - at for opened in windows}
    assert ends["a-slow"] > 2 * ends["b-fast"]


def test_a_completed_job_is_forgotten() -> None:
    p = taught(slow_and_fast())
    assert not p.cluster.speed_model.jobs
    assert not p.cluster.speed_model.places


def test_changed_step_time_resets_learnt_factor_of_job() -> None:
    p = planner("chunk:aging=0", [node("n1")])
    submitted(p, "a", chunks=3)
    ended(p, "a", 1, 500.0)
    assert p.cluster.speed_model.job_factor("default/a") > 2
    p.handle(JobChanged(job("a", chunks=3, seconds=500, generation=2)), 501.0)
    assert p.cluster.speed_model.job_factor("default/a") == 1.0


def test_a_gang_is_stopped_only_for_more_than_both_starts_cost() -> None:
    for seconds, stops in ((30.0, True), (90.0, False)):
        p = planner("chunk:aging=0", [node("n1", gpus=2)])
        gang: dict[str, Any] = {"worker": worker(2), "restart_seconds": 20.0}
        submitted(p, "runs", seconds=100, **gang)
        out = p.handle(JobSubmitted(job("comes", 5.0, seconds=seconds, **gang)), 5.0)
        assert bool(of_type(CloseWindow, out)) is stops


def test_overrun_job_and_smaller_job_preempt_at_most_once() -> None:
    p = planner("chunk:aging=0", [node("n1"), node("n2")])
    p.handle(JobSubmitted(job("late", chunks=2, seconds=100)), 0.0)
    for attempt in (1, 2):
        p.handle(WorkerStarted("default/late", attempt, 0.0), 0.0)
    p.handle(JobSubmitted(job("small", 50.0, seconds=130)), 50.0)
    out, closed = p.handle(Tick(), 106.0), 0
    for _ in range(10):
        closed += len(of_type(CloseWindow, out))
        events: list[Event] = []
        for one in out:
            if isinstance(one, CloseWindow):
                events.append(WorkerEnded(one.job, one.window.attempt, "Preempted", 106.0, {}))
            elif isinstance(one, OpenWindow):
                events.append(WorkerStarted(one.job, one.window.attempt, 106.0))
        out = p.handle_all(events, 106.0) if events else []
    assert closed == 1


def test_wrong_step_time_of_one_job_slows_no_node_live() -> None:
    settings = PlannerConfig().settings()
    p = planner(
        "chunk",
        [node("n1"), node("n2")],
        jobs_per_node_factor=settings.jobs_per_node_factor,
    )
    p.handle(JobSubmitted(job("liar", chunks=8, seconds=0.1, max_workers=1)), 0.0)
    now, ran = 0.0, set()
    for _ in range(6):
        ((attempt, run),) = p.cluster.jobs["default/liar"].runs.items()
        p.handle(WorkerStarted("default/liar", attempt, now), now)
        ran.add(run.window.node)
        now += 3600.0
        ended(p, "liar", attempt, now)
    assert {p.cluster.speed_model.node_factor(str(name)) for name in ran} == {1.0}
    assert p.cluster.speed_model.job_factor("default/liar") > 1000.0


def report(p: Planner, attempt: int, batches: float, at: float) -> None:
    """Report chunk 0 of job a."""
    p.handle(ProgressReported(Report("default/a", attempt, {0: batches}, {0: batches}), at), at)


def reporting() -> tuple[Planner, int]:
    """Return a planner and the attempt of a worker that has reported 90 of 100 mini-batches by 900 s."""
    p = planner("chunk", [node("n1")])
    attempt = submitted(p, "a", chunks=2, max_workers=1, seconds=1000).window.attempt
    for at in range(0, 901, 100):
        report(p, attempt, at / 10, float(at))
    return p, attempt


def restored(p: Planner, at: float) -> Planner:
    """Return the planner that takes over; the worker of job a runs since 0 s."""
    q, state = planner("chunk", [node("n1")]), p.cluster.jobs["default/a"]
    q.restore([JobSubmitted(state.job, p.plan_of("default/a", at), p.progress_of("default/a"))], at)
    (attempt,) = state.runs
    q.handle(WorkerStarted("default/a", attempt, 0.0), at)
    return q


def test_take_over_in_a_reporting_window_teaches_no_wrong_pace() -> None:
    p, attempt = reporting()
    q = restored(p, 900.0)
    report(q, attempt, 91.0, 910.0)
    q.handle(WorkerEnded("default/a", attempt, "Succeeded", 1000.0, {0: 100}), 1000.0)
    assert q.cluster.speed_model.job_factor("default/a") == pytest.approx(1.0)


def test_window_that_is_silent_after_take_over_teaches_nothing() -> None:
    p, attempt = reporting()
    q = restored(p, 910.0)
    q.handle(WorkerEnded("default/a", attempt, "Succeeded", 1000.0, {0: 100}), 1000.0)
    assert q.cluster.speed_model.job_factor("default/a") == 1.0


def test_silent_window_of_an_earlier_planner_teaches_its_pace() -> None:
    p = planner("chunk", [node("n1")])
    attempt = submitted(p, "a", chunks=2, max_workers=1, seconds=1000).window.attempt
    q = restored(p, 900.0)
    q.handle(WorkerEnded("default/a", attempt, "Succeeded", 3000.0, {0: 100}), 3000.0)
    assert q.cluster.speed_model.job_factor("default/a") > 2


def test_progress_found_by_the_first_report_teaches_no_pace() -> None:
    p = planner("chunk", [node("n1")])
    attempt = submitted(p, "a", chunks=2, max_workers=1, seconds=1000).window.attempt
    for trained in range(11):  # the checkpoint that it resumes from has 90 mini-batches
        report(p, attempt, 90.0 + trained, 20.0 + 10 * trained)
    p.handle(WorkerEnded("default/a", attempt, "Succeeded", 120.0, {0: 100}), 120.0)
    assert p.cluster.speed_model.job_factor("default/a") == pytest.approx(1.0)


def test_found_by_a_server_that_is_then_silent_teaches_no_pace() -> None:
    p = planner("chunk", [node("n1"), node("n2", gpus=0)])
    p.handle(JobSubmitted(job("a", chunks=2, max_workers=1, seconds=1000, server=worker(0), servers=1)), 0.0)
    state = p.cluster.jobs["default/a"]
    (attempt,) = state.runs
    report(p, state.servers[0].planned.attempt, 90.0, 20.0)
    p.handle(WorkerStarted("default/a", attempt, 30.0), 30.0)
    p.handle(WorkerEnded("default/a", attempt, "Succeeded", 130.0, {0: 100}), 130.0)
    assert p.cluster.speed_model.job_factor("default/a") == pytest.approx(1.0)


def test_found_by_server_before_a_worker_starts_teaches_no_pace() -> None:
    p = planner("chunk", [node("n1"), node("n2", gpus=0)])
    p.handle(JobSubmitted(job("a", chunks=2, max_workers=1, seconds=1000, server=worker(0), servers=1)), 0.0)
    state = p.cluster.jobs["default/a"]
    (attempt,), server = state.runs, state.servers[0].planned.attempt
    report(p, server, 90.0, 20.0)
    p.handle(WorkerStarted("default/a", attempt, 30.0), 30.0)
    for trained in range(11):
        report(p, server, 90.0 + trained, 30.0 + 10 * trained)
    p.handle(WorkerEnded("default/a", attempt, "Succeeded", 130.0, {0: 100}), 130.0)
    assert p.cluster.speed_model.job_factor("default/a") == pytest.approx(1.0)


def test_progress_found_by_a_second_server_teaches_no_pace() -> None:
    p = planner("chunk", [node("n1"), node("n2", gpus=0)])
    p.handle(JobSubmitted(job("a", chunks=2, max_workers=1, seconds=1000, server=worker(0), servers=1)), 0.0)
    state = p.cluster.jobs["default/a"]
    (attempt,), first = state.runs, state.servers[0].planned.attempt
    p.handle(WorkerStarted("default/a", attempt, 0.0), 0.0)
    for at in (0, 200, 500):
        p.handle(ProgressReported(Report("default/a", first, {0: at / 10}, {0: min(20, at / 10)}), at), at)
    p.handle(ParameterServerEnded("default/a", 0, first), 500.0)
    report(p, state.servers[0].planned.attempt, 50.0, 500.0)  # the first one has saved more than it reported
    report(p, state.servers[0].planned.attempt, 100.0, 1000.0)
    p.handle(WorkerEnded("default/a", attempt, "Succeeded", 1000.0, {0: 100}), 1000.0)
    assert p.cluster.speed_model.job_factor("default/a") == pytest.approx(1.0)


@pytest.mark.parametrize("before", [(), (10, 20, 30, 40)])
def test_worker_that_hangs_and_reports_yields_like_a_silent_one(before: tuple[int, ...]) -> None:
    yielded = []
    for reports in (False, True):
        p = planner("chunk", [node("n1")])
        attempt = submitted(p, "a", chunks=2, max_workers=1).window.attempt
        for at in (*before, 50):
            report(p, attempt, float(at), float(at))
        p.handle(JobSubmitted(job("b", 60.0, chunks=2, max_workers=1, seconds=1800)), 60.0)
        now, due, closed = 60.0, 82.5 if reports else inf, False
        while not closed and now < 20_000.0:
            wakeup = p.next_wakeup()
            now = min(due, inf if wakeup is None else wakeup)
            event = ProgressReported(Report("default/a", attempt, {0: 50.0}, {0: 50.0}), now) if now == due else Tick()
            closed = bool(of_type(CloseWindow, p.handle(event, now)))
            due += 22.5 if now == due else 0.0
        yielded.append(now)
    assert yielded[0] <= yielded[1] < yielded[0] + 22.5
    assert yielded[0] < 20_000.0
