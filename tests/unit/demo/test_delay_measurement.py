"""Delays of a run: means over its windows, each of one kind."""

import pytest

from tranche.demo.delay_measurement import Kinds, measure_delays, report_seconds, start_errors, turnarounds
from tranche.demo.job_timeline import JobTimeline, WorkerTimeline
from tranche.simulation.engine.control_plane_delays import Delays


def timeline(*workers: WorkerTimeline, submitted: float = 0.0) -> JobTimeline:
    return JobTimeline(submitted, dict(enumerate(workers, 1)))


def test_starts_stops_and_handovers_are_averaged_apart() -> None:
    victim = WorkerTimeline("a", (0,), 0.0, started=0.4, closing=10.0, ended=10.9, outcome="Preempted")
    other = WorkerTimeline("b", (1,), 0.0, started=0.2, closing=20.0, ended=20.5, outcome="Preempted")
    heir = WorkerTimeline("a", (0,), 10.0, handover=True, started=11.2, ended=15.0, outcome="Succeeded")
    timelines = {"v": timeline(victim, other), "h": timeline(heir)}
    measured = measure_delays(timelines, save_seconds=0.2)
    assert measured.start_seconds == pytest.approx(0.3)
    assert measured.concurrency_seconds == 0.0
    assert start_errors(timelines, measured) == pytest.approx([0.1, -0.1])
    assert measured.notice_seconds == pytest.approx((0.7 + 0.3) / 2)
    assert measured.save_seconds == 0.2
    assert measured.handover_seconds == pytest.approx(11.2 - 10.9)


def test_release_is_measured_on_jobs_without_a_stop() -> None:
    whole = WorkerTimeline("a", (0,), 0.0, started=1.0, ended=11.7, outcome="Succeeded")
    victim = WorkerTimeline("b", (0,), 0.0, started=1.0, closing=5.0, ended=6.2, outcome="Preempted")
    rest = WorkerTimeline("b", (0,), 7.0, started=7.0, ended=99.0, outcome="Succeeded")
    timelines = {"w": timeline(whole), "v": timeline(victim, rest), "unknown": timeline(rest)}
    measured = measure_delays(timelines, 0.1, training_seconds={"w": 10.0, "v": 10.0, "gone": 1.0})
    assert measured.release_seconds == pytest.approx(0.7)
    assert measured.notice_seconds == pytest.approx(1.2 - 0.1)


def test_pod_stopped_before_training_adds_no_notice_delay() -> None:
    unborn = WorkerTimeline("a", (0,), 0.0, closing=1.0, ended=7.0, outcome="Lost")
    late = WorkerTimeline("a", (0,), 0.0, started=2.0, closing=1.0, ended=9.0, outcome="Preempted")
    assert measure_delays({"j": timeline(unborn, late)}, 0.2).notice_seconds == 0.0


def test_handover_counts_from_last_leaver_before_the_start() -> None:
    leavers = [
        WorkerTimeline("a", (i,), 0.0, started=1.0, closing=10.0, ended=end, outcome="Preempted")
        for i, end in enumerate((10.5, 11.0, 13.0))
    ]
    heir = WorkerTimeline("a", (9,), 10.0, handover=True, started=11.4)
    assert measure_delays({"v": timeline(*leavers), "h": timeline(heir)}, 0.0).handover_seconds == pytest.approx(0.4)


def test_a_run_without_windows_has_no_delays() -> None:
    assert measure_delays({}, 0.2) == Delays(0.0, 0.0, 0.2, 0.0, 0.0)
    assert report_seconds({}, {}) == 0.0


def test_report_seconds_is_mean_from_last_end_to_completion() -> None:
    timelines = {
        "x": timeline(WorkerTimeline("a", (0,), 0.0, started=1.0, ended=5.0, outcome="Succeeded")),
        "y": timeline(WorkerTimeline("a", (0,), 0.0, started=1.0, ended=7.0, outcome="Succeeded")),
    }
    assert report_seconds(timelines, {"x": 5.1, "y": 7.3}) == pytest.approx(0.2)


def test_delays_grow_with_the_crowd_by_a_line_through_the_starts() -> None:
    starts = [WorkerTimeline("a", (k,), 0.0, concurrent=k, started=0.3 + 0.05 * k) for k in (0, 1, 4, 9)]
    leaver = WorkerTimeline(
        "b", (9,), 0.0, concurrent=2, started=0.4, closing=5.0, concurrent_at_closing=6, ended=5.9, outcome="Preempted"
    )
    measured = measure_delays({"j": timeline(*starts, leaver)}, save_seconds=0.2)
    assert measured.start_seconds == pytest.approx(0.3)
    assert measured.concurrency_seconds == pytest.approx(0.05)
    assert measured.notice_seconds == pytest.approx(0.9 - 0.2 - 6 * 0.05)
    assert start_errors({"j": timeline(*starts)}, measured) == pytest.approx([0.0] * 4)


