"""Lower bounds: never above what is possible, exact where the relaxation is none."""

from functools import cache
from itertools import product
from math import isnan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.builders import job, node, worker
from support.lp_bounds import BoundError, lp_bound_seconds
from tranche.model import Job, Link, Site
from tranche.policies import POLICIES
from tranche.simulation.analysis import relaxation
from tranche.simulation.analysis.lower_bound import fluid_srpt_seconds, ideal_seconds, with_least_communication
from tranche.simulation.scenario import Scenario, run

Rows = list[tuple[int, int, int]]
"""Release, work in GPU-seconds, most GPUs at once."""
instances = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5), st.integers(1, 3)), min_size=1, max_size=3)


def jobs_of(rows: Rows) -> list[Job]:
    return [
        job(f"j{i}", float(release), chunks=work, seconds=1.0, max_workers=most)
        for i, (release, work, most) in enumerate(rows)
    ]


def least_average(rows: Rows, gpus: int) -> float:
    """The best schedule that changes at whole seconds only: no bound may be above it."""

    @cache
    def least(now: int, left: tuple[int, ...]) -> float:
        if not any(left):
            return 0.0
        caps = [
            min(most, rest, gpus) if release <= now else 0 for (release, _, most), rest in zip(rows, left, strict=True)
        ]
        best = float("inf")
        choices = [c for c in product(*(range(cap + 1) for cap in caps)) if sum(c) <= gpus]
        full = max(sum(c) for c in choices)
        for choice in (c for c in choices if sum(c) == full):
            after = tuple(rest - given for rest, given in zip(left, choice, strict=True))
            ended = sum(
                now + 1 - release
                for (release, _, _), before, rest in zip(rows, left, after, strict=True)
                if before and not rest
            )
            best = min(best, ended + least(now + 1, after))
        return best

    return least(0, tuple(work for _, work, _ in rows)) / len(rows)


@settings(max_examples=150)
@given(rows=instances, gpus=st.integers(1, 3))
def test_the_fluid_bound_is_never_above_the_best_schedule(rows: Rows, gpus: int) -> None:
    bound = fluid_srpt_seconds(jobs_of(rows), [node("a", gpus=gpus)])
    assert 0 < bound <= least_average(rows, gpus) + 1e-9
    assert bound >= ideal_seconds(jobs_of(rows), [node("a", gpus=gpus)]) - 1e-9


@settings(max_examples=30)
@given(rows=instances, gpus=st.integers(1, 3))
def test_the_lp_bound_is_never_above_the_best_schedule(rows: Rows, gpus: int) -> None:
    jobs, nodes = jobs_of(rows), [node("a", gpus=gpus)]
    bound = lp_bound_seconds(jobs, nodes, cells=60)
    assert ideal_seconds(jobs, nodes) - 1e-6 <= bound <= least_average(rows, gpus) + 1e-6


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("restart", [0.0, 7.0])
def test_no_policy_is_below_the_bound(policy: str, restart: float) -> None:
    jobs = [
        job(f"j{i}", 13.0 * i, chunks=1 + 5 * i % 7, seconds=20.0 + 31 * i % 90, max_workers=1 + i % 4)
        for i in range(20)
    ]
    nodes = [node("a", gpus=2), node("b", gpus=1)]
    result = run(Scenario(tuple(jobs), tuple(nodes), policy=policy, restart_seconds=restart))
    assert not result.unfinished
    assert fluid_srpt_seconds(jobs, nodes) <= result.average_jct_seconds + 1e-9


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_no_policy_is_below_the_bound_on_gangs(policy: str) -> None:
    jobs = [job(f"j{i}", 15.0 * i, seconds=20.0 + 37 * i % 150, worker=worker(1 << i % 3)) for i in range(30)]
    nodes = [node("pool", gpus=4)]
    result = run(Scenario(tuple(jobs), tuple(nodes), policy=policy))
    assert not result.unfinished
    bound = fluid_srpt_seconds(jobs, nodes)
    assert 1.1 * ideal_seconds(jobs, nodes) < bound <= result.average_jct_seconds + 1e-9


@pytest.mark.parametrize("policy", ["chunk-faithful", "fifo", "srsf"])
def test_the_bound_counts_communication_that_no_placement_avoids(policy: str) -> None:
    links = {"near": {"near": Link(2e6), "far": Link(1e6)}, "far": {"far": Link(4e6), "near": Link(1e6)}}
    sites = [Site(name, links=links[name]) for name in links]
    nodes = [node("a", "near", gpus=2), node("b", "far", gpus=1, speed=0.5)]
    jobs = [
        job(f"j{i}", 40.0 * i, chunks=1 + i % 3, seconds=30.0, gradient_bits=1e5, servers=1, server=worker(0))
        for i in range(12)
    ]
    counted = with_least_communication(jobs, nodes, sites)
    assert counted[0].step_seconds == pytest.approx(0.3 + 0.5 * 2e5 / 4e6)
    result = run(Scenario(tuple(jobs), tuple(nodes), tuple(sites), policy))
    assert not result.unfinished
    assert fluid_srpt_seconds(jobs, nodes) < fluid_srpt_seconds(counted, nodes) <= result.average_jct_seconds + 1e-9
    assert with_least_communication(jobs, nodes, [*sites, Site("cloud", unlimited=True)]) == jobs


