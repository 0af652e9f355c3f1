"""Policies by attained service: classes of `las`, queues of `tiresias`, the index of `gittins`."""

import pytest

from support.builders import job, node, worker
from tranche.model import Job
from tranche.policies.queue.gittins import LIMITS, indices
from tranche.policies.queue.las import Las
from tranche.simulation.scenario import Scenario, run


def completed(policy: str, jobs: list[Job], gpus: int = 1) -> dict[str, float]:
    """Return the completion of each job by name."""
    result = run(Scenario(tuple(jobs), (node("n0", gpus=gpus),), policy=policy))
    assert not result.unfinished
    return {one.key.removeprefix("default/"): one.completed for one in result.jobs}


@pytest.mark.parametrize(
    ("gpu_seconds", "number"), [(0.0, 0), (1023.0, 0), (1024.0, 1), (2047.0, 1), (2048.0, 2), (4096.0, 3)]
)
def test_classes_of_las_double(gpu_seconds: float, number: int) -> None:
    assert Las().level_at(gpu_seconds) == number


def test_las_stops_a_job_that_has_attained_a_class_more() -> None:
    """At 512 s, a has attained 1,024 GPU-seconds, the limit of the first class; b waits since 100 s."""
    jobs = [job("a", seconds=2000.0, worker=worker(2)), job("b", 100.0, seconds=50.0, worker=worker(2))]
    assert completed("las", jobs, gpus=2) == pytest.approx({"a": 2050.0, "b": 562.0})


def test_las_leaves_jobs_of_one_class_in_order_of_submission() -> None:
    jobs = [job("a", seconds=1000.0), job("b", 100.0, seconds=50.0)]
    assert completed("las", jobs) == pytest.approx({"a": 1000.0, "b": 1050.0})


@pytest.mark.parametrize("order", ["arrival", "start", "entry", "running", "attained", "simulator"])
def test_job_falls_at_the_limits_of_the_authors_simulator(order: str) -> None:
    """Two GPUs attain 3,250 GPU-seconds in 1,625 s and 7,200 in 3,600 s; b and then c come before a from there on."""
    jobs = [
        job("a", seconds=9000.0, worker=worker(2)),
        job("b", 1600.0, seconds=10.0, worker=worker(2)),
        job("c", 1610.0 + 3500.0, seconds=20.0, worker=worker(2)),
    ]
    found = completed(f"tiresias:order={order}", jobs, gpus=2)
    assert found == pytest.approx({"a": 9030.0, "b": 1635.0, "c": 5130.0})


def test_job_in_the_last_queue_waits_for_one_in_the_second() -> None:
    """b attains 3,250 GPU-seconds at 10,250 s; in the second queue it still comes before a, which is in the third."""
    jobs = [job("a", seconds=9000.0), job("b", 7000.0, seconds=4000.0)]
    assert completed("tiresias", jobs) == pytest.approx({"a": 13_000.0, "b": 11_000.0})


@pytest.mark.parametrize(("order", "b"), [("running", 8250.0), ("arrival", 12_200.0), ("simulator", 12_200.0)])
def test_job_that_falls_gives_way_if_it_enters_last(order: str, b: float) -> None:
    """a falls at 3,250 s, b at 6,500 s. Where running jobs come first, b goes on; else a runs to 10,450 s."""
    jobs = [job("a", seconds=10_000.0), job("b", 10.0, seconds=5000.0)]
    assert completed(f"tiresias:order={order}", jobs) == pytest.approx({"a": 15_000.0, "b": b})


def test_job_stopped_last_goes_on_first_as_in_the_simulator() -> None:
    """Both are in the second queue from 10 and 11 s on; c stops y at 25 s, and d stops x at 27 s, until 30 and 35 s."""
    jobs = [job("x", seconds=100.0), job("y", 1.0, seconds=100.0), job("c", 25.0, seconds=5.0)]
    found = completed("tiresias:limits=10/1000:order=simulator", [*jobs, job("d", 27.0, seconds=8.0)], gpus=2)
    assert found == pytest.approx({"x": 103.0, "y": 111.0, "c": 30.0, "d": 35.0})


def test_stopped_job_goes_on_before_one_that_fell_later() -> None:
    """In the second queue, a waits since it fell at 20 s, and b since c stopped it at 25 s; b goes on at 30 s."""
    jobs = [job("b", seconds=100.0), job("a", 1.0, seconds=100.0), job("c", 25.0, seconds=5.0)]
    found = completed("tiresias:limits=10/1000:order=simulator", jobs)
    assert found == pytest.approx({"b": 115.0, "a": 205.0, "c": 30.0})


@pytest.mark.parametrize(("promote", "ends"), [(0, 1000.0), (2, 93.0)])
def test_job_that_waits_long_enough_returns_to_the_first_queue(promote: int, ends: float) -> None:
    """a runs for 10 s and falls. Short jobs pass it from 10 s on, until it has waited for twice 10 s, at 30 s.

    The one of 28 s is then done at 37 s. a runs to 47 s and falls again: its second promotion, at 67 s, counts the 10 s
    since the first one. The job of 64 s was in the first queue before and is done at 83 s; a ends at 93 s.
    """
    short = [job(f"s{i:03}", 10.0 + 9 * i, seconds=9.0) for i in range(120)]
    found = completed(f"tiresias:limits=10/1000:promote={promote}", [job("a", seconds=30.0), *short])
    assert found["a"] == pytest.approx(ends) if promote else found["a"] > ends


HISTORY = [100.0] * 9 + [10_000.0]
"""Service of ten completed jobs, in GPU-seconds."""


@pytest.mark.parametrize(
    ("attained", "index"), [(0.0, 0.9 / 102.8), (64.0, 0.9 / ((9 * 36 + 64) / 10)), (128.0, 1 / 9872), (16_384.0, 0.0)]
)
def test_index_is_the_best_chance_of_completion_per_service(attained: float, index: float) -> None:
    """From 0 to 128 GPU-seconds, nine of ten jobs complete, and the mean service is (9 · 100 + 128)/10 = 102.8."""
    assert indices(HISTORY)[LIMITS.index(attained)] == pytest.approx(index)


def test_gittins_runs_new_jobs_before_one_that_is_likely_long() -> None:
    """After ten jobs of 100 s, one of 10,000 s has passed all of them; a new one of 100 s stops it."""
    past = [job(f"p{i}", 200.0 * i, seconds=100.0) for i in range(10)]
    jobs = [*past, job("long", 2000.0, seconds=10_000.0), job("new", 3000.0, seconds=100.0)]
    assert completed("gittins", jobs)["new"] == pytest.approx(3100.0)
