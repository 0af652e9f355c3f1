"""Measured beside simulated: relative differences, their spread, and causes that come from the data."""

from dataclasses import replace

import pytest

from tranche.demo.deviation import Deviation, compare, spread, within
from tranche.demo.job_timeline import JobTimeline, Phases, WorkerTimeline

SAME = Deviation("default/j", Phases(2.0, 1.0, 7.0, 0.0), Phases(2.0, 1.0, 7.0, 0.0), 1, 1, 8, 0)


def ran(started: float, ended: float, node: str = "a", opened: float = 0.0) -> JobTimeline:
    return JobTimeline(0.0, {1: WorkerTimeline(node, (0,), opened, started=started, ended=ended, outcome="Succeeded")})


def test_a_difference_is_relative_to_the_measured_time() -> None:
    found = replace(SAME, simulated=Phases(2.0, 1.0, 5.0, 0.0))
    assert (found.seconds, found.relative) == (2.0, 0.2)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({}, ""),
        ({"simulated": Phases(0.5, 1.0, 7.0, 0.0)}, "waiting for GPUs +1.5 s"),
        ({"simulated": Phases(2.0, 2.0, 7.0, 0.0)}, "pods starting -1.0 s"),
        ({"simulated": Phases(2.0, 0.5, 5.0, 0.0)}, "training, with pauses +2.0 s, pods starting +0.5 s"),
        ({"measured": Phases(2.0, 1.0, 7.0, 0.9)}, "status written +0.9 s"),
        (
            {"simulated": Phases(1.0, 1.0, 7.0, 0.0), "simulated_preemptions": 0, "moved_chunks": 3},
            "waiting for GPUs +1.0 s; preempted 1, not 0 times; 3 of 8 chunks on other nodes",
        ),
    ],
)
def test_the_cause_names_the_parts_and_the_decisions_that_differ(changes: dict[str, object], cause: str) -> None:
    assert replace(SAME, **changes).cause() == cause  # type: ignore[arg-type]


def test_parts_that_point_the_other_way_are_no_cause() -> None:
    found = replace(SAME, simulated=Phases(0.0, 2.0, 7.0, 0.0))
    assert (found.seconds, found.cause()) == (1.0, "waiting for GPUs +2.0 s")


def test_comparison_lists_completed_jobs_with_worst_first() -> None:
    measured = {"good": ran(1.0, 10.0), "bad": ran(1.0, 10.0, "b"), "unended": ran(1.0, 10.0), "failed": ran(1.0, 10.0)}
    simulated = {"good": ran(1.0, 10.1), "bad": ran(1.0, 15.0), "unended": JobTimeline(0.0), "failed": ran(1.0, 10.0)}
    found = compare(measured, simulated, {"good": 10.2, "bad": 10.2, "unended": 10.2}, reporting=0.1)
    assert [one.job for one in found] == ["bad", "good"]
    assert found[0].relative == pytest.approx(4.9 / 10.2)
    assert (found[0].moved_chunks, found[0].chunks, found[1].moved_chunks) == (1, 1, 0)
    assert found[1].seconds == pytest.approx(0.0)


def test_spread_is_median_and_95th_percentile() -> None:
    shares = [i / 100 for i in range(21)]
    found = [replace(SAME, measured=Phases(100.0, 0, 0, 0), simulated=Phases(100.0 - 100 * s, 0, 0, 0)) for s in shares]
    assert spread(found) == pytest.approx((0.10, 0.19))
    assert spread(found[:1]) == (0.0, 0.0)
    assert spread([]) == (0.0, 0.0)


def test_a_time_is_within_a_range_with_a_twentieth_of_tolerance() -> None:
    assert within(9.6, (10.0, 20.0))
    assert within(20.9, (10.0, 20.0))
    assert not within(9.4, (10.0, 20.0))
    assert not within(21.1, (10.0, 20.0))
    assert not within(1.0, None)
