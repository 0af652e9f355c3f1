"""Timing of the engine: restart costs, periods, lost nodes, speeds, transfers; and its accounts add up."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from support.builders import gang, job, node, worker
from tranche.estimate import LevelNetwork
from tranche.model import Job, Link, Node, Site
from tranche.model.topology import RACK_LEVEL
from tranche.simulation.analysis.summary import summarize
from tranche.simulation.engine.accounting import MAX_SAMPLES
from tranche.simulation.engine.result import JobResult, SimulationResult
from tranche.simulation.named_random import lognormal
from tranche.simulation.scenario import NodeFailure, Scenario, run

ONE = (node("a"),)


def ran(jobs: Sequence[Job], nodes: Sequence[Node] = ONE, policy: str = "srsf", **changes: Any) -> SimulationResult:
    sites = changes.pop("sites", tuple(Site(name) for name in sorted({one.site for one in nodes})))
    return run(Scenario(tuple(jobs), tuple(nodes), sites, policy, record=True, **changes))


def by_name(result: SimulationResult) -> dict[str, JobResult]:
    assert not result.unfinished
    return {one.key.removeprefix("default/"): one for one in result.jobs}


def drawn(count: int, seed: int = 1) -> list[Job]:
    """Jobs of one worker with 1 to 4 GPUs that crowd a node of 4."""
    draw = Random(seed)
    jobs, clock = [], 0.0
    for number in range(count):
        clock += draw.choice((0, 5, 60, 200))
        gpus, seconds = draw.choice((1, 1, 2, 4)), float(draw.choice((10, 100, 300)))
        jobs.append(job(f"j{number}", clock, seconds=seconds, worker=worker(gpus, cpu=0), order=number))
    return jobs


def test_a_restart_cost_is_charged_at_every_start_of_a_pod() -> None:
    jobs = by_name(ran([job("long"), job("short", 50.0, seconds=10.0)], restart_seconds=30.0))
    # long: 30 of restart, 20 of training; short: 30 + 10; long again: 30 and the remaining 80
    assert (jobs["short"].started, jobs["short"].completed) == (80.0, 90.0)
    assert (jobs["long"].started, jobs["long"].completed) == (30.0, 200.0)
    assert (jobs["long"].starts, jobs["long"].preemptions) == (2, 1)
    assert (jobs["long"].lost_gpu_seconds, jobs["long"].attained_gpu_seconds) == (60.0, 100.0)


def test_pod_preempted_while_starting_loses_only_its_start_time() -> None:
    long = by_name(ran([job("long"), job("short", 10.0, seconds=5.0)], restart_seconds=30.0))["long"]
    assert long.completed == 10.0 + 35.0 + 30.0 + 100.0
    assert (long.lost_gpu_seconds, long.attained_gpu_seconds, long.preemptions, long.starts) == (40.0, 100.0, 0, 2)


def test_period_delays_job_starts_to_its_multiples_but_not_ends() -> None:
    jobs = by_name(ran([job("first", 10.0), job("second", 20.0)], policy="fifo", period_seconds=60.0))
    assert (jobs["first"].started, jobs["first"].completed) == (60.0, 160.0)
    assert (jobs["second"].started, jobs["second"].completed) == (180.0, 280.0)


def test_timer_at_a_multiple_of_the_period_is_processed() -> None:
    """34,961 × 22.4 is less than 783,126.4 by a rounding error: the timer was not due at that time, without end."""
    jobs = [job("first", seconds=900_000.0), job("second", seconds=900_000.0)]
    result = ran(jobs, policy="themis:lease=783126.4", period_seconds=22.4)
    assert len(result.jobs) == 2


def test_event_at_a_multiple_of_the_period_is_handled_at_once() -> None:
    jobs = by_name(ran([job("first", 60.0, seconds=60.0), job("second", 61.0)], policy="fifo", period_seconds=60.0))
    assert (jobs["first"].started, jobs["second"].started) == (60.0, 120.0)


def test_job_completes_at_its_last_chunk_within_a_period() -> None:
    nodes = [node("fast", speed=2.0), node("slow", speed=0.5)]
    result = ran([job("x", chunks=2)], nodes, period_seconds=300.0)
    found = by_name(result)["x"]
    assert sorted(found.chunk_completions) == [50.0, 200.0]
    assert found.completed == 200.0


def test_chunk_done_before_its_worker_is_stopped_keeps_its_end() -> None:
    jobs = [job("x", chunks=3, max_workers=1), job("short", 200.0, seconds=10.0)]
    found = by_name(ran(jobs, restart_seconds=60.0))["x"]
    # with this restart cost, a worker gets two chunks; the first one is stopped after 140 s of training
    assert (found.chunk_completions, found.starts) == ((160.0, 390.0, 490.0), 2)


def test_members_of_a_gang_train_together_after_a_lost_node() -> None:
    lost = (NodeFailure("b", 60.0, 70.0),)
    result = ran([gang("x"), job("y", 71.0, seconds=10.0)], [node("a"), node("b")], "fifo", failures=lost)
    again = [one for one in result.occupations if one.opened == 70.0]
    assert sorted((one.node, one.ended) for one in again) == [("a", 170.0), ("b", 170.0)]
    assert by_name(result)["y"].started == 170.0  # no member leaves its GPU before the others


def test_unsaved_work_of_a_lost_node_is_repeated_elsewhere() -> None:
    lost = (NodeFailure("a", 40.0),)
    result = ran([job("x")], [node("a"), node("b")], failures=lost)
    again = by_name(result)["x"]
    assert [(one.node, one.opened, one.ended, one.outcome) for one in result.occupations] == [
        ("a", 0.0, 40.0, "Lost"),
        ("b", 40.0, 140.0, "Succeeded"),
    ]
    assert (again.completed, again.lost_gpu_seconds, again.starts) == (140.0, 40.0, 2)


def test_a_job_on_the_only_node_waits_until_that_is_back() -> None:
    back = by_name(ran([job("x")], failures=(NodeFailure("a", 40.0, 75.0),)))["x"]
    assert (back.completed, back.waiting_seconds) == (175.0, 35.0)


def test_chunks_that_were_done_before_a_node_was_lost_stay_done() -> None:
    result = ran([job("x", chunks=3, max_workers=1)], failures=(NodeFailure("a", 250.0, 300.0),))
    assert by_name(result)["x"].completed == 400.0


def test_job_whose_node_stays_lost_is_unfinished_with_a_reason() -> None:
    result = ran([job("x")], failures=(NodeFailure("a", 40.0),))
    assert not result.jobs
    assert list(result.unfinished) == ["default/x"]
    assert result.unfinished["default/x"]


def test_a_failure_of_an_unknown_node_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'z'"):
        ran([job("x")], failures=(NodeFailure("z", 1.0),))


def test_a_node_of_twice_the_speed_takes_half_the_time() -> None:
    assert by_name(ran([job("x")], [node("a", speed=2.0)]))["x"].completed == 50.0


def test_a_gang_runs_at_the_pace_of_its_slowest_member() -> None:
    gang = job("x", chunks=2, is_gang=True)
    result = ran([gang], [node("fast", speed=2.0), node("slow", speed=0.5)], restart_seconds=10.0)
    assert [(one.opened, one.ended) for one in result.occupations] == [(0.0, 210.0), (0.0, 210.0)]
    assert by_name(result)["x"].ideal_seconds == 50.0


def test_a_chunked_job_runs_each_worker_at_its_own_pace() -> None:
    result = ran([job("x", chunks=2)], [node("fast", speed=2.0), node("slow", speed=0.5)])
    assert sorted(by_name(result)["x"].chunk_completions) == [50.0, 200.0]


class TestTransfers:
    """Data lie at edge-a; the only GPU is at edge-b, 20 s a chunk away."""

    SITES = (Site("edge-a", links={"edge-b": Link(8e6)}), Site("edge-b"))
    NODES = (node("b", "edge-b"),)
    FAR: dict[str, Any] = {"data_site": "edge-a", "chunk_bytes": 20e6}  # noqa: RUF012

    def test_a_chunk_pays_for_its_way_once(self) -> None:
        pair = [job("far", **self.FAR), job("short", 50.0, seconds=10.0)]
        jobs = by_name(ran(pair, self.NODES, "srsf:uploads=held", sites=self.SITES))
        assert (jobs["far"].started, jobs["far"].completed) == (20.0, 130.0)
        assert jobs["far"].lost_gpu_seconds == 20.0

    def test_every_chunk_pays(self) -> None:
        three = job("far", chunks=3, max_workers=1, **self.FAR)
        jobs = by_name(ran([three], self.NODES, "srsf:uploads=held", sites=self.SITES))
        assert jobs["far"].completed == 3 * (20.0 + 100.0)

    def test_no_gpu_is_held_during_an_upload(self) -> None:
        pair = [job("far", **self.FAR), job("short", 5.0, seconds=10.0)]
        jobs = by_name(ran(pair, self.NODES, "fifo", sites=self.SITES))
        assert (jobs["short"].started, jobs["far"].started) == (5.0, 20.0)
        assert jobs["far"].lost_gpu_seconds == 0.0

    def test_data_that_are_everywhere_pay_nothing(self) -> None:
        near = job("near", chunk_bytes=20e6)
        assert by_name(ran([near], self.NODES, sites=self.SITES))["near"].completed == 100.0


def test_wrong_estimates_change_the_order_and_no_true_duration() -> None:
    jobs = drawn(60)
    nodes = [node("a", gpus=4)]
    right, wrong = (by_name(ran(jobs, nodes, estimate_sigma=sigma, seed=3)) for sigma in (0.0, 1.0))
    assert {name: one.attained_gpu_seconds for name, one in wrong.items()} == pytest.approx(
        {name: one.attained_gpu_seconds for name, one in right.items()}
    )
    assert {name: one.ideal_seconds for name, one in wrong.items()} == {
        n: one.ideal_seconds for n, one in right.items()
    }
    assert [one.completed for one in wrong.values()] != [one.completed for one in right.values()]


def test_drawn_speeds_change_true_durations_by_job_and_node() -> None:
    jobs = [job(name, 1000.0 * place) for place, name in enumerate("xyz")]
    times = [one.jct_seconds for one in ran(jobs, speed_sigma=0.5, seed=1).jobs]
    assert len({*times, 100.0}) == 4
    assert times == [one.jct_seconds for one in ran(jobs, speed_sigma=0.5, seed=1, policy="fifo").jobs]
    assert times != [one.jct_seconds for one in ran(jobs, speed_sigma=0.5, seed=2).jobs]


@pytest.mark.parametrize("policy", ["fifo", "fifo-skip", "sjf", "srtf", "srsf", "las", "tiresias", "gittins", "drf"])
@pytest.mark.parametrize("restart", [0.0, 7.0])
def test_accounts_add_up(policy: str, restart: float) -> None:
    jobs = drawn(200)
    result = ran(jobs, [node("a", gpus=4)], policy, restart_seconds=restart)
    held = dict.fromkeys(by_name(result), 0.0)
    for span in result.occupations:
        held[span.job.removeprefix("default/")] += span.gpus * (span.ended - span.opened)
    by_key = {one.key: one for one in jobs}
    for name, one in by_name(result).items():
        seconds = by_key[one.key].step_seconds * 100
        assert one.attained_gpu_seconds == pytest.approx(seconds * one.gpus)
        assert one.lost_gpu_seconds + one.attained_gpu_seconds == pytest.approx(held[name])
        assert one.jct_seconds == pytest.approx(one.waiting_seconds + one.attained_gpu_seconds / one.gpus)
        assert one.slowdown >= 1 - 1e-9
        assert one.starts >= one.preemptions + 1
    busy = sum(one.busy_gpus * (later.at - one.at) for one, later in pairwise(result.samples))
    assert busy == pytest.approx(sum(held.values()))
    summary = summarize(result)
    room = 4 * summary.makespan_seconds
    assert summary.utilisation + summary.lost_gpu_seconds / room == pytest.approx(busy / room)


def test_window_that_one_decision_opens_and_closes_has_no_pod() -> None:
    """At 1,062.5 s, a gang starts, and another one that waits with it takes its GPUs in the same decision."""
    nodes = tuple(node(name, "edge", 2, labels={RACK_LEVEL: name}) for name in "abc")
    given = [(127, 3, 510.5), (254, 3, 2039), (381, 4, 127), (442, 2, 2039), (503, 4, 254.5), (564, 4, 509)]
    jobs = []
    for number, (at, workers, seconds) in enumerate(given):
        one = gang if number % 4 else job
        fields: dict[str, Any] = {"gradient_bits": 2e12} if number % 4 else {"max_workers": 2}
        fields |= {"chunks": workers, "batches_per_chunk": 1, "step_seconds": float(seconds)}
        jobs.append(one(str(number), float(at), restart_declared=False, **fields))
    network = LevelNetwork((1e12, 1e11, 1e10, 1e9))
    result = ran(jobs, nodes, "dally-like:timers=100/50", level_network=network, contention=False)
    assert not result.unfinished
    for name in "abc":
        held = [one for one in result.occupations if one.node == name]
        for moment in {one.opened for one in held}:
            assert sum(one.gpus for one in held if one.opened <= moment < one.ended) <= 2


def test_the_load_curve_counts_who_waits() -> None:
    samples = ran([job("x"), job("y", 30.0)], policy="fifo").samples
    assert [(one.at, one.busy_gpus, one.waiting_jobs) for one in samples] == [
        (0.0, 1, 0),
        (30.0, 1, 1),
        (100.0, 1, 0),
        (200.0, 0, 0),
    ]


@pytest.mark.slow
def test_ten_thousand_jobs_run_and_their_load_curve_is_thinned() -> None:
    jobs = [replace(one, key=f"default/j{n:05}") for n, one in enumerate(drawn(10_000, seed=2))]
    result = run(Scenario(tuple(jobs), (node("a", gpus=8),), (Site("edge-a"),), "srsf"))
    assert len(result.jobs) == 10_000
    last = result.jobs[-1].completed
    assert 1000 < len(result.samples) <= MAX_SAMPLES
    assert all(one.at < later.at for one, later in pairwise(result.samples))
    assert (result.samples[0].at, result.samples[-1].at) == (0.0, last)
    assert (result.samples[-1].busy_gpus, result.samples[-1].waiting_jobs) == (0, 0)


def test_the_same_scenario_gives_the_same_result() -> None:
    scenario = Scenario(
        tuple(drawn(100)), (node("a", gpus=4), node("b", gpus=4, speed=0.7)), (), "tiresias", 5, 3.0, 10.0, 0.3, 0.3
    )
    assert run(scenario) == run(scenario)


def test_progress_callback_runs_once_per_completed_job() -> None:
    calls: list[tuple[int, int]] = []
    run(Scenario(tuple(drawn(5)), (node("a", gpus=4),)), lambda done, of: calls.append((done, of)))
    assert calls == [(count, 5) for count in range(1, 6)]


def test_a_fair_share_starts_the_tenant_that_holds_less_first() -> None:
    jobs = [job(f"a{number}", owner="many", order=number) for number in range(4)]
    jobs.append(job("b", owner="one", order=9))
    assert by_name(ran(jobs, [node("a", gpus=2)], "drf"))["b"].started == 0.0
    assert by_name(ran(jobs, [node("a", gpus=2)], "fifo-skip"))["b"].started == 200.0


def test_a_thinned_load_curve_ends_with_the_last_job() -> None:
    jobs = [job(f"j{number:04}", 2.0 * number, seconds=1.0, order=number) for number in range(3000)]
    samples = run(Scenario(tuple(jobs), ONE, (Site("edge-a"),), "fifo")).samples
    assert len(samples) <= MAX_SAMPLES
    assert (samples[-1].at, samples[-1].busy_gpus, samples[-1].waiting_jobs) == (5999.0, 0, 0)


def test_a_timer_of_a_completed_job_does_not_prolong_the_run() -> None:
    samples = ran([job("x", seconds=1500.0)], policy="las").samples
    assert (samples[-1].at, samples[-1].busy_gpus) == (1500.0, 0)


def test_links_that_do_not_keep_their_promise_delay_copies() -> None:
    sites = tuple(Site(name, links={"a": Link(1e9), "b": Link(1e9)}) for name in "ab")
    nodes = (node("a-1", "a"), node("b-1", "b"))
    jobs = [job(str(n), 1000.0 * n, chunks=2, seconds=400.0, data_site="a", chunk_bytes=100e9 / 8) for n in range(4)]
    promised = by_name(ran(jobs, nodes, "chunk", sites=sites))
    assert [one.jct_seconds for one in promised.values()] == [500.0] * 4  # a copy takes 100 s
    drawn = by_name(ran(jobs, nodes, "chunk", sites=sites, link_sigma=0.5, seed=3))
    expected = 400.0 + min(400.0, 100.0 * lognormal(0.5, 3, "a", "b", "link"))
    assert [one.jct_seconds for one in drawn.values()] == pytest.approx([expected] * 4)
    assert expected != 500.0


def test_jobs_without_declared_size_attain_the_same_work() -> None:
    jobs = drawn(60)
    nodes = [node("a", gpus=4)]
    sized, unsized_jobs = (by_name(ran(jobs, nodes, "chunk", unsized=share, seed=3)) for share in (0.0, 1.0))
    assert {name: one.attained_gpu_seconds for name, one in unsized_jobs.items()} == pytest.approx(
        {name: one.attained_gpu_seconds for name, one in sized.items()}
    )
    assert [one.completed for one in unsized_jobs.values()] != [one.completed for one in sized.values()]


@pytest.mark.parametrize("policy", ["chunk", "srsf", "fifo"])
def test_job_starts_on_the_faster_of_two_gpu_kinds(policy: str) -> None:
    label = "nvidia.com/gpu.product"
    nodes = (node("a", labels={label: "K80"}, speed=0.25), node("b", labels={label: "V100"}))
    result = run(Scenario((job("one", seconds=100.0),), nodes, policy=policy))
    assert [done.completed for done in result.jobs] == [100.0]


def test_nodes_of_one_gpu_kind_keep_their_own_speeds() -> None:
    slow, fast = ({"nvidia.com/gpu.product": kind} for kind in ("K80", "V100"))
    nodes = (node("a", labels=slow, speed=0.25), node("b", labels=fast, speed=0.5), node("c", labels=fast, speed=2.0))
    result = run(Scenario(tuple(job(name, seconds=100.0) for name in "xyz"), nodes, policy="fifo"))
    assert [done.completed for done in result.jobs] == [50.0, 200.0, 400.0]


def test_job_preempted_in_its_last_moment_is_complete() -> None:
    """Its worker is stopped one rounding error before it ends, when all mini-batches are trained."""
    first = job("a", batches_per_chunk=11, step_seconds=7200 / 11)
    second = job("b", 7199.999999999999)
    result = run(Scenario((first, second), (node("n", gpus=1),), (Site("edge"),), "las"))
    assert not result.unfinished
    assert {one.key: round(one.completed) for one in result.jobs} == {"default/a": 7200, "default/b": 7300}
