"""Dominant resource fairness between jobs, and the fixed numbers of workers of `fifo`."""

import pytest

from support.builders import job, node, planner
from tranche.model import Node, PodShape, Resources
from tranche.planner import JobSubmitted, Planner
from tranche.policies import get_policy


def workers(made: Planner, names: str) -> list[int]:
    return [len(made.cluster.jobs[f"default/{name}"].runs) for name in names]


def test_worked_example_of_two_jobs_gives_three_and_two_workers() -> None:
    """9 CPU and 18 GB; a worker of a takes 1 and 4, one of b 3 and 1."""
    made = planner("drf:users=jobs", [Node("n0", "edge-a", Resources(cpu=9, memory=18, gpus=100, pods=100))])
    shapes = {"a": Resources(cpu=1, memory=4, gpus=1, pods=1), "b": Resources(cpu=3, memory=1, gpus=1, pods=1)}
    made.handle_all([JobSubmitted(job(name, chunks=10, worker=PodShape(one))) for name, one in shapes.items()], 0.0)
    assert workers(made, "ab") == [3, 2]


def test_shares_of_jobs_are_in_proportion_to_their_weights() -> None:
    made = planner("drf:users=jobs", [node("n0", gpus=9)])
    made.handle_all([JobSubmitted(job(name, chunks=9, weight=w)) for name, w in (("a", 2.0), ("b", 1.0))], 0.0)
    assert workers(made, "ab") == [6, 3]


def test_between_tenants_the_first_job_gets_all_it_can_use() -> None:
    made = planner("drf", [node("n0", gpus=9)])
    made.handle_all([JobSubmitted(job(name, chunks=9, owner=name)) for name in "ab"], 0.0)
    assert workers(made, "ab") == [9, 0]


def test_fifo_gives_each_job_the_number_drawn_for_it() -> None:
    made = planner("fifo:workers=4", [node("n0", gpus=100)], seed=3)
    names = "abcdefghij"
    made.handle_all([JobSubmitted(job(name, chunks=9)) for name in names], 0.0)
    counts = workers(made, names)
    assert set(counts) == {1, 2, 3, 4}
    again = planner("fifo:workers=4", [node("n0", gpus=100)], seed=3)
    again.handle_all([JobSubmitted(job(name, chunks=9)) for name in reversed(names)], 0.0)
    assert workers(again, names) == counts


def test_fifo_serves_the_next_job_when_the_first_has_its_number() -> None:
    made = planner("fifo:workers=1", [node("n0", gpus=3)])
    made.handle_all([JobSubmitted(job(name, chunks=9)) for name in "ab"], 0.0)
    assert workers(made, "ab") == [1, 1]


@pytest.mark.parametrize("options", ["drf:users=teams", "fifo:workers=-1", "fifo:workers=1.5"])
def test_options_without_meaning_are_refused(options: str) -> None:
    with pytest.raises(ValueError, match=options.partition(":")[0]):
        get_policy(options)
