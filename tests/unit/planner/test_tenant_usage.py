"""Priority classes as strict tiers, and fair shares between tenants, under the policy chunk."""

from math import log

import pytest

from support.builders import job, node, of_type, planner
from tranche.model import JobProgress, Resources
from tranche.planner import CloseWindow, JobSubmitted, OpenWindow, Planner, Tick, WorkerEnded, WorkerStarted
from tranche.policies import get_policy
from tranche.state.tenant_usage import Shares

HIGH, LOW = -8, -10


def running(p: Planner) -> set[str]:
    return {
        key.partition("/")[2]
        for key, state in p.cluster.jobs.items()
        if any(not run.closing for run in state.runs.values())
    }


def submit(p: Planner, name: str, at: float, tenant: str, seconds: float, priority: int = -9) -> None:
    p.handle(JobSubmitted(job(name, at, key=f"{tenant}/{name}", seconds=seconds, priority=priority)), at)


def start(p: Planner, now: float) -> None:
    for key, state in p.cluster.jobs.items():
        for attempt, run in list(state.runs.items()):
            if run.closing:
                p.handle(WorkerEnded(key, attempt, "Preempted", now, {}), now)
            elif run.started is None:
                p.handle(WorkerStarted(key, attempt, now), now)


def test_higher_priority_job_preempts_much_shorter_one() -> None:
    p = planner("chunk:aging=0", [node("n1")])
    submit(p, "short", 0.0, "a", 10.0)
    start(p, 0.0)
    out = p.handle(JobSubmitted(job("urgent", 9.0, seconds=10_000, priority=HIGH)), 9.0)
    assert [i.job for i in of_type(CloseWindow, out)] == ["a/short"]
    assert [i.job for i in of_type(OpenWindow, out)] == ["default/urgent"]


def test_short_low_priority_job_waits_for_higher_priority() -> None:
    p = planner("chunk:aging=0", [node("n1")])
    submit(p, "long", 0.0, "a", 10_000.0)
    start(p, 0.0)
    submit(p, "low", 1.0, "a", 10.0, LOW)
    submit(p, "normal", 2.0, "a", 1000.0, LOW + 1)
    assert running(p) == {"normal"}


def test_queue_orders_waiting_jobs_by_priority_class() -> None:
    p = planner("chunk:aging=0", [node("n1")])
    submit(p, "first", 0.0, "a", 5.0, HIGH)
    submit(p, "low", 0.0, "a", 10.0, LOW)
    submit(p, "high", 0.0, "a", 1000.0, HIGH)
    submit(p, "normal", 0.0, "a", 500.0)
    assert p.queue is not None
    assert [state.job.key for state in p.queue.waiting()] == ["a/high", "a/normal", "a/low"]


def test_tenant_over_its_share_ranks_lower_after_next_review() -> None:
    p = planner("chunk:fair=1:aging=0", [node("n1")])
    submit(p, "greedy", 0.0, "a", 500.0)
    start(p, 0.0)
    submit(p, "patient", 1.0, "b", 600.0)
    submit(p, "next", 1.0, "a", 520.0)
    assert p.queue is not None
    assert p.queue.waiting()[0].job.key == "a/next"
    p.handle(Tick(), 60.0)
    assert p.cluster.shares.over == {"a"}
    assert p.queue.waiting()[0].job.key == "b/patient"


def test_without_the_option_the_shorter_job_goes_first() -> None:
    p = planner("chunk:aging=0", [node("n1")])
    submit(p, "greedy", 0.0, "a", 500.0)
    start(p, 0.0)
    submit(p, "patient", 1.0, "b", 600.0)
    submit(p, "next", 1.0, "a", 520.0)
    p.handle(WorkerEnded("a/greedy", 1, "Succeeded", 500.0), 500.0)
    assert running(p) == {"next"}
    assert p.cluster.shares.over == frozenset()
    assert p.next_wakeup() is None  # shares are not looked at


def test_with_the_option_the_tenant_that_had_less_goes_first() -> None:
    p = planner("chunk:fair=1:aging=0", [node("n1")])
    submit(p, "greedy", 0.0, "a", 500.0)
    start(p, 0.0)
    submit(p, "patient", 1.0, "b", 600.0)
    submit(p, "next", 1.0, "a", 520.0)
    p.handle(WorkerEnded("a/greedy", 1, "Succeeded", 500.0), 500.0)
    assert running(p) == {"patient"}


def test_a_priority_class_comes_before_a_share() -> None:
    p = planner("chunk:fair=1:aging=0", [node("n1")])
    submit(p, "greedy", 0.0, "a", 500.0)
    start(p, 0.0)
    submit(p, "patient", 1.0, "b", 600.0)
    submit(p, "urgent", 1.0, "a", 450.0, HIGH)
    assert running(p) == {"urgent"}


