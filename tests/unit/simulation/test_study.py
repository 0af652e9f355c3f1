"""Studies: the same figures wherever they run, failures by name, honest ratios."""

import multiprocessing
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from statistics import stdev
from typing import Any

import pytest

from support.builders import job, node
from tranche.model import Job
from tranche.policies import get_policy
from tranche.policies.registry import POLICIES
from tranche.simulation.analysis.comparison import compare
from tranche.simulation.analysis.confidence_interval import t_quantile
from tranche.simulation.cluster_spec import ClusterSpec, pool
from tranche.simulation.executors import ExternalPool, ProcessPool, SerialPool
from tranche.simulation.job_log import TraceRow
from tranche.simulation.recipe import FixedCluster, GivenJobs, LoggedJobs, Recipe, RowsLog
from tranche.simulation.study import Cell, Failure, Outcome, Study, StudyResult, run_cell, run_cells, run_study

JOBS = tuple(job(f"j{i}", 10.0 * i, chunks=1 + i % 3, seconds=60.0 if i % 4 else 600.0) for i in range(12))
CLUSTER = ClusterSpec("two", (node("a"), node("b")), (), ())
RECIPE = Recipe(GivenJobs(JOBS), FixedCluster(CLUSTER))
ROWS = tuple(TraceRow(str(i), 30.0 * (i // 2), 1 + i % 4, 50.0 + 40 * (i % 7)) for i in range(24))
LOGGED = Recipe(LoggedJobs(RowsLog(ROWS), resampled=True), FixedCluster(pool(4)))


class EndsTheProcess:
    """Kills whatever process it is unpickled in."""

    helper_count = 0

    def __reduce__(self) -> Any:
        return (os._exit, (7,))


DEADLY = replace(RECIPE, workload=GivenJobs((EndsTheProcess(),)))  # type: ignore[arg-type]


def study(**changes: Any) -> Study:
    return replace(Study(RECIPE, ("fifo", "srsf"), "fifo", seeds=(1, 2)), **changes)


def figures(result: StudyResult) -> list[tuple[str, float | None, int, dict[str, float | int]]]:
    assert not result.failures
    assert result.outcomes
    return [(o.policy, o.load, o.seed, o.summary.as_dict()) for o in result.outcomes]


def test_processes_change_no_digit() -> None:
    inputs = study(recipe=LOGGED, loads=(0.7, 1.1))
    assert figures(run_study(inputs, ProcessPool(2))) == figures(run_study(inputs, SerialPool()))


def test_any_executor_of_the_standard_interface_will_do() -> None:
    inputs = study(recipe=LOGGED, loads=(0.9,))
    with ThreadPoolExecutor(2) as threads:
        lent = run_study(inputs, ExternalPool(threads, 2))
        assert threads.submit(int, "3").result() == 3  # it is still its owner's
    assert figures(lent) == figures(run_study(inputs, SerialPool()))


def test_answers_come_by_load_policy_and_seed() -> None:
    inputs = study(recipe=LOGGED, loads=(1.1, 0.7), policies=("srsf", "fifo"), seeds=(3, 1))
    found = run_study(inputs, SerialPool()).outcomes
    order = [(1.1, "srsf"), (1.1, "fifo"), (0.7, "srsf"), (0.7, "fifo")]
    assert [(o.load, o.policy, o.seed) for o in found] == [(*pair, seed) for pair in order for seed in (3, 1)]


def test_progress_counts_every_simulation() -> None:
    calls: list[tuple[int, int]] = []
    run_study(study(recipe=LOGGED), SerialPool(), lambda done, total: calls.append((done, total)))
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_seeds_without_effect_are_detected_and_not_repeated() -> None:
    calls: list[tuple[int, int]] = []
    inputs = study(seeds=(1, 2, 3, 4))
    result = run_study(inputs, SerialPool(), lambda done, total: calls.append((done, total)))
    assert result.seedless == ("fifo", "srsf")
    assert calls == [(1, 8), (2, 8), (3, 8), (4, 8), (8, 8)]
    assert [(o.policy, o.seed) for o in result.outcomes] == [(p, s) for p in ("fifo", "srsf") for s in (1, 2, 3, 4)]
    ratio = compare(result, "fifo")[1].ratios["average_jct_seconds"]
    assert (ratio.count, ratio.half_width) == (1, None)


def test_policy_that_draws_runs_every_seed() -> None:
    """The first two seeds of a short log may agree by chance."""
    rows = (TraceRow("1", 0.0, 1, 10.0), TraceRow("2", 0.0, 1, 20.0))
    short = Recipe(LoggedJobs(RowsLog(rows), "elastic"), FixedCluster(pool(2)))
    inputs = study(recipe=short, policies=("fifo", "random"), seeds=tuple(range(4, 24)))
    result = run_study(inputs, SerialPool())
    averages = [o.summary.average_jct_seconds for o in result.outcomes if o.policy == "random"]
    assert averages[0] == averages[1]
    assert len(set(averages)) > 1
    assert result.seedless == ("fifo",)
    assert compare(result, "fifo")[1].ratios["average_jct_seconds"].count == 20


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_policy_that_draws_nothing_ignores_the_seed(name: str) -> None:
    recipe = Recipe(LoggedJobs(RowsLog(ROWS), "elastic"), FixedCluster(pool(4)))
    averages = {run_cell(Cell(recipe, name, seed)).summary.average_jct_seconds for seed in range(4)}
    assert len(averages) == 1 or get_policy(name).draws


def test_drawn_logs_differ_between_seeds_and_give_an_interval() -> None:
    result = run_study(study(recipe=LOGGED, seeds=(1, 2, 3)), SerialPool())
    assert result.seedless == ()
    mine = [o.summary.average_jct_seconds for o in result.outcomes if o.policy == "srsf"]
    base = [o.summary.average_jct_seconds for o in result.outcomes if o.policy == "fifo"]
    assert len(set(mine)) == 3
    fifo, srsf = compare(result, "fifo")
    ratio = srsf.ratios["average_jct_seconds"]
    assert ratio.mean == pytest.approx(sum(a / b for a, b in zip(mine, base, strict=True)) / 3)
    assert ratio.half_width is not None
    assert ratio.half_width > 0
    assert fifo.ratios["average_jct_seconds"].mean == 1.0


def test_interval_of_resampled_logs_is_that_of_one_log() -> None:
    """Else the interval of a figure on one log would vanish with enough seeds."""
    for resampled in (True, False):
        recipe = LOGGED if resampled else replace(RECIPE, estimate_sigma=2.0)
        result = run_study(study(recipe=recipe, seeds=(1, 2, 3, 4)), SerialPool())
        fifo, srsf = (
            [o.summary.average_jct_seconds for o in result.outcomes if o.policy == policy]
            for policy in ("fifo", "srsf")
        )
        deviation = stdev(a / b for a, b in zip(srsf, fifo, strict=True))
        width = compare(result, "fifo")[1].ratios["average_jct_seconds"].half_width
        assert width == pytest.approx(t_quantile(3) * deviation / (1 if resampled else 2))


def test_lower_bound_is_below_every_policy() -> None:
    for comparison in compare(run_study(study(), SerialPool()), "fifo"):
        assert comparison.bound_seconds is not None
        assert 0 < comparison.bound_seconds <= comparison.figures["average_jct_seconds"]


def test_no_bound_when_speeds_are_drawn() -> None:
    drawn = replace(RECIPE, speed_sigma=0.5)
    assert run_cell(Cell(drawn, "fifo", 1, bounded=True)).bound_seconds is None


def test_a_failed_cell_is_named_and_the_others_go_on() -> None:
    cells = [Cell(RECIPE, "fifo", 1), Cell(RECIPE, "no-such", 1, 0.9), Cell(RECIPE, "srsf", 1)]
    before, failed, after = run_cells(cells, SerialPool(), lambda: None)
    assert isinstance(before, Outcome)
    assert isinstance(after, Outcome)
    assert isinstance(failed, Failure)
    assert failed.name == "no-such (load 0.9, seed 1)"
    assert "unknown policy 'no-such'" in failed.reason


def test_a_cell_that_kills_its_process_takes_no_other_with_it() -> None:
    calls = 0

    def tell() -> None:
        nonlocal calls
        calls += 1

    cells = [Cell(RECIPE, "fifo", 1), Cell(DEADLY, "fifo", 2), Cell(RECIPE, "srsf", 3), Cell(RECIPE, "fifo", 4)]
    answers = run_cells(cells, ProcessPool(2), tell)
    assert [isinstance(answer, Outcome) for answer in answers] == [True, False, True, True]
    assert isinstance(answers[1], Failure)
    assert answers[1].name == "fifo (seed 2)"
    assert "process died" in answers[1].reason
    assert calls == 4


def test_an_interrupt_stops_the_pool_and_is_passed_on() -> None:
    class Interrupted(SerialPool):
        stopped = False

        def stop(self) -> None:
            self.stopped = True

    def interrupt() -> None:
        raise KeyboardInterrupt

    pool = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        run_cells([Cell(RECIPE, "fifo", 1)], pool, interrupt)
    assert pool.stopped


def test_stopping_kills_the_processes_of_the_pool_and_no_other() -> None:
    before = set(multiprocessing.active_children())
    pool = ProcessPool(1)
    executor = pool.open(1)
    sleeping = executor.submit(time.sleep, 3600)
    ours = set(multiprocessing.active_children()) - before
    assert ours
    pool.stop()
    executor.shutdown(wait=True)
    assert sleeping.done()
    assert not any(child.is_alive() for child in ours)
    assert set(multiprocessing.active_children()) <= before


def test_jobs_that_never_ran_are_counted_and_listed_with_reasons() -> None:
    large = [
        job(f"large{i}", worker=replace(job("x").worker, requests=pool(99).nodes[0].allocatable)) for i in range(12)
    ]
    outcome = run_cell(Cell(replace(RECIPE, workload=GivenJobs((*JOBS, *large))), "fifo", 1, bounded=True))
    assert outcome.unfinished == 12
    assert len(outcome.reasons) == 10
    assert all(name.startswith("large") and reason for name, reason in outcome.reasons)
    assert outcome.summary.jobs == len(JOBS)
    assert outcome.bound_seconds == run_cell(Cell(RECIPE, "fifo", 1, bounded=True)).bound_seconds


def test_policies_that_completed_different_jobs_get_no_ratio() -> None:
    result = run_study(study(seeds=(1,)), SerialPool())
    fifo, srsf = result.outcomes
    lacking = replace(result, outcomes=(fifo, replace(srsf, completed="others", unfinished=1)))
    assert compare(lacking, "fifo")[1].ratios == {}
    assert compare(lacking, "fifo")[1].incomparable == (1,)


def test_results_are_kept_on_demand_for_the_first_seed_only() -> None:
    kept = run_study(study(recipe=LOGGED, kept=True), SerialPool()).outcomes
    assert [o.seed for o in kept if o.result is not None] == [1, 1]
    assert all(o.result is None for o in run_study(study(recipe=LOGGED), SerialPool()).outcomes)


def test_load_stretches_arrivals() -> None:
    def span(load: float | None) -> float:
        jobs: tuple[Job, ...] = RECIPE.build("fifo", 1, load).jobs
        return max(j.submitted for j in jobs) - min(j.submitted for j in jobs)

    assert span(0.5) == pytest.approx(2 * span(1.0))
    assert span(None) == 110.0
