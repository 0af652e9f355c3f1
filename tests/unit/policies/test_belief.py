"""Work left as a belief, from the last report and the time since, or as reported (option `belief` of `chunk`)."""

import pytest

from support.builders import gang, job, node, planner
from tranche.model import Report
from tranche.planner import JobSubmitted, ProgressReported, WorkerStarted
from tranche.policies import get_policy
from tranche.policies.base import QueuePolicy
from tranche.simulation.scenario import Scenario, run


@pytest.mark.parametrize(("policy", "stops"), [("chunk", 0), ("chunk:belief=0", 1)])
def test_job_that_is_nearly_done_is_stopped_without_belief(policy: str, stops: int) -> None:
    jobs = (job("long", seconds=100.0), job("short", 80.0, seconds=50.0))
    result = run(Scenario(jobs, (node("n1"),), policy=policy))
    assert {one.key: one.preemptions for one in result.jobs}["default/long"] == stops


@pytest.mark.parametrize(("policy", "left"), [("chunk:aging=0", 70.0), ("chunk:aging=0:belief=0", 80.0)])
def test_rank_follows_reports_and_by_belief_the_time_since(policy: str, left: float) -> None:
    made = planner(policy, [node("n1")])
    two = job("a", chunks=2, seconds=50.0, max_workers=1)
    made.handle(JobSubmitted(two), 0.0)
    made.handle(WorkerStarted(two.key, 1, 0.0), 0.0)
    report = Report(two.key, 1, {0: 40.0})
    made.handle(ProgressReported(report, 20.0), 20.0)
    rules = get_policy(policy)
    assert isinstance(rules, QueuePolicy)
    rank = rules.rank(made.cluster.jobs[two.key], made.cluster, 30.0)
    assert rank[0] == pytest.approx(left)


def test_ended_and_reported_service_counts_without_belief() -> None:
    made = planner("chunk:aging=0:belief=0", [node("n1"), node("n2")])
    one = gang("a", members=2, seconds=100.0)
    made.handle(JobSubmitted(one), 0.0)
    for attempt in (1, 2):
        made.handle(WorkerStarted(one.key, attempt, 0.0), 0.0)
    rules = get_policy("chunk:aging=0:belief=0")
    assert isinstance(rules, QueuePolicy)
    state = made.cluster.jobs[one.key]
    assert rules.rank(state, made.cluster, 60.0)[0] == pytest.approx(200.0)
    assert rules.rank_decrease_per_second(state, 60.0) == 0.0