def test_double_weight_entitles_tenant_to_double_gpu_time() -> None:
    shares = Shares(weights={"a": 2.0}, halflife_seconds=1e9)
    for tenant, gpus in (("a", 4), ("b", 2)):
        shares.change(tenant, Resources(gpus=gpus), 0.0)
    shares.review(["a", "b"], 100.0)
    assert shares.over == frozenset()
    shares.change("b", Resources(gpus=1), 100.0)
    shares.review(["a", "b"], 1000.0)
    assert shares.over == {"b"}


def test_a_tenant_that_is_alone_is_never_above_its_share() -> None:
    shares = Shares(halflife_seconds=100.0)
    shares.change("a", Resources(gpus=4), 0.0)
    shares.change("gone", Resources(gpus=1), 0.0)
    shares.review(["a"], 50.0)
    assert shares.over == frozenset()


def test_tenant_slightly_over_share_keeps_its_current_standing() -> None:
    shares = Shares(halflife_seconds=1e9)
    shares.change("a", Resources(gpus=51), 0.0)
    shares.change("b", Resources(gpus=49), 0.0)
    shares.review(["a", "b"], 10.0)
    assert shares.over == frozenset()
    shares.over = frozenset({"a"})
    shares.review(["a", "b"], 20.0)
    assert shares.over == {"a"}
    assert shares.revision == 0


def test_gpu_time_halves_per_half_life_and_held_gpus_add_up() -> None:
    shares = Shares(halflife_seconds=100.0)
    shares.change("a", Resources(gpus=2), 0.0)
    assert shares.recent("a", 100.0) == pytest.approx(2 * 0.5 * 100.0 / log(2))
    before = shares.recent("a", 100.0)
    shares.change("a", Resources(gpus=-2), 100.0)
    assert shares.recent("a", 200.0) == pytest.approx(before / 2)


def test_restored_planner_spreads_recorded_use_evenly() -> None:
    p = planner("chunk:fair=1:halflife=1000", [node("n1")])
    progress = JobProgress(attained_gpu_seconds=400.0)
    p.restore([JobSubmitted(job("old", 0.0, key="a/old", chunks=2), progress=progress)], 2000.0)
    assert p.cluster.shares.recent("a", 2000.0) == pytest.approx(400 * (1 - 0.25) / (2 * log(2)))
    fresh = Shares(halflife_seconds=1000.0)
    fresh.restore("a", 400.0, 2000.0, 2000.0)
    assert fresh.recent("a", 2000.0) == 400.0


def test_shares_are_reviewed_every_minute_if_tenants_compete() -> None:
    p = planner("chunk:fair=1:aging=0", [node("n1")])
    submit(p, "one", 0.0, "a", 1000.0)
    assert p.next_wakeup() == 60.0
    p.handle(Tick(), 60.0)
    assert p.next_wakeup() is None


def test_shares_are_looked_at_when_somebody_passes_its_bound() -> None:
    p = planner("chunk:fair=1:halflife=1000", [node("n1")])
    submit(p, "greedy", 0.0, "a", 500.0)
    p.handle(JobSubmitted(job("first", 1.0, key="b/first", seconds=600)), 1.0)
    p.handle(WorkerEnded("a/greedy", 1, "Succeeded", 500.0), 500.0)
    submit(p, "second", 500.0, "a", 5000.0)
    p.handle(Tick(), 560.0)
    assert p.cluster.shares.over == {"a"}
    due = p.next_wakeup()
    assert due is not None
    assert 800.0 < due < 1000.0  # b catches up after less than 500 s: what a had is forgotten
    p.handle(Tick(), due + 1.0)
    assert p.cluster.shares.over == frozenset()


def test_the_next_crossing_is_when_a_review_says_something_else() -> None:
    shares = Shares(halflife_seconds=1000.0)
    shares.change("a", Resources(gpus=3), 0.0)
    shares.change("b", Resources(gpus=1), 0.0)
    shares.review("ab", 100.0)
    assert shares.over == {"a"}
    shares.change("a", Resources(gpus=-3), 100.0)
    at = shares.next_crossing(100.0)
    assert at is not None
    shares.review("ab", at - 0.1)
    assert shares.over == {"a"}
    shares.review("ab", at + 0.1)
    assert shares.over == frozenset()


def test_shares_without_held_gpus_have_no_crossing() -> None:
    shares = Shares(halflife_seconds=1000.0)
    shares.change("a", Resources(gpus=3), 0.0)
    shares.change("a", Resources(gpus=-3), 50.0)
    shares.review("ab", 100.0)
    assert shares.next_crossing(100.0) is None


def test_the_half_life_must_be_positive() -> None:
    with pytest.raises(ValueError, match="halflife > 0"):
        get_policy("chunk:halflife=0")