@pytest.mark.parametrize("seconds", [(0.9, 0.3), (0.0, 9.0)])
def test_start_delay_without_valid_line_is_the_mean(seconds: tuple[float, float]) -> None:
    workers = [WorkerTimeline("a", (k,), 0.0, concurrent=k, started=s) for k, s in zip((1, 2), seconds, strict=True)]
    measured = measure_delays({"j": timeline(*workers)}, 0.0)
    assert measured.start_seconds == pytest.approx(sum(seconds) / 2)
    assert measured.concurrency_seconds == 0.0


def test_turnaround_of_awaited_gpu_is_from_freeing_end_to_start() -> None:
    small = WorkerTimeline("a", (0,), 0.0, started=0.5, ended=4.0, outcome="Succeeded")
    large = WorkerTimeline("a", (0,), 0.0, started=0.5, ended=9.0, outcome="Succeeded")
    pair = [WorkerTimeline("a", (i,), 9.1, started=9.3 + i / 10, ended=12.0, outcome="Succeeded") for i in (0, 1)]
    timelines = {"s": timeline(small), "l": timeline(large), "p": timeline(*pair, submitted=1.0)}
    first, second = turnarounds(timelines, {"a": 2})
    assert (first.freed, second.freed) == (9.0, 9.0), "one GPU was free from 4 on, and the pair needs both"
    assert first.seconds == pytest.approx(0.3)
    assert second.seconds == pytest.approx(0.4)
    assert first.planning_seconds == pytest.approx(0.1)
    assert first.starting_seconds == pytest.approx(0.2)


def test_turnaround_after_preemption_counts_from_victim_end() -> None:
    victim = WorkerTimeline("a", (0,), 0.0, started=0.5, closing=5.0, ended=6.0, outcome="Preempted")
    heir = WorkerTimeline("a", (0,), 5.0, handover=True, started=6.25, ended=8.0, outcome="Succeeded")
    (found,) = turnarounds({"v": timeline(victim), "h": timeline(heir, submitted=5.0)}, {"a": 1})
    assert (found.seconds, found.planning_seconds, found.starting_seconds) == (0.25, 0.0, 0.25)


def test_a_start_that_found_free_gpus_turns_none_around() -> None:
    early = WorkerTimeline("a", (0,), 0.0, started=0.5, ended=2.0, outcome="Succeeded")
    late = WorkerTimeline("a", (0,), 7.0, started=7.5, ended=8.0, outcome="Succeeded")
    assert turnarounds({"e": timeline(early), "l": timeline(late, submitted=7.0)}, {"a": 1, "b": 1}) == []


def test_end_recorded_after_next_start_has_zero_turnaround() -> None:
    before = WorkerTimeline("a", (0,), 0.0, started=1.0, ended=12.0)
    after = WorkerTimeline("a", (0,), 10.0, started=11.0, ended=15.0)
    last = WorkerTimeline("a", (0,), 15.0, started=17.0, ended=20.0)
    timelines = {"b": timeline(before), "a": timeline(after, submitted=5.0), "l": timeline(last, submitted=5.0)}
    assert [one.seconds for one in turnarounds(timelines, {"a": 1})] == [0.0, 2.0]


def test_starts_of_gangs_and_of_new_nodes_are_measured_apart() -> None:
    single = WorkerTimeline("a", (0,), 0.0, started=0.3)
    member = WorkerTimeline("a", (0,), 0.0, started=0.5)
    cold, late = WorkerTimeline("cloud", (0,), 10.0, started=15.0), WorkerTimeline("cloud", (1,), 10.0, started=17.0)
    warm = WorkerTimeline("cloud", (2,), 20.0, started=20.9)
    timelines = {"s": timeline(single, cold, late, warm), "g": timeline(member)}
    kinds = Kinds({"g"}, {"cloud": 4.0})
    measured = measure_delays(timelines, 0.2, kinds)
    assert measured.start_seconds == pytest.approx(0.3)
    assert measured.gang_seconds == pytest.approx(0.2)
    assert measured.node_seconds == pytest.approx(6.0)
    assert start_errors(timelines, measured, kinds) == pytest.approx([0.0, 0.0])


def test_workers_at_unlimited_sites_take_no_turn_at_a_gpu() -> None:
    first = WorkerTimeline("a", (0,), 0.0, started=0.5, ended=4.0, outcome="Succeeded")
    cloud = WorkerTimeline("cloud", (0,), 1.0, started=6.0, ended=9.0, outcome="Succeeded")
    assert turnarounds({"f": timeline(first), "c": timeline(cloud, submitted=1.0)}, {"a": 1}) == []
