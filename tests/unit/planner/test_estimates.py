"""Estimates of jobs that the rollout does not simulate."""

import pytest

from support.builders import job, node, planner, worker
from tranche.model import Preemption
from tranche.planner import (
    Event,
    JobRemoved,
    JobSubmitted,
    NodeChanged,
    NodeRemoved,
    Planner,
    SiteRemoved,
    WorkerEnded,
    WorkerStarted,
)
from tranche.planner.forecast import estimates
from tranche.planner.forecast.rollout import run_rollout
from tranche.planner.forecast.steps import run_to_completion
from tranche.policies import QueuePolicy


def crowded(count: int) -> Planner:
    """Return a planner with one GPU and ``count`` jobs of growing length."""
    p = planner("chunk", [node("n1")])
    p.handle_all([JobSubmitted(job(f"j{i:03}", seconds=100.0 + i)) for i in range(count)], 0.0)
    return p


def test_jobs_beyond_the_rollout_have_estimates_in_order() -> None:
    count = estimates.SIMULATED_JOBS + 50
    found = crowded(count).forecast(0.0)
    last, first_behind = f"default/j{count - 1:03}", f"default/j{estimates.SIMULATED_JOBS + 1:03}"
    assert len(found) == count
    starts = [found[key].start for key in sorted(found)]
    assert starts == sorted(starts)
    assert found[first_behind].behind == f"default/j{estimates.SIMULATED_JOBS:03}"
    # On one GPU, one after the other, the fluid estimate is exact.
    assert found[last].completion == sum(100.0 + i for i in range(count))


def test_job_beyond_cut_rollout_gets_fluid_estimate() -> None:
    p = crowded(10)
    rollout = run_rollout(p.context, p.blank, (), 0.0, decisions=6)
    assert rollout.cut_short
    assert 0 < len(rollout.completions) < 10
    assert isinstance(p.policy, QueuePolicy)
    found = run_to_completion(estimates._estimates_of_rollout(rollout, p.policy))
    whole = p.forecast(0.0)
    assert {key: round(one.completion, 6) for key, one in found.items()} == {
        key: round(one.completion, 6) for key, one in whole.items()
    }


def test_forecast_in_pieces_ignores_events_until_the_next_one() -> None:
    def fresh() -> Planner:
        p = planner("chunk", [node("n1"), node("n2", site="far")])
        p.handle_all([JobSubmitted(job(f"j{i:03}", seconds=100.0 + i, chunks=2)) for i in range(30)], 0.0)
        return p

    p = fresh()
    runs = [(key, attempt) for key, state in p.cluster.jobs.items() for attempt in state.runs]
    happens: list[Event] = [
        *(WorkerStarted(*run, 1.0) for run in runs),
        NodeChanged(node("n3")),
        JobSubmitted(job("late", seconds=1.0)),
        WorkerEnded(*runs[0], "Succeeded", 2.0),
        JobRemoved("default/j029"),
        NodeRemoved("n2"),
        SiteRemoved("far"),
    ]
    pieces = 0
    for _ in p.forecasting(0.0):
        pieces += 1
        if happens:
            p.handle(happens.pop(0), 2.0)
    assert pieces > 60
    assert p.estimates == fresh().forecast(0.0)


def test_a_job_that_can_never_run_has_no_estimate() -> None:
    p = planner("chunk", [node("n1", gpus=2)])
    p.handle(JobSubmitted(job("wide", worker=worker(gpus=4))), 0.0)
    p.handle(JobSubmitted(job("gang", chunks=3, is_gang=True)), 0.0)
    p.handle(JobSubmitted(job("fine")), 0.0)
    assert set(p.forecast(0.0)) == {"default/fine"}


def test_a_running_job_keeps_the_start_that_it_had() -> None:
    p = planner("chunk", [node("n1")])
    p.handle(JobSubmitted(job("a")), 5.0)
    assert p.forecast(30.0)["default/a"].start == 5.0


def test_forecast_learns_nothing_from_silent_overrun() -> None:
    """The end of such a window is an assumption, which says nothing about the chunks that follow."""
    p = planner("chunk:aging=0", [node("n1")])
    silent = job("silent", chunks=4, seconds=10.0, preemption=Preemption.NEVER)
    p.handle(JobSubmitted(silent), 0.0)
    p.handle(WorkerStarted(silent.key, 1, 0.0), 0.0)
    p.handle(JobSubmitted(job("next", seconds=100.0)), 0.0)
    completions = [p.forecast(at)[key].completion - at for at in (1000.0, 9000.0) for key in p.cluster.jobs]
    assert completions == pytest.approx([30.0, 130.0] * 2)