def test_on_one_gpu_it_is_the_optimum() -> None:
    jobs = [job("long", 0.0, seconds=3.0), job("short", 1.0, seconds=1.0)]
    assert fluid_srpt_seconds(jobs, [node("a")]) == pytest.approx((4 + 1) / 2)


def test_without_contention_it_is_the_ideal_time() -> None:
    jobs = [job("a", 0.0, chunks=4, seconds=50.0), job("b", 1000.0, chunks=4, seconds=50.0, max_workers=2)]
    assert fluid_srpt_seconds(jobs, [node("a", gpus=4)]) == pytest.approx((50 + 100) / 2)


def test_bound_under_load_exceeds_the_bound_of_initial_prices() -> None:
    jobs = [job(f"short{i}", 40.0 * i, seconds=100.0 + i) for i in range(20)]
    jobs += [job(f"wide{i}", 100.0 * i, chunks=4, seconds=30.0) for i in range(8)]
    jobs += [job("long", 0.0, seconds=2000.0)]
    nodes = [node("a", gpus=4)]
    start = fluid_srpt_seconds(jobs, nodes, passes=0)
    assert fluid_srpt_seconds(jobs, nodes) > 1.01 * start


def test_bound_of_prices_is_close_to_the_linear_program() -> None:
    jobs = [job(f"j{i}", 9.0 * i % 50, seconds=10.0 + 7 * i % 40, chunks=1 + i % 3) for i in range(25)]
    nodes = [node("a", gpus=3)]
    program, prices = lp_bound_seconds(jobs, nodes, cells=400), fluid_srpt_seconds(jobs, nodes, passes=200)
    assert program > 1.3 * ideal_seconds(jobs, nodes)
    assert 0.97 * program <= prices


def test_a_thousand_times_later_is_the_same_bound() -> None:
    def at(offset: float) -> float:
        jobs = [job(f"j{i}", offset + 9.0 * i, seconds=30.0, chunks=1 + i % 3) for i in range(25)]
        return fluid_srpt_seconds(jobs, [node("a", gpus=2)])

    assert at(1.7e9) == pytest.approx(at(0.0), rel=1e-9)


def test_gangs_use_all_their_members_at_once() -> None:
    gang = job("gang", chunks=4, seconds=10.0, worker=worker(2), is_gang=True)
    assert ideal_seconds([gang], [node("a", gpus=8)]) == pytest.approx(10.0)
    assert ideal_seconds([gang], [node("a", gpus=4)]) == pytest.approx(20.0)


def test_faster_nodes_lower_the_bound() -> None:
    one = [job("a", seconds=100.0)]
    assert ideal_seconds(one, [node("a"), node("b", speed=2.0)]) == pytest.approx(50.0)
    two = [job("a", seconds=90.0), job("b", seconds=90.0)]
    assert 45.0 <= fluid_srpt_seconds(two, [node("a"), node("b", speed=2.0)]) <= (45 + 67.5) / 2


def test_nothing_queues_where_capacity_is_unlimited() -> None:
    jobs = [job(f"j{i}", seconds=100.0) for i in range(5)]
    assert fluid_srpt_seconds(jobs, []) == pytest.approx(100.0)
    assert fluid_srpt_seconds(jobs, [node("a")], unlimited=True) == pytest.approx(100.0)
    assert fluid_srpt_seconds(jobs, [node("a")]) == pytest.approx(300.0)


def test_jobs_without_gpus_count_with_their_ideal_time() -> None:
    jobs = [job("cpu", chunks=2, seconds=30.0, max_workers=1, worker=worker(0)), job("gpu", seconds=20.0)]
    assert fluid_srpt_seconds(jobs, [node("a")]) == pytest.approx((60 + 20) / 2)
    with pytest.raises(BoundError, match="jobs that use them"):
        lp_bound_seconds(jobs, [node("a")])


def test_the_order_in_which_jobs_are_named_does_not_matter() -> None:
    jobs = [job(f"j{i}", 7.0 * i % 31, chunks=1 + i % 3, seconds=10.0 + i) for i in range(12)]
    nodes = [node("a", gpus=2)]
    assert fluid_srpt_seconds(jobs, nodes) == fluid_srpt_seconds(jobs[::-1], nodes)


def test_without_jobs_there_is_no_bound() -> None:
    assert isnan(fluid_srpt_seconds([], [node("a")]))
    assert isnan(ideal_seconds([], [node("a")]))
    assert isnan(lp_bound_seconds([], [node("a")]))


def test_bound_does_not_depend_on_the_rows_sorted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    several = [job(f"j{i}", 3.0 * (i % 17), chunks=1 + i % 5, seconds=2.0, max_workers=1 + i % 3) for i in range(60)]
    bound = fluid_srpt_seconds(several, [node("a", gpus=4)])
    monkeypatch.setattr(relaxation, "SORTED", 1)
    assert fluid_srpt_seconds(several, [node("a", gpus=4)]) == bound
