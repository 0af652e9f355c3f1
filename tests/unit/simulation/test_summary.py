"""Figures over a simulation's result."""

from math import isnan
from time import process_time

import pytest

from support.simulated_results import full_result, job_result
from tranche.simulation.analysis.summary import jain_index, summarize
from tranche.simulation.engine.result import SimulationResult


def result_of(*jcts: float, capacity: int = 0) -> SimulationResult:
    return SimulationResult(tuple(job_result(f"j{i}", 0.0, jct) for i, jct in enumerate(jcts)), capacity_gpus=capacity)


def test_percentiles_lie_between_the_two_nearest_jobs() -> None:
    summary = summarize(result_of(*(float(value) for value in range(1, 102))))
    assert summary.average_jct_seconds == 51.0
    assert summary.median_jct_seconds == 51.0
    assert summary.p95_jct_seconds == pytest.approx(96.0)
    assert summary.p99_jct_seconds == pytest.approx(100.0)
    assert summarize(result_of(10.0, 20.0)).p95_jct_seconds == pytest.approx(19.5)


def test_one_job_is_all_of_its_percentiles() -> None:
    summary = summarize(result_of(7.0))
    assert {
        summary.average_jct_seconds,
        summary.median_jct_seconds,
        summary.p95_jct_seconds,
        summary.p99_jct_seconds,
    } == {7.0}
    assert (summary.jobs, summary.worst_slowdown, summary.fairness_index) == (1, 1.0, 1.0)


def test_without_jobs_times_are_undefined_and_counts_are_zero() -> None:
    summary = summarize(SimulationResult((), {"default/giant": "never fits"}, capacity_gpus=4))
    undefined = {key for key, value in summary.as_dict().items() if isnan(value)}
    assert undefined == {
        "average_jct_seconds",
        "median_jct_seconds",
        "p95_jct_seconds",
        "p99_jct_seconds",
        "makespan_seconds",
        "average_queueing_seconds",
        "worst_slowdown",
        "fairness_index",
    }
    assert (summary.jobs, summary.unfinished, summary.utilisation) == (0, 1, 0.0)


def test_makespan_use_and_losses_are_those_of_the_whole_run() -> None:
    summary = summarize(full_result())
    assert summary.makespan_seconds == 80.0
    assert summary.utilisation == pytest.approx((10 + 60 + 80) / (4 * 80))
    assert (summary.preemptions, summary.starts, summary.lost_gpu_seconds) == (1, 5, 20.0)
    assert summary.worst_slowdown == pytest.approx(80 / 50)
    assert summary.unfinished == 1


def test_makespan_begins_with_the_first_submission() -> None:
    result = SimulationResult((job_result("late", 50.0, 60.0), job_result("early", 20.0, 100.0)))
    assert summarize(result).makespan_seconds == 80.0


def test_queueing_is_the_mean_of_the_waiting_times() -> None:
    jobs = (job_result("a", waiting_seconds=4.0), job_result("b", waiting_seconds=1.0))
    assert summarize(SimulationResult(jobs)).average_queueing_seconds == 2.5


def test_unlimited_capacity_has_no_utilisation() -> None:
    assert summarize(result_of(5.0, 6.0, capacity=0)).utilisation == 0.0


def test_jain_index_is_1_if_equal_and_1_over_n_if_one_has_all() -> None:
    assert jain_index([3.0, 3.0, 3.0]) == pytest.approx(1.0)
    assert jain_index([5.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert jain_index([0.0]) == 1.0


def test_the_keys_of_the_interface_stay() -> None:
    assert list(summarize(full_result()).as_dict()) == [
        "average_jct_seconds",
        "median_jct_seconds",
        "p95_jct_seconds",
        "p99_jct_seconds",
        "makespan_seconds",
        "average_queueing_seconds",
        "preemptions",
        "starts",
        "lost_gpu_seconds",
        "utilisation",
        "worst_slowdown",
        "fairness_index",
        "jobs",
        "unfinished",
        "gpu_seconds",
        "cloud_gpu_seconds",
        "copied_bytes",
        "in_vain_bytes",
        "communication_seconds",
        "total_utility",
    ]


def test_the_largest_trace_is_summed_up_in_a_moment() -> None:
    result = result_of(*(float(value % 1000 + 1) for value in range(82_247)), capacity=512)
    begun = process_time()
    assert summarize(result).jobs == 82_247
    assert process_time() - begun < 5.0
