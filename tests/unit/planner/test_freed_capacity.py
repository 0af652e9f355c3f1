"""Capacity that a preemption or the end of a pod frees: which job gets it, and which jobs are considered again."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from support.builders import gang, job, node, planner, worker
from support.policy_groups import BINDING, DISTRIBUTING
from tranche.model import Admission, Job
from tranche.planner import (
    CloseWindow,
    JobChanged,
    JobSubmitted,
    NodeChanged,
    OpenWindow,
    Planner,
    PodOverdue,
    Tick,
    WorkerEnded,
    WorkerStarted,
)
from tranche.planner.helper_end import helper_end

PREEMPTIVE = ("chunk", "srsf", "srtf", "las:first=100", "gittins", "themis")


def submit(p: Planner, one: Job) -> None:
    """Submit a job, and start the workers that it gets at once."""
    p.handle(JobSubmitted(one), one.submitted)
    for attempt in p.cluster.jobs[one.key].runs:
        p.handle(WorkerStarted(one.key, attempt, one.submitted), one.submitted)


def opened(instructions: Sequence[Any]) -> list[str]:
    return [one.job.partition("/")[2] for one in instructions if isinstance(one, OpenWindow)]


@pytest.mark.parametrize("policy", PREEMPTIVE)
@pytest.mark.parametrize(
    "victim",
    [
        job("victim", seconds=1e5, priority=-10, worker=worker(3)),
        gang("victim", seconds=1e5, priority=-10, members=3),
    ],
    ids=["wide worker", "gang"],
)
def test_preemptor_takes_all_that_its_victim_frees(policy: str, victim: Job) -> None:
    p = planner(policy, [node("n", gpus=3)])
    submit(p, victim)
    high = job("high", 10.0, chunks=3, seconds=500.0, priority=-8)
    low = job("low", 10.0, chunks=2, seconds=1e4, worker=worker(1, cpu=1100))
    out = p.handle_all([JobSubmitted(high), JobSubmitted(low)], 10.0)
    assert [one.job for one in out if isinstance(one, CloseWindow)] == [victim.key] * len(
        p.cluster.jobs[victim.key].runs
    )
    assert opened(out) == ["high"] * 3


@pytest.mark.parametrize("policy", PREEMPTIVE)
def test_freed_gpu_goes_to_better_job_that_may_not_preempt(policy: str) -> None:
    p = planner(policy, [node("n", gpus=2)], requires_admission=True)
    submit(p, gang("victim", seconds=1e5, priority=-10, members=2))
    p.handle(JobSubmitted(job("high", 10.0, seconds=5e4, priority=-8, admission=Admission.UNCHECKED)), 10.0)
    out = p.handle_all([JobSubmitted(job("first", 11.0)), JobSubmitted(job("second", 11.0, seconds=3000.0))], 11.0)
    assert sorted(opened(out)) == ["first", "high"]


@pytest.mark.parametrize("policy", BINDING)
def test_end_of_parameter_server_wakes_jobs_of_its_node(policy: str) -> None:
    p = planner(policy, [node("n", gpus=2)])
    served = job("served", servers=1, server=worker(0, cpu=40_000))
    submit(p, served)
    submit(p, job("large", 1.0, worker=worker(1, cpu=50_000)))
    state, large = p.cluster.jobs[served.key], p.cluster.jobs["default/large"]
    (server,), (attempt,) = state.servers, state.runs
    p.handle(WorkerStarted(served.key, server.planned.attempt, 2.0), 2.0)
    p.handle(JobChanged(replace(served, suspended=True, generation=2)), 10.0)
    p.handle(WorkerEnded(served.key, attempt, "Preempted", 20.0), 20.0)
    assert not large.runs
    p.handle(helper_end(served.key, server.planned, "Preempted", 143), 21.0)
    assert large.runs


@pytest.mark.parametrize("policy", DISTRIBUTING)
def test_job_gets_its_workers_when_a_hanging_pod_is_gone(policy: str) -> None:
    p = planner(policy, [node("n0", gpus=2), node("n1", gpus=2)])
    wide = job("wide", chunks=20, seconds=3000.0, worker=worker(2), max_workers=2)
    submit(p, wide)
    runs = p.cluster.jobs[wide.key].runs
    hanging = max(runs)
    p.handle(PodOverdue(wide.key, hanging), 10.0)
    p.handle(NodeChanged(node("n0", gpus=2, labels={"changed": "yes"})), 15.0)  # workers are distributed again
    p.handle(WorkerEnded(wide.key, hanging, "Preempted", 20.0), 20.0)
    while (wakeup := p.next_wakeup()) is not None and wakeup <= 7200.0:  # a policy of time slots waits for the next one
        p.handle(Tick(), wakeup)
    assert len([run for run in runs.values() if not run.closing]) == 2
