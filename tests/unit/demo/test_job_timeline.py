"""A timeline of a job: its completion time in four parts that add up to it."""

import pytest

from tranche.demo.job_timeline import Phases, read_timelines, split
from tranche.planner.journal import Fact

JOB = "default/j"


def opened(at: float, attempt: int, node: str = "a", chunks: tuple[int, ...] = (0,), handover: bool = False) -> Fact:
    return Fact(at, "opened", JOB, attempt, node, chunks, handover)


def started(at: float, attempt: int) -> Fact:
    return Fact(at, "started", JOB, attempt)


def closing(at: float, attempt: int) -> Fact:
    return Fact(at, "closing", JOB, attempt)


def ended(at: float, attempt: int, outcome: str = "Succeeded") -> Fact:
    return Fact(at, "ended", JOB, attempt, outcome=outcome)


PREEMPTED = [
    Fact(10.0, "submitted", JOB),
    opened(12.0, 1, "a"),
    started(13.0, 1),
    closing(20.0, 1),
    ended(21.0, 1, "Preempted"),
    opened(30.0, 2, "b"),
    started(32.0, 2),
    ended(40.0, 2),
]
"""Waits 2, starts 1, trains 8 (till its end), waits 9, starts 2, trains 8."""


def test_course_splits_into_wait_start_train_and_report_time() -> None:
    timeline = read_timelines(PREEMPTED)[JOB]
    assert split(timeline, completed=40.5) == Phases(waiting=11.0, starting=3.0, training=16.0, reporting=0.5)
    assert (timeline.preemptions, timeline.last_nodes, timeline.ended) == (1, {0: "b"}, 40.0)


def test_the_parts_add_up_where_workers_overlap() -> None:
    facts = [
        Fact(0.0, "submitted", JOB),
        opened(0.0, 1, chunks=(0,)),
        opened(1.0, 2, chunks=(1,)),
        started(2.0, 1),
        started(5.0, 2),
        ended(6.0, 1),
        ended(9.0, 2),
    ]
    phases = split(read_timelines(facts)[JOB], completed=9.25)
    assert phases == Phases(waiting=0.0, starting=2.0, training=7.0, reporting=0.25)
    assert phases.total == pytest.approx(9.25)


def test_window_closed_before_start_counts_as_starting() -> None:
    facts = [
        Fact(0.0, "submitted", JOB),
        opened(0.0, 1),
        closing(3.0, 1),
        ended(4.0, 1, "Lost"),
        opened(4.0, 2),
        started(5.0, 2),
        ended(7.0, 2),
    ]
    timeline = read_timelines(facts)[JOB]
    assert split(timeline, completed=7.0) == Phases(waiting=0.0, starting=5.0, training=2.0, reporting=0.0)
    assert timeline.preemptions == 0


def test_only_the_first_word_on_a_worker_counts() -> None:
    timeline = read_timelines([*PREEMPTED, started(50.0, 2), ended(60.0, 2, "Lost"), closing(61.0, 2)])[JOB]
    assert (timeline.workers[2].started, timeline.workers[2].ended, timeline.workers[2].outcome) == (
        32.0,
        40.0,
        "Succeeded",
    )


def test_facts_about_windows_of_earlier_process_are_ignored() -> None:
    assert read_timelines([started(3.0, 7), ended(4.0, 7)])[JOB].workers == {}


def test_a_crowd_is_what_starts_or_stops_at_that_moment() -> None:
    facts = [
        opened(0.0, 1),
        opened(0.0, 2),
        started(1.0, 1),
        closing(2.0, 1),  # one starts: concurrent 1
        closing(3.0, 2),  # it never ran, so its end frees nothing
        opened(3.0, 3),  # one stops: concurrent 1
        ended(4.0, 1, "Preempted"),
        opened(4.5, 4),
        started(5.0, 3),
        started(5.0, 4),
        opened(6.0, 5),
    ]
    workers = read_timelines(facts)[JOB].workers
    assert {attempt: worker.concurrent for attempt, worker in workers.items()} == {1: 0, 2: 1, 3: 1, 4: 1, 5: 0}
    assert (workers[1].concurrent_at_closing, workers[2].concurrent_at_closing) == (1, 1)


def test_a_window_that_waits_for_a_node_of_the_cloud_is_no_crowd() -> None:
    facts = [
        Fact(0.0, "submitted", JOB),
        opened(0.0, 1, "cloud", chunks=(0,)),
        opened(1.0, 2, "a", chunks=(1,)),
        opened(1.0, 3, "a", chunks=(2,)),
    ]
    workers = read_timelines(facts, {"cloud"})[JOB].workers
    assert [workers[attempt].concurrent for attempt in (1, 2, 3)] == [0, 0, 1]
