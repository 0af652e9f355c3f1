"""Workers that have not started are created again when their pod template changes; others run on."""

from dataclasses import replace

import pytest

from support.builders import gang, job, node, of_type, planner
from tranche.planner import CloseWindow, JobChanged, JobSubmitted, OpenWindow, WorkerEnded, WorkerStarted

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
