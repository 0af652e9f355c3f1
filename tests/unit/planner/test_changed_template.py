"""Workers that have not started are created again when their pod template changes; others run on."""

from dataclasses import replace

import pytest

from support.builders import gang, job, node, of_type, planner
from support.take_over import taken_over
from tranche.model import Admission
from tranche.planner import (
    CloseWindow,
    JobChanged,
    JobSubmitted,
    OpenWindow,
    Tick,
    WorkerEnded,
    WorkerRejected,
    WorkerStarted,
)

KEY = "default/a"


@pytest.mark.parametrize(
    ("is_gang", "started", "closed"), [(False, 0, 2), (False, 1, 1), (False, 2, 0), (True, 0, 2), (True, 1, 0)]
)
def test_workers_that_have_not_started_get_a_changed_template(is_gang: bool, started: int, closed: int) -> None:
    """A gang has one template: it starts again if none of its members has started."""
    p = planner("chunk", [node("n", gpus=2)])
    one = gang("a", members=2) if is_gang else job("a", chunks=2)
    attempts = [i.window.attempt for i in of_type(OpenWindow, p.handle(JobSubmitted(one), 0.0))]
    for attempt in attempts[:started]:
        p.handle(WorkerStarted(KEY, attempt, 1.0), 1.0)
    changed = JobChanged(replace(one, generation=2), frozenset({"worker"}))
    stopped = [i.window.attempt for i in of_type(CloseWindow, p.handle(changed, 2.0))]
    assert stopped == attempts[2 - closed :]
    again = [i for a in stopped for i in p.handle(WorkerEnded(KEY, a, "Preempted", 3.0), 3.0)]
    assert len(of_type(OpenWindow, again)) == closed
    assert p.cluster.jobs[KEY].failures == 0


@pytest.mark.parametrize("is_gang", [False, True])
def test_invalid_template_stops_no_worker_that_trains(is_gang: bool) -> None:
    """The API server rejects later pods, for example because of a new LimitRange; the edit is about another field."""
    p = planner("chunk", [node("n", gpus=2)])
    one = gang("a", members=2) if is_gang else job("a", chunks=3)
    attempts = [i.window.attempt for i in of_type(OpenWindow, p.handle(JobSubmitted(one), 0.0))]
    for attempt in attempts:
        p.handle(WorkerStarted(KEY, attempt, 1.0), 1.0)
    edited = JobChanged(replace(one, generation=2, weight=2.0))
    invalid = WorkerRejected(KEY, "TemplateRejected", "cpu: must be at most the limit", permanent=True)
    p.handle(edited, 2.0)
    assert not of_type(CloseWindow, p.handle(invalid, 2.0))
    p, instructions = taken_over(p, 3.0, events=[invalid])
    assert not of_type(CloseWindow, instructions)
    for attempt in attempts:
        p.handle(WorkerEnded(KEY, attempt, "Succeeded", 4.0), 4.0)
    assert len(p.cluster.jobs[KEY].done) == 2
    assert is_gang or "at most the limit" in p.plan_of(KEY, 4.0).explanation


def test_invalid_template_before_training_opens_nothing() -> None:
    p = planner("chunk", [node("n", gpus=2)])
    one = job("a", chunks=2)
    attempts = [i.window.attempt for i in of_type(OpenWindow, p.handle(JobSubmitted(one), 0.0))]
    p.handle(JobChanged(replace(one, admission=Admission.REFUSED, refusal="no")), 1.0)
    closed = of_type(CloseWindow, p.handle(WorkerRejected(KEY, "TemplateRejected", "no", permanent=True), 1.0))
    assert [i.window.attempt for i in closed] == attempts
    for attempt in attempts:
        p.handle(WorkerEnded(KEY, attempt, "Lost", 2.0), 2.0)
    assert not of_type(OpenWindow, p.handle(Tick(), 3600.0))
    assert len(of_type(OpenWindow, p.handle(JobChanged(one), 3601.0))) == 2, "the pods are valid now"
