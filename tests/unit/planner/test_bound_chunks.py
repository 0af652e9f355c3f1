"""Chunks that a binding policy has bound to slots: their order after edits, and the slots of restored windows."""

from dataclasses import replace
from typing import Any

import pytest

from support.builders import job, node, planner, worker
from support.policy_groups import BINDING
from support.take_over import taken_over
from tranche.model import Job, Node, Report
from tranche.planner import (
    CloseWindow,
    JobChanged,
    JobSubmitted,
    NodeChanged,
    Planner,
    PodOverdue,
    ProgressReported,
    Tick,
    WorkerEnded,
    WorkerStarted,
)

ORDERED = (*BINDING, "least-loaded:order=srsf", "round-robin:order=srsf", "random:order=srsf")
NODE = node("n", gpus=2)
JOB = job("a", chunks=6)


def running(policy: str, one: Job = JOB) -> Planner:
    """Return a planner whose job trains two chunks, each at 40 of its 100 mini-batches."""
    p = planner(policy, [NODE])
    p.handle(JobSubmitted(one), 0.0)
    for attempt, run in list(p.cluster.jobs[one.key].runs.items()):
        p.handle(WorkerStarted(one.key, attempt, 1.0), 1.0)
        done = {run.window.chunks[0]: 40.0}
        p.handle(ProgressReported(Report(one.key, attempt, done, done), 41.0), 41.0)
    return p


def cordoned(one: Node) -> Node:
    return replace(one, unschedulable=True)


@pytest.mark.parametrize("policy", ORDERED)
@pytest.mark.parametrize(
    "events",
    [
        [JobChanged(replace(JOB, generation=2, weight=10.0))],
        [JobChanged(replace(JOB, generation=2, step_seconds=0.1))],
        [JobChanged(replace(JOB, worker=worker(1, cpu=1100), template_requests=JOB.worker.requests))],
        [NodeChanged(cordoned(NODE)), NodeChanged(NODE)],
    ],
    ids=["weight", "stepTime", "dry run", "cordon"],
)
def test_job_opens_no_window_on_gpus_of_its_own_workers(policy: str, events: list[Any]) -> None:
    p = running(policy)
    for at, event in enumerate(events, 50):
        p.handle(event, at)
    runs = p.cluster.jobs[JOB.key].runs
    assert sorted(run.window.attempt for run in runs.values()) == [1, 2]


@pytest.mark.parametrize("policy", ["chunk-faithful", "least-loaded"])
def test_lowered_weight_lets_others_preempt_the_job(policy: str) -> None:
    heavy, other = job("heavy", weight=10.0, seconds=5000.0), job("other", 1.0, seconds=4000.0)
    p = planner(policy, [node("n", gpus=1)])
    p.handle(JobSubmitted(heavy), 0.0)
    p.handle(WorkerStarted(heavy.key, 1, 1.0), 1.0)
    p.handle(JobSubmitted(other), 2.0)
    out = [*p.handle(JobChanged(replace(heavy, weight=0.1, generation=2)), 3.0), *p.handle(Tick(), 10.0)]
    assert [one.job for one in out if isinstance(one, CloseWindow)] == [heavy.key]


@pytest.mark.parametrize("policy", BINDING)
def test_hanging_pod_costs_no_other_worker_at_take_over(policy: str) -> None:
    p = planner(policy, [NODE])
    first, second, third = job("a", seconds=1000.0), job("b", 1.0, seconds=1000.0), job("c", 2.0, seconds=5000.0)
    for one in (first, second):
        p.handle(JobSubmitted(one), one.submitted)
        p.handle(WorkerStarted(one.key, 1, 3.0), 3.0)
    p.handle(JobSubmitted(third), 4.0)
    p.handle(JobChanged(replace(first, suspended=True, generation=2)), 10.0)
    p.handle(PodOverdue(first.key, 1), 50.0)
    p.handle(WorkerEnded(third.key, 1, "Preempted", 55.0), 55.0)  # it had the slot of the hanging pod
    _, out = taken_over(p, 60.0, events=[PodOverdue(first.key, 1)])
    assert second.key not in [one.job for one in out if isinstance(one, CloseWindow)]
