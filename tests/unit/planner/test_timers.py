"""Timers of the planner: wakes, one retry a job, and rank changes."""

from tranche.planner.timers import Timers


def test_earliest_retry_of_a_job_replaces_a_later_one() -> None:
    timers = Timers()
    for at in (30.0, 20.0, 25.0, 40.0):
        timers.retry(at, "a")
    timers.retry(35.0, "b")
    assert timers.due(20.0) == ["a"]
    assert timers.due(100.0) == ["b"]


def test_retry_may_be_set_again_when_it_was_due() -> None:
    timers = Timers()
    timers.retry(10.0, "a")
    assert timers.due(10.0) == ["a"]
    timers.retry(15.0, "a")
    assert timers.next() == 15.0


def test_wake_and_rank_change_leave_the_retry_in_place() -> None:
    timers = Timers()
    timers.retry(10.0, "a")
    timers.wake(5.0, "a")
    timers.change(6.0, "a")
    timers.change(7.0, "a")
    assert timers.due(5.0) == ["a"]
    assert timers.due(7.0) == ["a"]
    assert timers.due(10.0) == ["a"]
    assert timers.next() is None


def test_copy_has_the_timers_of_the_named_jobs_alone() -> None:
    timers = Timers()
    for key in ("a", "b", ""):
        timers.wake(1.0, key)
    timers.retry(2.0, "a")
    timers.retry(2.0, "b")
    twin = timers.copied({"a"})
    twin.retry(1.5, "a")
    assert twin.due(3.0) == ["", "a", "a"]
    assert timers.due(3.0) == ["", "a", "b", "a", "b"]
