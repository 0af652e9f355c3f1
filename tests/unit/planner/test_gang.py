"""Gangs start with all members or none; after a member finds no place, all windows close and the pause doubles."""

from support.builders import gang, node, of_type, planner
from tranche.planner import (
    CloseWindow,
    Instruction,
    JobSubmitted,
    OpenWindow,
    Planner,
    Tick,
    WorkerEnded,
    WorkerStarted,
    WorkerUnschedulable,
)


def attempts(made: Planner, key: str) -> list[int]:
    return [attempt for attempt, run in made.cluster.jobs[key].runs.items() if not run.closing]


def end_all(made: Planner, key: str, now: float) -> list[Instruction]:
    """Report the end of all pods of the job, and return the instructions."""
    ends = [WorkerEnded(key, attempt, "Preempted", now) for attempt in made.cluster.jobs[key].runs]
    return [instruction for end in ends for instruction in made.handle(end, now)]


def find_no_place(made: Planner, key: str, now: float) -> int:
    """Report one member as unschedulable, and return the number of closed windows."""
    out = made.handle(WorkerUnschedulable(key, attempts(made, key)[-1], "no free ports"), now)
    return len(of_type(CloseWindow, out))


def test_unschedulable_member_stops_gang_and_next_gang_starts() -> None:
    made = planner("fifo-skip", [node(f"n{i}") for i in range(3)], node_exclusion_seconds=0.0)
    first, second = gang("first", members=3), gang("second", 1.0, members=3)
    made.handle(JobSubmitted(first), 0.0)
    made.handle(JobSubmitted(second), 1.0)
    made.handle(WorkerStarted(first.key, 1, 2.0), 2.0)  # some are up, and hold their nodes
    assert find_no_place(made, first.key, 30.0) == 3
    assert attempts(made, second.key) == [1, 2, 3]
    assert not of_type(OpenWindow, end_all(made, first.key, 31.0))
    assert "no free ports" in made.plan_of(first.key, 31.0).explanation


def test_gang_backoff_doubles_until_the_gang_has_run() -> None:
    made = planner("fifo", [node("n1"), node("n2")], node_exclusion_seconds=0.0, failure_backoff_seconds=10.0)
    one = gang("one")
    made.handle(JobSubmitted(one), 0.0)
    now = 0.0
    for pause in (10.0, 20.0, 40.0):
        now += 30.0
        made.handle(WorkerStarted(one.key, attempts(made, one.key)[0], now - 1.0), now - 1.0)  # the other one is not
        assert find_no_place(made, one.key, now) == 2
        assert not of_type(OpenWindow, end_all(made, one.key, now + 1.0))
        assert not of_type(OpenWindow, made.handle(Tick(), now + pause - 0.1))
        opened = of_type(OpenWindow, made.handle(Tick(), now + pause))
        assert len(opened) == 2
        now += pause
    for attempt in attempts(made, one.key):
        made.handle(WorkerStarted(one.key, attempt, now), now)
    made.handle(WorkerEnded(one.key, attempts(made, one.key)[0], "Preempted", now + 1.0), now + 1.0)
    end_all(made, one.key, now + 2.0)
    assert find_no_place(made, one.key, now + 30.0) == 2
    end_all(made, one.key, now + 30.0)
    assert len(of_type(OpenWindow, made.handle(Tick(), now + 40.0))) == 2


def test_the_longest_pause_is_bounded() -> None:
    made = planner("fifo", [node("n1"), node("n2")], node_exclusion_seconds=0.0, longest_backoff_seconds=60.0)
    one = gang("one")
    made.handle(JobSubmitted(one), 0.0)
    now = 0.0
    for _ in range(40):
        find_no_place(made, one.key, now)
        end_all(made, one.key, now)
        now += 60.0
        assert len(of_type(OpenWindow, made.handle(Tick(), now))) == 2


def test_succeeded_member_of_preempted_gang_resumes_with_it() -> None:
    made = planner("srsf", [node(f"n{i}") for i in range(3)])
    one = gang("one", members=3)
    made.handle(JobSubmitted(one), 0.0)
    for attempt in (1, 2, 3):
        made.handle(WorkerStarted(one.key, attempt, 0.0), 0.0)
    made.handle(WorkerEnded(one.key, 1, "Succeeded", 90.0), 90.0)
    made.handle(WorkerEnded(one.key, 2, "Preempted", 91.0, {1: 80.0}, 143), 91.0)
    assert attempts(made, one.key) == []
    made.handle(WorkerEnded(one.key, 3, "Preempted", 92.0, {2: 90.0}, 143), 92.0)
    ledger = made.progress_of(one.key)
    assert (len(ledger.done), dict(ledger.partial)) == (0, {0: 80.0, 1: 80.0, 2: 90.0})
    assert len(attempts(made, one.key)) == 3


def test_gang_ending_after_a_failure_restarts_without_progress() -> None:
    made = planner("srsf", [node(f"n{i}") for i in range(2)])
    one = gang("one")
    made.handle(JobSubmitted(one), 0.0)
    made.handle(WorkerEnded(one.key, 1, "Failed", 90.0, None, 1), 90.0)
    made.handle(WorkerEnded(one.key, 2, "Succeeded", 91.0), 91.0)
    assert not made.progress_of(one.key).done
    assert not made.progress_of(one.key).partial


def test_gang_retries_preemption_when_an_earlier_job_ends() -> None:
    made = planner("chunk:aging=0", [node(f"n{i}") for i in range(4)])
    small, large = gang("small", members=1, seconds=10.0), gang("large", members=2, seconds=1000.0)
    for one in (small, large):
        made.handle(JobSubmitted(one), 0.0)
        for attempt in attempts(made, one.key):
            made.handle(WorkerStarted(one.key, attempt, 0.0), 0.0)
    whole = gang("whole", 1.0, members=4, seconds=5.0)
    assert not of_type(CloseWindow, made.handle(JobSubmitted(whole), 1.0)), "one is free, two can be taken"
    out = made.handle(WorkerEnded(small.key, 1, "Succeeded", 10.0), 10.0)
    assert {one.job for one in of_type(CloseWindow, out)} == {large.key}
    assert attempts(made, whole.key) == [1, 2, 3, 4]


def test_overrunning_gang_is_reviewed_at_growing_intervals() -> None:
    made = planner("chunk", [node("n1", gpus=16)])
    one = gang("one", members=16, seconds=0.5)
    begin = now = 1_795_360_907.0396225  # so far from 0 that times are 2.4e-7 s apart
    made.handle(JobSubmitted(one), now)
    for attempt in attempts(made, one.key):
        now += 0.0123
        made.handle(WorkerStarted(one.key, attempt, now), now)
    for _ in range(60):
        wakeup = made.next_wakeup()
        assert wakeup is not None
        now = max(now, wakeup)
        made.handle(Tick(), now)
    assert now > begin + 1000.0, "each time its estimated duration doubles"
