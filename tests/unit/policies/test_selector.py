"""The policy selector: whose rank counts, when it changes, and what it refuses."""

import pytest

from support.builders import gang, job, node, planner
from tranche.model import Job
from tranche.planner import JobSubmitted
from tranche.policies import get_policy
from tranche.policies.queue.selector import Selector, features
from tranche.simulation.scenario import Scenario, run

JOBS = (
    job("first", seconds=100.0),
    job("wide", 1.0, seconds=50.0, chunks=2, is_gang=True),
    job("long", 2.0, seconds=90.0),
    job("short", 3.0, seconds=80.0),
)
NODES = (node("n1", gpus=2),)


def completed(policy: str, jobs: tuple[Job, ...] = JOBS) -> dict[str, float]:
    """Return the completion of each job."""
    return {one.key: one.completed for one in run(Scenario(jobs, NODES, policy=policy)).jobs}


@pytest.mark.parametrize("member", ["srsf", "srtf", "sjf", "las", "fifo-skip"])
def test_a_policy_that_always_scores_best_decides_alone(member: str) -> None:
    other = "srsf" if member != "srsf" else "las"
    assert completed(f"selector:members={other}+{member}:weights=0/0/0/1/0/0") == completed(member)


def test_load_changes_the_policy() -> None:
    by_load = "selector:members=fifo-skip+srsf:weights=0/0/0/-1.5/1/0"  # srsf above 2^1.5 times the GPUs
    few, many = JOBS[:3], (*JOBS, *(job(f"more-{n}", 4.0, seconds=10.0) for n in range(4)))
    assert completed(by_load, few) == completed("fifo-skip", few)
    assert completed("srsf", many) != completed("fifo-skip", many)
    assert completed(by_load, many)["default/more-0"] < completed("fifo-skip", many)["default/more-0"]


def test_features_are_load_and_share_of_unknown_sizes() -> None:
    made = planner("selector", [node("n1", gpus=2)])
    assert features(made.cluster) == (0.0, 0.0)
    made.handle(JobSubmitted(gang("a", members=6)), 0.0)
    made.handle(JobSubmitted(gang("b", members=2, size_declared=False)), 0.0)
    assert features(made.cluster) == (2.0, 0.5)
    made.handle(JobSubmitted(gang("c", members=100)), 0.0)
    assert features(made.cluster)[0] == 3.0


def test_all_jobs_are_ranked_again_when_the_policy_changes() -> None:
    made = planner("selector:members=fifo-skip+srsf:weights=0/0/0/-1.5/1/0", [node("n1")])
    for number in range(4):
        made.handle(JobSubmitted(job(f"j{number}", float(number), seconds=100.0 - number)), float(number))
        epochs = {state.rank_epoch for state in made.cluster.jobs.values()}
        assert epochs == {int(number >= 2)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("selector:members=srsf+chunk", "different ones of"),
        ("selector:members=srsf+srsf", "different ones of"),
        ("selector:members=srsf+las", "6 weights for 2 members"),
    ],
    ids=["unknown", "twice", "weights"],
)
def test_impossible_options_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        get_policy(text)


def test_reason_is_that_of_the_chosen_policy() -> None:
    made = planner("selector:members=srsf+las:weights=0/0/0/1/0/0", [node("n1")])
    for one in JOBS[2:]:
        made.handle(JobSubmitted(one), 3.0)
    first, second = made.cluster.jobs.values()
    policy = made.policy
    assert isinstance(policy, Selector)
    assert policy.chosen(first).name == "las"
    assert policy.precedence_reason(first, second, made.cluster, 3.0) == "which came earlier"
