"""Room that members of a gang leave is given away when the last of them is done, and after a while in any case."""

from dataclasses import replace

import pytest

from support.builders import gang, node, of_type, planner
from tranche.model import Job, Report
from tranche.planner import (
    CloseWindow,
    JobChanged,
    JobRemoved,
    JobSubmitted,
    NodeRemoved,
    OpenWindow,
    Planner,
    ProgressReported,
    Tick,
    WorkerBound,
    WorkerEnded,
    WorkerStarted,
)

PATIENCE = 5.0
POLICIES = ["chunk", "srsf", "las", "tiresias"]


def crowded(policy: str) -> tuple[Planner, Job, Job, Job]:
    """Four GPUs, a gang that trains on all of them; one for all and one for half of them wait, in this order."""
    made = planner(policy, [node("n1", gpus=4)], gang_completion_timeout_seconds=PATIENCE)
    first = gang("first", members=4, seconds=10.0)
    whole, half = gang("whole", 1.0, members=4, seconds=20.0), gang("half", 2.0, seconds=3000.0)
    made.handle(JobSubmitted(first), 0.0)
    for attempt in (1, 2, 3, 4):
        made.handle(WorkerStarted(first.key, attempt, 0.0), 0.0)
    for waiting in (whole, half):
        assert not of_type(OpenWindow, made.handle(JobSubmitted(waiting), waiting.submitted))
    return made, first, whole, half


def done(made: Planner, one: Job, attempt: int, now: float) -> list[str]:
    """A member is done; of whom windows open."""
    return opened(made, WorkerEnded(one.key, attempt, "Succeeded", now), now)


def opened(made: Planner, event: object, now: float) -> list[str]:
    instructions = made.handle(event, now)  # type: ignore[arg-type]
    assert not of_type(CloseWindow, instructions)
    return sorted({one.job for one in of_type(OpenWindow, instructions)})


@pytest.mark.parametrize("policy", POLICIES)
def test_room_of_half_ended_gang_is_kept_for_the_whole_gang(policy: str) -> None:
    made, first, whole, _ = crowded(policy)
    for attempt, now in ((1, 10.0), (3, 10.1), (2, 10.2)):
        assert not done(made, first, attempt, now)
    assert done(made, first, 4, 10.3) == [whole.key]
    assert made.progress_of(first.key).done == frozenset({0, 1, 2, 3})


@pytest.mark.parametrize(("saved", "failures"), [(50.0, 0), (0.0, 1)])
def test_members_do_not_wait_for_one_that_has_left_early(saved: float, failures: int) -> None:
    """Its program has ended with exit code 0, and the others may wait for it without end."""
    made = planner("chunk", [node("n1", gpus=2)], gang_completion_timeout_seconds=PATIENCE)
    one = gang("a", seconds=1000.0)
    made.handle(JobSubmitted(one), 0.0)
    for attempt in (1, 2):
        made.handle(WorkerStarted(one.key, attempt, 0.0), 0.0)
    assert not opened(made, WorkerEnded(one.key, 2, "Succeeded", 100.0, {1: saved}, 0), 100.0)
    (stopped,) = of_type(CloseWindow, made.handle(Tick(), 100.0 + PATIENCE))
    assert (stopped.window.index, stopped.window.why[:14]) == (0, "worker 1 ended")
    made.handle(WorkerEnded(one.key, 1, "Preempted", 110.0, {0: 60.0}, 143), 110.0)
    made.handle(Tick(), 150.0)
    state = made.cluster.jobs[one.key]
    assert (sorted(run.window.index for run in state.runs.values()), state.failures) == ([0, 1], failures)


def test_member_that_is_done_does_not_stop_the_others() -> None:
    """Rank 0 often evaluates and saves the model for minutes after the other members have ended."""
    made = planner("chunk", [node("n1", gpus=2)], gang_completion_timeout_seconds=PATIENCE)
    one = gang("a", seconds=1000.0)
    made.handle(JobSubmitted(one), 0.0)
    for attempt in (1, 2):
        made.handle(WorkerStarted(one.key, attempt, 0.0), 0.0)
    assert not opened(made, WorkerEnded(one.key, 2, "Succeeded", 990.0, {1: 100.0}, 0), 990.0)
    assert not opened(made, Tick(), 1200.0)
    made.handle(WorkerEnded(one.key, 1, "Succeeded", 1300.0, {0: 100.0}, 0), 1300.0)
    assert made.cluster.jobs[one.key].finished


def test_member_that_is_done_stays_so_under_a_new_leader() -> None:
    """Rank 0 often evaluates and saves the model for minutes after the other members have ended."""
    made = planner("chunk", [node("n1", gpus=2)])
    one = gang("a", seconds=1000.0)
    made.handle(JobSubmitted(one), 0.0)
    for attempt in (1, 2):
        made.handle(WorkerStarted(one.key, attempt, 0.0), 0.0)
    assert not done(made, one, 2, 990.0)
    made.handle(Tick(), 1200.0)
    again = planner("chunk", [node("n1", gpus=2)])
    written = JobSubmitted(one, made.plan_of(one.key, 1200.0), made.progress_of(one.key))
    again.restore([written], 1200.0, [WorkerStarted(one.key, 1, 0.0)])
    shares = dict.fromkeys((0, 1), 0.95)
    assert not opened(again, ProgressReported(Report(one.key, 1, shares, shares), 1210.0), 1210.0)
    assert again.progress_of(one.key).done == {1}
    assert not done(again, one, 1, 1300.0), "the gang would train again"
    assert again.cluster.jobs[one.key].finished


def test_late_member_does_not_hold_room_of_ended_ones_after_wait() -> None:
    made, first, _, half = crowded("chunk")
    for attempt, now in ((1, 10.0), (2, 10.1), (3, 12.0)):
        assert not done(made, first, attempt, now)
    wakeup = made.next_wakeup()
    assert wakeup is not None
    assert wakeup <= 10.0 + PATIENCE
    assert not opened(made, Tick(), 10.0 + PATIENCE - 0.1)
    assert opened(made, Tick(), 10.0 + PATIENCE) == [half.key]
    assert made.progress_of(first.key).done == frozenset({0, 1, 2})


def test_failed_member_stops_gang_and_done_members_resume_too() -> None:
    made, first, *_ = crowded("chunk")
    done(made, first, 1, 10.0)
    out = made.handle(WorkerEnded(first.key, 2, "Failed", 10.1, None, 1), 10.1)
    assert sorted(one.window.attempt for one in of_type(CloseWindow, out)) == [3, 4]
    for attempt in (3, 4):
        made.handle(WorkerEnded(first.key, attempt, "Preempted", 10.5, {attempt - 1: 99.0}, 143), 10.5)
    assert not made.progress_of(first.key).done


def test_suspension_counts_after_members_that_were_done_before() -> None:
    made, first, *_ = crowded("chunk")
    done(made, first, 1, 10.0)
    done(made, first, 2, 10.1)
    out = made.handle(JobChanged(replace(first, generation=2, suspended=True)), 10.2)
    assert sorted(one.window.attempt for one in of_type(CloseWindow, out)) == [3, 4]
    assert made.progress_of(first.key).done == frozenset({0, 1})


def test_job_deleted_while_members_end_frees_room_at_once() -> None:
    made, first, whole, _ = crowded("chunk")
    done(made, first, 1, 10.0)
    out = made.handle(JobRemoved(first.key), 10.1)
    assert {one.job for one in of_type(OpenWindow, out)} == {whole.key}
    assert not opened(made, Tick(), 10.0 + PATIENCE)


def test_other_events_during_gang_end_decide_nothing() -> None:
    made, first, _, half = crowded("chunk")
    done(made, first, 1, 10.0)
    done(made, first, 2, 10.1)
    assert not opened(made, WorkerBound(first.key, 3, "n1"), 10.2)
    assert not opened(made, JobSubmitted(gang("late", 10.2, seconds=4000.0)), 10.2)
    done(made, first, 3, 10.3)
    assert half.key not in done(made, first, 4, 10.4)


def test_duplicate_end_of_a_member_counts_once() -> None:
    made, first, whole, _ = crowded("chunk")
    for attempt in (1, 1, 2, 2, 3):
        assert not done(made, first, attempt, 10.0)
    assert done(made, first, 4, 10.1) == [whole.key]
    assert not done(made, first, 4, 10.2)


def test_done_members_stay_done_when_their_node_is_removed() -> None:
    made = planner("chunk", [node("n1", gpus=2), node("n2", gpus=2)])
    first = gang("first", members=4, seconds=10.0)
    made.handle(JobSubmitted(first), 0.0)
    runs = made.cluster.jobs[first.key].runs
    for attempt in runs:
        made.handle(WorkerStarted(first.key, attempt, 0.0), 0.0)
    there = [attempt for attempt, run in runs.items() if run.window.node == "n1"]
    for attempt in there:
        made.handle(WorkerEnded(first.key, attempt, "Succeeded", 10.0), 10.0)
    made.handle(NodeRemoved("n1"), 10.1)
    for attempt in list(runs):
        made.handle(WorkerEnded(first.key, attempt, "Succeeded", 10.2), 10.2)
    assert made.progress_of(first.key).done == frozenset({0, 1, 2, 3})


def test_members_that_have_not_started_are_not_waited_for() -> None:
    made = planner("chunk", [node("n1", gpus=4)])
    first, half = gang("first", members=4, seconds=10.0), gang("half", seconds=3000.0)
    made.handle(JobSubmitted(first), 0.0)
    for attempt in (1, 2, 3):
        made.handle(WorkerStarted(first.key, attempt, 0.0), 0.0)
    made.handle(JobSubmitted(half), 1.0)
    assert not done(made, first, 1, 10.0)
    assert done(made, first, 2, 10.1) == [half.key]
